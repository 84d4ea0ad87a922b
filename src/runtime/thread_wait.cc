#include "runtime/thread_wait.h"

#include "base/futex.h"
#include "runtime/thread_worker.h"

namespace declock {

bool ThreadWait::wait(Looking& looking) {
  // What others do to a lock takes less time than to be woken. The load pairs with wake().
  if (looking.look([this] { return word_.load(std::memory_order_acquire) == kWoken; })) return false;
  std::uint32_t word = 0;
  if (!word_.compare_exchange_strong(word, kAsleepBit)) return false;
  while (((word = word_.load()) & kAsleepBit) != 0) futex_wait(word_, word, ThreadWorker::kNever);
  return true;
}

void ThreadWait::wake() {
  const std::uint32_t before = word_.fetch_or(kWoken);
  if ((before & kAsleepBit) != 0) futex_clear_and_wake(word_, kAsleepBit);
}

}  // namespace declock
