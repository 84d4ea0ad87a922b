#include "hier/synced_clock.h"

#include <algorithm>
#include <array>

namespace declock::hier {
namespace {

constexpr Duration kInterval = seconds(1);
// A correction is spread over this time. It is far longer than any correction, so the clock never stands still.
constexpr Duration kSlew = milliseconds(100);

// What the last to arrive writes: the round's low bits, and its clock in nanoseconds.
constexpr unsigned kClockBits = 48;
constexpr std::uint64_t kClockMask = (std::uint64_t{1} << kClockBits) - 1;

std::uint64_t announcement(std::uint64_t round, Time clock) {
  return round << kClockBits | (static_cast<std::uint64_t>(clock.ns) & kClockMask);
}

}  // namespace

Time SyncedClock::corrected(Time local) const {
  const std::int64_t passed = std::clamp((local - since_).ns, std::int64_t{0}, kSlew.ns);
  // In microseconds of the slew: the product stays far below 2^63.
  const std::int64_t part_us = passed / 1000;
  return local + from_ + Duration{(to_.ns - from_.ns) * part_us / (kSlew.ns / 1000)};
}

void SyncedClock::correct_by(Duration error, Time local) {
  const Duration current = corrected(local) - local;
  to_ = current + error;
  from_ = round_ == 0 ? to_ : current;
  since_ = local;
}

Task<void> SyncedClock::keep_in_step(RemoteAddr meeting) {
  for (;;) {
    const Result<void> met = co_await meet(meeting);
    if (!met) co_return;  // what was corrected so far stays; fairness may blur
    // Everybody aims at the same moment of the common clock.
    const std::int64_t into_interval = now().ns % kInterval.ns;
    co_await endpoint_.worker().sleep_for(Duration{kInterval.ns - into_interval});
  }
}

Task<Result<void>> SyncedClock::meet(RemoteAddr meeting) {
  Op arrive = Op::fetch_add(meeting, 1, Purpose::sync);
  Result<void> posted = co_await endpoint_.post(arrive);
  if (!posted) co_return posted;
  const std::uint64_t round = round_ + 1;

  if (arrive.old + 1 == round * cns_) {
    const std::uint64_t word = announcement(round, now());
    Op tell = Op::write(meeting + 8, {&word, 1}, Purpose::sync);
    posted = co_await endpoint_.post(tell);
    round_ = round;
    co_return posted;
  }
  for (;;) {  // bounded by the slowest CN
    const Time before = endpoint_.worker().now();
    std::array<std::uint64_t, 1> word{};
    Op look = Op::read(meeting + 8, word, Purpose::sync);
    posted = co_await endpoint_.post(look);
    if (!posted) co_return posted;
    if (word[0] >> kClockBits != (round & 0xFFFF)) continue;
    // The announcement is as old as the WRITE was on its way, plus the time since it landed: half a READ for the
    // former, and on the average half a READ for the latter.
    const Time local = endpoint_.worker().now();
    const Duration age = local - before;
    quickest_read_ = std::min(quickest_read_, age);
    // A READ that was held up says little. The clock has been corrected before, and drifts slowly.
    if (round_ > 0 && age > quickest_read_ * 2) {
      round_ = round;
      co_return Result<void>{};
    }
    const std::uint64_t reference = word[0] + static_cast<std::uint64_t>(age.ns);
    const std::uint64_t mine = static_cast<std::uint64_t>(corrected(local).ns);
    // The difference of two 48-bit clocks, as a signed number.
    const auto ahead = static_cast<std::int64_t>((reference - mine) << (64 - kClockBits));
    correct_by(Duration{ahead >> (64 - kClockBits)}, local);
    round_ = round;
    co_return Result<void>{};
  }
}

}  // namespace declock::hier
