#include <gtest/gtest.h>

#include "peers/ideal.h"
#include "support/lab.h"

namespace declock {
namespace {

TEST(Ideal, IsPhaseFairAndCostsNothing) {
  Lab lab{4};
  peers::IdealLocks locks;
  std::deque<peers::IdealLock> clients;
  for (auto& node : lab.nodes) clients.emplace_back(locks, node.endpoint);
  std::array<Visit, 4> seen;
  const auto go = [&](std::size_t i, Mode mode) {
    lab.start(visit(lab.nodes[i].worker, clients[i], Lab::kLock, mode, microseconds(10), seen[i]));
    lab.run(microseconds(1));
  };
  go(0, Mode::exclusive);
  go(1, Mode::exclusive);
  go(2, Mode::shared);
  go(3, Mode::shared);
  EXPECT_TRUE(seen[0].entered);
  EXPECT_FALSE(seen[1].entered || seen[2].entered || seen[3].entered);
  lab.run(microseconds(8));  // the writer has left: both readers, before the writer that came first
  EXPECT_TRUE(seen[0].left && seen[2].entered && seen[3].entered);
  EXPECT_FALSE(seen[1].entered);
  lab.run(microseconds(10));
  EXPECT_TRUE(seen[2].left && seen[3].left && seen[1].entered);
  lab.run(microseconds(10));
  EXPECT_TRUE(lab.all_done());
  EXPECT_EQ(lab.engine.counts().of(Purpose::acquire) + lab.engine.counts().of(Purpose::release), 0u);
  EXPECT_EQ(lab.engine.counts().messages, 0u);
}

TEST(Ideal, AReaderDoesNotPassAWaitingWriter) {
  Lab lab{3};
  peers::IdealLocks locks;
  EXPECT_TRUE(locks.try_enter(Lab::kLock, Mode::shared));
  EXPECT_TRUE(locks.try_enter(Lab::kLock, Mode::shared));
  EXPECT_FALSE(locks.try_enter(Lab::kLock, Mode::exclusive));
  locks.wait(Lab::kLock, Mode::exclusive, {&lab.nodes[0].worker, std::noop_coroutine()});
  EXPECT_FALSE(locks.try_enter(Lab::kLock, Mode::shared));
}

}  // namespace
}  // namespace declock
