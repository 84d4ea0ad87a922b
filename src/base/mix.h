// A 64-bit mixer for digests of traces and states. Not for untrusted input.
#pragma once

#include <cstdint>

namespace declock {

// Folds `value` into `digest`; the order of calls matters.
constexpr std::uint64_t mix(std::uint64_t digest, std::uint64_t value) {
  std::uint64_t x = digest * 0x9E3779B97F4A7C15u + value;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  x ^= x >> 32;
  return x;
}

}  // namespace declock
