#include "runtime/thread_wait.h"

#include "base/futex.h"
#include "runtime/thread_worker.h"

namespace declock {
namespace {

// What others do to a lock takes less time than to be woken.
constexpr int kLooks = 500;

}  // namespace

void ThreadWait::wait() {
  for (int i = 0; i < kLooks; ++i) {
    if (word_.load(std::memory_order_acquire) == kWoken) return;  // pairs with wake()
    relax();
  }
  std::uint32_t word = 0;
  if (!word_.compare_exchange_strong(word, kAsleepBit)) return;
  while (((word = word_.load()) & kAsleepBit) != 0) futex_wait(word_, word, ThreadWorker::kNever);
}

void ThreadWait::wake() {
  const std::uint32_t before = word_.fetch_or(kWoken);
  if ((before & kAsleepBit) != 0) futex_clear_and_wake(word_, kAsleepBit);
}

}  // namespace declock
