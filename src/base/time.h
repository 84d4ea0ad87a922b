// Time is a count of nanoseconds since the runtime started; it comes from the runtime, never from a
// global clock.
#pragma once

#include <compare>
#include <cstdint>

namespace declock {

struct Duration {
  std::int64_t ns = 0;
  constexpr auto operator<=>(const Duration&) const = default;
};

struct Time {
  std::int64_t ns = 0;
  constexpr auto operator<=>(const Time&) const = default;
};

constexpr Time operator+(Time t, Duration d) {
  return {t.ns + d.ns};
}
constexpr Duration operator-(Time a, Time b) {
  return {a.ns - b.ns};
}
constexpr Duration operator+(Duration a, Duration b) {
  return {a.ns + b.ns};
}
constexpr Duration operator*(Duration d, std::int64_t n) {
  return {d.ns * n};
}

constexpr Duration microseconds(std::int64_t n) {
  return {n * 1'000};
}
constexpr Duration milliseconds(std::int64_t n) {
  return {n * 1'000'000};
}
constexpr Duration seconds(std::int64_t n) {
  return {n * 1'000'000'000};
}

}  // namespace declock
