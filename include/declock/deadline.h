// Moments of the steady clock from whatever a caller says: what is past is now, what is far away is a year from now.
// No time is too long, too short or too fine.
#ifndef DECLOCK_DEADLINE_H
#define DECLOCK_DEADLINE_H

#include <chrono>

namespace declock::detail {

inline constexpr std::chrono::hours kFarAway{24 * 365};

template <class Rep, class Period>
bool is_far_away(const std::chrono::duration<Rep, Period>& d) {
  using Seconds = std::chrono::duration<double>;  // in which nothing overflows
  return Seconds(d) >= Seconds(kFarAway);
}

template <class Rep, class Period>
std::chrono::steady_clock::time_point moment_after(const std::chrono::duration<Rep, Period>& d) {
  using Steady = std::chrono::steady_clock;
  const Steady::time_point now = Steady::now();
  if (!(d > std::chrono::duration<Rep, Period>::zero())) return now;
  if (is_far_away(d)) return now + kFarAway;
  return now + std::chrono::ceil<Steady::duration>(d);
}

// From now until t, in which nothing overflows and near moments are not exact.
template <class Clock, class Duration>
std::chrono::duration<double> about_until(const std::chrono::time_point<Clock, Duration>& t) {
  using Seconds = std::chrono::duration<double>;
  return Seconds(t.time_since_epoch()) - Seconds(Clock::now().time_since_epoch());
}

template <class Clock, class Duration>
bool has_passed(const std::chrono::time_point<Clock, Duration>& t) {
  const auto about = about_until(t);
  if (is_far_away(about) || is_far_away(-about)) return about.count() < 0;
  return t <= Clock::now();
}

template <class Clock, class Duration>
std::chrono::steady_clock::time_point moment_at(const std::chrono::time_point<Clock, Duration>& t) {
  if (has_passed(t)) return std::chrono::steady_clock::now();
  if (is_far_away(about_until(t))) return std::chrono::steady_clock::now() + kFarAway;
  return moment_after(t - Clock::now());
}

}  // namespace declock::detail

#endif
