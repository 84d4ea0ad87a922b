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

template <class Clock, class Duration>
std::chrono::steady_clock::time_point moment_at(const std::chrono::time_point<Clock, Duration>& t) {
  using Seconds = std::chrono::duration<double>;
  const auto now = Clock::now();
  if (t <= now) return std::chrono::steady_clock::now();
  if (is_far_away(Seconds(t.time_since_epoch()) - Seconds(now.time_since_epoch()))) {
    return std::chrono::steady_clock::now() + kFarAway;
  }
  return moment_after(t - now);
}

}  // namespace declock::detail

#endif
