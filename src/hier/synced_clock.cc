#include "hier/synced_clock.h"

#include <algorithm>
#include <array>

namespace declock::hier {
namespace {

constexpr Duration kInterval = seconds(1);
// A correction is spread over this time. It is far longer than any correction, so the clock never stands still.
constexpr Duration kSlew = milliseconds(100);
// The one who tells the time waits until the others look, which they do for no longer than this.
constexpr Duration kUntilTold = microseconds(50);
constexpr Duration kListening = milliseconds(5);

// What is told: how often that was done, and the clock in nanoseconds.
constexpr unsigned kClockBits = 48;
constexpr std::uint64_t kClockMask = (std::uint64_t{1} << kClockBits) - 1;

}  // namespace

Time SyncedClock::corrected(Time local) const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const std::int64_t from_ns = from_ns_.load(kRelaxed);
  const std::int64_t to_ns = to_ns_.load(kRelaxed);
  const std::int64_t passed =
      std::clamp(local.ns - since_ns_.load(kRelaxed), std::int64_t{0}, kSlew.ns);
  // In microseconds of the slew: the product stays far below 2^63.
  const std::int64_t part_us = passed / 1000;
  return local + Duration{from_ns + (to_ns - from_ns) * part_us / (kSlew.ns / 1000)};
}

void SyncedClock::correct_by(Duration error, Time local) {
  const Duration current = corrected(local) - local;
  const Duration aim = current + error;
  to_ns_.store(aim.ns, std::memory_order_relaxed);
  from_ns_.store((rounds_ == 0 ? aim : current).ns, std::memory_order_relaxed);
  since_ns_.store(local.ns, std::memory_order_relaxed);
}

bool SyncedClock::leads() const {
  const std::uint16_t mine = membership_.self().slot.value;
  const auto& members = membership_.known().members;
  return std::all_of(members.begin(), members.end(),
                     [&](const member::Member& m) { return m.slot.value >= mine; });
}

Task<void> SyncedClock::keep_in_step(RemoteAddr meeting, std::uint32_t mn_incarnation) {
  mn_incarnation_ = mn_incarnation;
  for (;;) {
    // What was corrected so far stays if a round fails; fairness may blur.
    const Result<void> met = leads() ? co_await tell(meeting) : co_await listen(meeting);
    if (!met && (met.error() == Errc::evicted || met.error() == Errc::mn_restarted)) co_return;
    // Everybody aims at the same moment of the common clock.
    const std::int64_t into_interval = now().ns % kInterval.ns;
    co_await endpoint_.worker().sleep_for(Duration{kInterval.ns - into_interval});
  }
}

Task<Result<std::uint64_t>> SyncedClock::read(RemoteAddr meeting) {
  std::uint64_t word = 0;
  Op look = Op::read(meeting, {&word, 1}, Purpose::sync);
  look.incarnation = mn_incarnation_;
  const Result<void> posted = co_await endpoint_.post(look);
  if (!posted) co_return Failure{posted.error()};
  co_return word;
}

Task<Result<void>> SyncedClock::tell(RemoteAddr meeting) {
  const Result<std::uint64_t> last = co_await read(meeting);
  if (!last) co_return Failure{last.error()};
  co_await endpoint_.worker().sleep_for(kUntilTold);
  const std::uint64_t count = (*last >> kClockBits) + 1;
  const std::uint64_t word = count << kClockBits | (static_cast<std::uint64_t>(now().ns) & kClockMask);
  Op write = Op::write(meeting, {&word, 1}, Purpose::sync);
  write.incarnation = mn_incarnation_;
  const Result<void> posted = co_await endpoint_.post(write);
  rounds_ += 1;
  co_return posted;
}

Task<Result<void>> SyncedClock::listen(RemoteAddr meeting) {
  const Result<std::uint64_t> last = co_await read(meeting);
  if (!last) co_return Failure{last.error()};
  const Time began = endpoint_.worker().now();
  for (Time before = began; before - began < kListening; before = endpoint_.worker().now()) {
    const Result<std::uint64_t> word = co_await read(meeting);
    if (!word) co_return Failure{word.error()};
    if (*word >> kClockBits == *last >> kClockBits) continue;
    const Time local = endpoint_.worker().now();
    const Duration age = local - before;
    quickest_read_ = std::min(quickest_read_, age);
    // A READ that was held up says little. A clock that has been corrected before drifts slowly.
    if (rounds_ > 0 && age > quickest_read_ * 2) break;
    // What was told is as old as the WRITE was on its way, plus the time since it landed: half a READ for the
    // former, and on the average half a READ for the latter.
    const std::uint64_t reference = *word + static_cast<std::uint64_t>(age.ns);
    const auto mine = static_cast<std::uint64_t>(corrected(local).ns);
    // The difference of two 48-bit clocks, as a signed number.
    const auto ahead = static_cast<std::int64_t>((reference - mine) << (64 - kClockBits));
    correct_by(Duration{ahead >> (64 - kClockBits)}, local);
    rounds_ += 1;
    break;
  }
  co_return Result<void>{};
}

}  // namespace declock::hier
