// Compares what the memory says in the end with what the processes were told of their updates.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "process/control.h"

namespace declock::process {

// `word`: what is at that offset. `unacknowledged_max`: sections that somebody was killed in, or driven out of, at most.
// The number of acknowledged updates.
inline std::uint64_t expect_accounts(const Control& control, std::uint32_t memory,
                                     std::uint64_t unacknowledged_max,
                                     const std::function<std::uint64_t(std::uint64_t)>& word) {
  EXPECT_EQ(control.violations.load(), 0u);
  EXPECT_EQ(control.misjudged.load(), 0u);
  EXPECT_EQ(control.errors.load(), 0u);
  EXPECT_LE(control.repairs.load(), unacknowledged_max);
  std::uint64_t updates = 0;
  for (std::uint64_t lock = 0; lock < kLocks; ++lock) {
    const std::uint64_t there = word(kObjects + 64 * lock + 8);
    const std::uint64_t acknowledged = control.acknowledged(memory, lock);
    EXPECT_GE(there, acknowledged) << "acknowledged updates of lock " << lock << " are lost";
    EXPECT_LE(there, acknowledged + unacknowledged_max) << "of lock " << lock;
    updates += acknowledged;
    for (std::uint64_t i = 0; i < kTallyWords; ++i) {
      const Bounds& bounds = control.stations[i / kClients].bounds[memory][i % kClients][lock];
      const std::uint64_t tally = word(kTallies + 8 * (kTallyWords * lock + i));
      EXPECT_TRUE(bounds.allow(tally)) << "client " << i << " added to its word of lock " << lock
                                       << " at least " << bounds.at_least.load() << " and at most "
                                       << bounds.at_most.load() << ", but it says " << tally;
      updates += bounds.at_least.load();
    }
  }
  return updates;
}

}  // namespace declock::process
