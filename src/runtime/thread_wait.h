// A thread waits, once, for another of its process to wake it: it looks for a while, and then sleeps.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/looking.h"

namespace declock {

class ThreadWait {
 public:
  // Did it sleep?
  bool wait(Looking& looking);
  // The waiting thread may be gone with this before it returns.
  void wake();

 private:
  static constexpr std::uint32_t kWoken = 1;
  static constexpr std::uint32_t kAsleepBit = 2;

  std::atomic<std::uint32_t> word_{0};  // it waits until this is kWoken alone
};

}  // namespace declock
