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
  static constexpr std::uint32_t kLooksMin = 256;
  static constexpr std::uint32_t kLooksMax = 2000;

  // True: it came. From any thread: what one has learned of it another may overwrite (relaxed, all of it).
  template <class Came>
  bool look(Came came, std::uint32_t looks_max = kLooksMax) {
    const std::uint32_t looks = std::min(looks_.load(std::memory_order_relaxed), looks_max);
    const std::uint32_t crowded = crowded_.load(std::memory_order_relaxed);
    if (crowded > 0) crowded_.store(crowded - 1, std::memory_order_relaxed);
    for (std::uint32_t i = 1; i <= looks; ++i) {
      if (came()) {
        looks_.store(std::min(looks * 2, looks_max), std::memory_order_relaxed);
        return true;
      }
      if (i % kLooksPerYield != 0 || crowded > 0) {
        relax();
      } else if (!yields_briefly()) {
        crowded_.store(kCrowdedFor, std::memory_order_relaxed);
        return came();
      }
    }
    looks_.store(std::max(looks / 2, kLooksMin), std::memory_order_relaxed);
    return false;
  }

 private:
  static constexpr std::uint32_t kLooksPerYield = 32;
  // Somebody computes, and keeps the core for as long as it may. Who sleeps and is woken gets it back sooner.
  static constexpr std::uint32_t kCrowdedFor = 256;
  static constexpr Duration kBriefly = microseconds(200);

  static bool yields_briefly() {
    const Time before = monotonic_now();
    (void)sched_yield();
    return monotonic_now() - before < kBriefly;
  }

  std::atomic<std::uint32_t> looks_{kLooksMin};
  std::atomic<std::uint32_t> crowded_{0};  // so many times it does not yield
};

}  // namespace declock
