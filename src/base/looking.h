// How long whoever waits looks before it sleeps: the longer, the more often that paid lately. Now and then it leaves the core to
// others: whoever it waits for may need it.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/futex.h"

namespace declock {

class Looking {
 public:
  static constexpr std::uint32_t kLooksMin = 64;
  static constexpr std::uint32_t kLooksMax = 2000;

  // True: it came. From any thread: what one has learned of it another may overwrite (relaxed).
  template <class Came>
  bool look(Came came, std::uint32_t looks_max = kLooksMax) {
    const std::uint32_t looks = std::min(looks_.load(std::memory_order_relaxed), looks_max);
    for (std::uint32_t i = 1; i <= looks; ++i) {
      if (came()) {
        looks_.store(std::min(looks * 2, looks_max), std::memory_order_relaxed);
        return true;
      }
      i % kLooksPerYield == 0 ? (void)sched_yield() : relax();
    }
    looks_.store(std::max(looks / 2, kLooksMin), std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr std::uint32_t kLooksPerYield = 32;

  std::atomic<std::uint32_t> looks_{4 * kLooksMin};
};

}  // namespace declock
