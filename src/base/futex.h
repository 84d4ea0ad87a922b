// Sleeping in the kernel until another thread or process rings: a word of memory that both of them see.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace declock {

// Until the word is no longer `value`, somebody wakes the sleeper, or the clock reads `until`; perhaps earlier.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, Time until);

// Clears these bits and wakes all who sleep on the word. One call of the kernel: a caller that is killed has done both
// or nothing. REQUIRES: below 2048.
void futex_clear_and_wake(std::atomic<std::uint32_t>& word, std::uint32_t bits);

// Of whoever looks again and again: leaves the core's other thread more room.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// CLOCK_MONOTONIC: the same for all processes of the machine.
Time monotonic_now();

}  // namespace declock
