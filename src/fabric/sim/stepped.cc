#include "sim/stepped.h"

#include <algorithm>

#include "base/mix.h"

namespace declock::sim {

SimEndpoint& SteppedEngine::add_endpoint(SimWorker& worker) {
  lanes_.emplace_back();
  CHECK(lanes_.size() <= 255);
  return Engine::add_endpoint(worker);
}

void SteppedEngine::restart() {
  CHECK(alarms_.empty());
  for (Lane& lane : lanes_) {
    CHECK(lane.paused == nullptr);
    for (Flight* flight : lane.flights) discard(*flight);
    lane.flights.clear();
    lane.observed = 0;
    lane.last_read = 0;
  }
  letters_.clear();
  memory(MnId{0}).clear();
  now_ = Time{};
}

void SteppedEngine::begin_operation(EndpointId who, std::uint64_t number) {
  Lane& lane = lanes_[who.value];
  lane.observed = number;
  lane.last_read = 0;
}

void SteppedEngine::enabled(std::vector<Choice>& out) const {
  out.clear();
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    const auto who = static_cast<std::uint8_t>(i);
    if (lane.paused) out.push_back({Choice::Kind::resume, who});
    if (lane.flights.empty()) continue;
    if (next_to_take(lane) != nullptr) out.push_back({Choice::Kind::effect, who});
    const Flight& oldest = *lane.flights.front();
    if (oldest.taken < oldest.count) continue;
    const std::size_t count = variants(oldest);
    CHECK(count <= 256);
    for (std::size_t v = 0; v < count; ++v) {
      out.push_back({Choice::Kind::complete, who, 0, static_cast<std::uint8_t>(v)});
    }
  }
  for (std::size_t i = 0; i < letters_.size(); ++i) {
    const Choice choice{Choice::Kind::deliver, static_cast<std::uint8_t>(letters_[i].from.value),
                        static_cast<std::uint8_t>(letters_[i].to.value)};
    if (find_letter(choice) == i) out.push_back(choice);
  }
  if (!out.empty() || alarms_.empty()) return;
  for (std::size_t i = 0; i < alarms_.size(); ++i) {
    const bool earliest = std::none_of(alarms_.begin(), alarms_.end(),
                                       [&](const Alarm& a) { return a.when < alarms_[i].when; });
    if (earliest) out.push_back({Choice::Kind::timer, static_cast<std::uint8_t>(i)});
  }
}

void SteppedEngine::perform(Choice choice) {
  Lane& lane = lanes_[choice.kind == Choice::Kind::timer ? 0 : choice.who];
  switch (choice.kind) {
    case Choice::Kind::effect:
      take_next(lane);
      break;
    case Choice::Kind::complete: {
      Flight& flight = *lane.flights.front();
      lane.flights.erase(lane.flights.begin());
      fill_reads(flight, choice.variant);
      observe_completion(lane, flight);
      complete(flight);
      break;
    }
    case Choice::Kind::deliver: {
      const std::size_t at = find_letter(choice);
      const Letter letter = letters_[at];
      letters_.erase(letters_.begin() + static_cast<std::ptrdiff_t>(at));
      Lane& receiver = lanes_[letter.to.value];
      receiver.observed = mix(receiver.observed, letter.from.value + 1);
      for (const std::uint64_t word : letter.message.words) {
        receiver.observed = mix(receiver.observed, word);
      }
      receiver.last_read = 0;
      deliver(letter);
      break;
    }
    case Choice::Kind::resume: {
      lane.observed = mix(lane.observed, 1);
      lane.last_read = 0;
      resume(std::exchange(lane.paused, nullptr));
      break;
    }
    case Choice::Kind::timer: {
      const Alarm alarm = alarms_[choice.who];
      alarms_.erase(alarms_.begin() + choice.who);
      now_ = std::max(now_, alarm.when);
      fire(*alarm.timer);
      break;
    }
  }
}

void SteppedEngine::on_post(Flight& flight) {
  if (flight.index >= sights_.size()) sights_.resize(flight.index + 1);
  Lane& lane = lanes_[flight.from.value];
  lane.flights.push_back(&flight);
  begin_reads(lane);
  if (posted) posted(flight);
}

void SteppedEngine::on_send(const Letter& letter) {
  letters_.push_back(letter);
  if (sent) sent(letter);
}

void SteppedEngine::on_arm(Timer& timer, Time when) {
  timer.armed_as = 1;
  alarms_.push_back({&timer, when});
}

void SteppedEngine::on_disarm(Timer& timer) {
  std::erase_if(alarms_, [&](const Alarm& a) { return a.timer == &timer; });
}

// The first chain whose effects are not all done; its next step is no read, since reads begin by
// themselves.
Flight* SteppedEngine::next_to_take(const Lane& lane) {
  for (Flight* flight : lane.flights) {
    if (flight->taken < flight->count) return flight;
  }
  return nullptr;
}

const Flight::Step& SteppedEngine::next_step(std::uint8_t who) const {
  const Flight& flight = *next_to_take(lanes_[who]);
  return flight.steps[flight.taken];
}

// A read may see memory from the moment on when everything before it has taken effect.
void SteppedEngine::begin_reads(Lane& lane) {
  for (Flight* flight = next_to_take(lane); flight != nullptr; flight = next_to_take(lane)) {
    const Flight::Step& step = flight->steps[flight->taken];
    if (step.kind != OpKind::read) return;
    Sight& seen = sight(*flight, flight->taken);
    seen.first.resize(step.words);
    memory(step.addr.mn).read(step.addr.offset, seen.first);
    seen.later.clear();
    seen.open = true;
    flight->taken += 1;
  }
}

void SteppedEngine::take_next(Lane& lane) {
  // Reads that were posted earlier must have seen all they will see (F1).
  for (const Flight* flight : lane.flights) {
    for (std::size_t i = 0; i < flight->taken; ++i) sight(*flight, i).open = false;
  }
  Flight& flight = *next_to_take(lane);
  Flight::Step& step = flight.steps[flight.taken];
  take_effect(flight, step);
  flight.taken += 1;
  show_to_open_reads(step);
  begin_reads(lane);
}

void SteppedEngine::show_to_open_reads(const Flight::Step& changed) {
  for (const Lane& lane : lanes_) {
    for (const Flight* flight : lane.flights) {
      for (std::size_t i = 0; i < flight->taken; ++i) {
        const Flight::Step& read = flight->steps[i];
        Sight& seen = sight(*flight, i);
        if (read.kind != OpKind::read || !seen.open) continue;
        for (std::size_t w = 0; w < changed.words; ++w) {
          const std::uint64_t offset = changed.addr.offset + 8 * w;
          if (offset < read.addr.offset || offset >= read.addr.offset + 8 * read.words) continue;
          const auto word = static_cast<std::uint32_t>((offset - read.addr.offset) / 8);
          const std::pair<std::uint32_t, std::uint64_t> value{word, memory(MnId{0}).load(offset)};
          const bool known = seen.first[word] == value.second ||
                             std::find(seen.later.begin(), seen.later.end(), value) != seen.later.end();
          if (!known) seen.later.push_back(value);
        }
      }
    }
  }
}

std::size_t SteppedEngine::variants(const Flight& flight) const {
  std::size_t count = 1;
  for (std::size_t i = 0; i < flight.count; ++i) {
    if (flight.steps[i].kind != OpKind::read) continue;
    const Sight& seen = sight(flight, i);
    if (seen.later.empty()) continue;
    for (std::uint32_t word = 0; word < seen.first.size(); ++word) {
      count *= 1 + static_cast<std::size_t>(
                       std::count_if(seen.later.begin(), seen.later.end(),
                                     [&](const auto& value) { return value.first == word; }));
    }
  }
  return count;
}

// A variant is a number in mixed radix: a digit per word that had several values, 0 for the first of
// them, k for the k-th later one. Takes the digits of this step off `variant`.
std::vector<std::uint64_t> SteppedEngine::words_seen(const Sight& seen, std::size_t& variant) {
  std::vector<std::uint64_t> words = seen.first;
  if (seen.later.empty()) return words;
  for (std::uint32_t word = 0; word < words.size(); ++word) {
    std::size_t radix = 1;
    for (const auto& value : seen.later) radix += value.first == word ? 1 : 0;
    std::size_t digit = variant % radix;
    variant /= radix;
    for (const auto& [at, value] : seen.later) {
      if (at == word && digit > 0 && --digit == 0) words[word] = value;
    }
  }
  return words;
}

void SteppedEngine::fill_reads(Flight& flight, std::size_t variant) {
  for (std::size_t i = 0; i < flight.count; ++i) {
    if (flight.steps[i].kind != OpKind::read) continue;
    Sight& seen = sight(flight, i);
    if (!seen.later.empty()) seen.first = words_seen(seen, variant);
    if (flight.doorbell != nullptr) {
      std::copy(seen.first.begin(), seen.first.end(), flight.steps[i].into.begin());
    }
  }
}

std::vector<std::uint64_t> SteppedEngine::would_see(const Choice& choice, std::size_t step) const {
  const Flight& flight = oldest_flight(choice.who);
  std::size_t variant = choice.variant;
  for (std::size_t i = 0; i < step; ++i) {
    if (flight.steps[i].kind == OpKind::read) words_seen(sight(flight, i), variant);
  }
  return words_seen(sight(flight, step), variant);
}

void SteppedEngine::observe_completion(Lane& lane, const Flight& flight) {
  std::uint64_t seen = flight.count;
  for (std::size_t i = 0; i < flight.count; ++i) {
    const Flight::Step& step = flight.steps[i];
    seen = mix(seen, step.addr.packed());
    if (is_atomic(step.kind)) seen = mix(seen, step.old);
    if (step.kind != OpKind::read) continue;
    for (const std::uint64_t word : sight(flight, i).first) seen = mix(seen, word);
  }
  const bool read_alone = flight.count == 1 && flight.steps[0].kind == OpKind::read;
  if (read_alone && lane.last_read == seen) return;  // a stutter
  lane.observed = mix(lane.observed, seen);
  lane.last_read = read_alone ? seen : 0;
}

std::size_t SteppedEngine::find_letter(const Choice& choice) const {
  const auto at = std::find_if(letters_.begin(), letters_.end(), [&](const Letter& letter) {
    return letter.from.value == choice.who && letter.to.value == choice.to;
  });
  return static_cast<std::size_t>(at - letters_.begin());
}

std::uint64_t SteppedEngine::digest() const {
  std::uint64_t d = 0;
  const Memory& mem = const_cast<SteppedEngine*>(this)->memory(MnId{0});
  for (std::size_t i = 0; i < words_; ++i) d = mix(d, mem.load(8 * i));

  for (const Lane& lane : lanes_) {
    d = mix(d, lane.observed);
    d = mix(d, lane.last_read);
    for (const Flight* flight : lane.flights) {
      d = mix(d, flight->taken);
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
    d = mix(d, lane.flights.size() * 2 + (lane.paused ? 1 : 0));
  }

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
  d = mix(d, mail);

  for (const Alarm& alarm : alarms_) d = mix(d, static_cast<std::uint64_t>((alarm.when - now_).ns));
  return d;
}

}  // namespace declock::sim
