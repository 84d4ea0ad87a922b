// Numbers that nobody can guess, from the kernel: for names and keys, never for what a run repeats from its seed (prng.h).
#pragma once

#include <sys/random.h>

#include <cstdint>

#include "base/check.h"

namespace declock {

inline std::uint64_t unguessable_number() {
  std::uint64_t number = 0;
  CHECK(getrandom(&number, sizeof number, 0) == sizeof number);
  return number;
}

}  // namespace declock
