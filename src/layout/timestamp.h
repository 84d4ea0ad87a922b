// Timestamps of requests: 16 bits of microseconds. Two that lie less than half the range (32 ms) apart are
// compared rightly; with longer waits fairness may blur, safety may not (H26).
#pragma once

#include <cstdint>

#include "base/time.h"
#include "layout/ids.h"

namespace declock {

constexpr Timestamp timestamp_of(Time t) {
  return Timestamp{static_cast<std::uint16_t>(t.ns / 1000)};
}

// How much later b is than a, in microseconds; negative if it is earlier.
constexpr std::int32_t microseconds_between(Timestamp a, Timestamp b) {
  return static_cast<std::int16_t>(static_cast<std::uint16_t>(b.value - a.value));
}

constexpr bool is_earlier(Timestamp a, Timestamp b) {
  return microseconds_between(a, b) > 0;
}

static_assert(is_earlier(Timestamp{65'530}, Timestamp{5}));
static_assert(microseconds_between(Timestamp{65'530}, Timestamp{5}) == 11);

}  // namespace declock
