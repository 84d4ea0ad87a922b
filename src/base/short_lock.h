// A mutex for sections of some nanoseconds between the threads of one process: one atomic to lock, a store to unlock.
#pragma once

#include <sched.h>

#include <atomic>

namespace declock {

class ShortLock {
 public:
  void lock() {
    if (taken_.exchange(true, std::memory_order_acquire)) wait();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }
  // By anybody. For checkers.
  bool is_taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  // Its holder is at work, or was taken off its core: then it needs this one.
  void wait() {
    constexpr int kLooks = 100;
    for (int i = 0;
         taken_.load(std::memory_order_relaxed) || taken_.exchange(true, std::memory_order_acquire);
         ++i) {
      if (i >= kLooks) sched_yield();
    }
  }

  std::atomic<bool> taken_{false};
};

}  // namespace declock
