// Waits for what can be observed, never for time to pass.
#pragma once

#include <unistd.h>

#include "base/futex.h"
#include "base/time.h"

namespace declock {

// Whatever takes longer hangs, on a busy machine too.
inline constexpr Duration kHangs = seconds(120);

// True once `done()` is; false: it hangs.
template <class Done>
bool soon(Done done) {
  const Time latest = monotonic_now() + kHangs;
  while (!done()) {
    if (monotonic_now() > latest) return false;
    usleep(2'000);
  }
  return true;
}

}  // namespace declock
