// Timestamps of requests: 16 bits of microseconds. Two that lie less than half the range (32 ms) apart are
// compared rightly; with longer waits fairness may blur, safety may not (H26).
//
// A compute node keeps whole times of what happens on itself: when its own clients asked, and when it learned that
// somebody elsewhere waits. Whoever asked after that is later, however long the wait lasts.
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

// When a client of this compute node asked.
struct Asked {
  Timestamp stamp{};  // for the others
  Time at{};          // of this node's clock, whole
};

// Somebody elsewhere waits.
struct RemoteWait {
  Timestamp asked{};
  Time known{};  // when this node learned of it, in its own clock, whole
};

// How much later the local client asked than the remote one. The remote one asked before it became known, at most
// 57 ms before as far as its timestamp tells; the rest of the range is for clocks that disagree.
constexpr Duration later_by(const Asked& local, const RemoteWait& remote) {
  constexpr std::uint16_t kAheadUs = 0xE000;
  const std::int64_t before_known_us = (remote.known - local.at).ns / 1000;
  const auto known_stamp = static_cast<std::uint16_t>(local.stamp.value + before_known_us);
  const auto age_us = static_cast<std::uint16_t>(known_stamp - remote.asked.value);
  return microseconds((age_us >= kAheadUs ? 0 : age_us) - before_known_us);
}

static_assert(is_earlier(Timestamp{65'530}, Timestamp{5}));
static_assert(microseconds_between(Timestamp{65'530}, Timestamp{5}) == 11);

}  // namespace declock
