// When two states of the stepped engine are the same.
#include "base/mix.h"
#include "sim/stepped.h"

namespace declock::sim {

std::uint64_t SteppedEngine::digest() const {
  std::uint64_t d = incarnation(MnId{0}) - 1;
  auto& self = const_cast<SteppedEngine&>(*this);
  const Memory& mem = self.memory(MnId{0});
  for (std::size_t i = 0; i < words_; ++i) d = mix(d, mem.load(8 * i));

  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    d = mix(d, digest(lanes_[i]));
    if (self.is_broken(EndpointId{i}, MnId{0})) d = mix(d, ~std::uint64_t{0});
  }
  d = mix(d, digest_of_mail());

  std::uint64_t asleep = 0;  // sets: the order does not matter
  for (const Paused& paused : pauses_) asleep += mix(1, paused.client);
  for (const Alarm& alarm : alarms_) asleep += mix(2 + alarm.passed_over, alarm.worker);
  for (const Reconnection* waits : reconnections_) asleep += mix(~std::uint64_t{0}, waits->who_.value);
  return mix(d, asleep);
}

std::uint64_t SteppedEngine::digest(const Lane& lane) const {
  std::uint64_t d = mix(lane.observed.digest(), lane.last_look);
  for (const Flight* flight : lane.flights) {
    const std::uint64_t flags =
        (flight->severed ? 1u : 0u) | (flight->told ? 2u : 0u) | (flight->shaken ? 4u : 0u);
    d = mix(d, flight->taken | flags << 8);
    if (flight->status != Errc::ok) {
      d = mix(d, static_cast<std::uint64_t>(flight->status));
      continue;
    }
    if (flight->severed) continue;  // what it found nobody hears
    for (std::size_t i = 0; i < flight->taken; ++i) {
      const Flight::Step& step = flight->steps[i];
      if (is_atomic(step.kind)) d = mix(d, step.old);
      if (step.kind != OpKind::read) continue;
      const Sight& seen = sight(*flight, i);
      for (const std::uint64_t word : seen.first) d = mix(d, word);
      std::uint64_t later = seen.open ? 1 : 0;  // a set: the order does not matter
      for (const auto& [word, value] : seen.later) later += mix(word, value);
      d = mix(d, later);
    }
  }
  return mix(d, lane.flights.size());
}

std::uint64_t SteppedEngine::digest_of_mail() const {
  std::uint64_t mail = 0;  // what matters is the order per pair, not between pairs
  for (std::size_t i = 0; i < letters_.size(); ++i) {
    const Letter& letter = letters_[i];
    std::uint64_t m = std::uint64_t{letter.from.value} << 32 | letter.to.value;
    for (std::size_t j = 0; j < i; ++j) {
      if (letters_[j].from == letter.from && letters_[j].to == letter.to) m = mix(m, 1);
    }
    for (const std::uint64_t word : letter.message.words) m = mix(m, word);
    mail += m;
  }
  for (const Letter& echo : echoes_) {
    std::uint64_t m = mix(~std::uint64_t{echo.from.value}, echo.to.value);
    for (const std::uint64_t word : echo.message.words) m = mix(m, word);
    mail += m;
  }
  return mail;
}

}  // namespace declock::sim
