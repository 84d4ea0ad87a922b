#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace declock {
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 &&
              std::atomic<std::uint32_t>::is_always_lock_free);

constexpr std::int64_t kNsPerSecond = 1'000'000'000;

}  // namespace

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, Time until) {
  const timespec when{until.ns / kNsPerSecond, until.ns % kNsPerSecond};
  // Every outcome is fine: whoever waits looks again.
  (void)syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, value, &when, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_clear_and_wake(std::atomic<std::uint32_t>& word, std::uint32_t bits) {
  (void)syscall(SYS_futex, &word, FUTEX_WAKE_OP, INT_MAX, 0UL, &word,
                FUTEX_OP(FUTEX_OP_ANDN, bits, FUTEX_OP_CMP_EQ, 0));
}

Time monotonic_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return {now.tv_sec * kNsPerSecond + now.tv_nsec};
}

}  // namespace declock
