#include "sim/stepped.h"

#include <algorithm>

#include "base/check.h"
#include "base/mix.h"

namespace declock::sim {

SimEndpoint& SteppedEngine::add_endpoint(SimWorker& worker) {
  lanes_.emplace_back();
  CHECK(lanes_.size() <= 255);
  return Engine::add_endpoint(worker);
}

void SteppedEngine::restart() {
  CHECK(alarms_.empty() && pauses_.empty() && reconnections_.empty());
  for (Lane& lane : lanes_) {
    for (Flight* flight : lane.flights) discard(*flight);
    lane.flights.clear();
    lane.observed.start_with(0);
    lane.last_look = 0;
  }
  letters_.clear();
  echoes_.clear();
  memory(MnId{0}).clear();
  now_ = Time{};
}

void SteppedEngine::forget(EndpointId who, std::uint64_t all_but) {
  lanes_[who.value].observed.start_with(all_but);
  lanes_[who.value].last_look = 0;
}

void SteppedEngine::note(EndpointId who, std::uint64_t what) {
  Lane& lane = lanes_[who.value];
  lane.observed.add(what);
  lane.last_look = 0;
}

void SteppedEngine::enabled(std::vector<Choice>& out) const {
  out.clear();
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    const auto who = static_cast<std::uint8_t>(i);
    if (next_to_take(lane) != nullptr) out.push_back({Choice::Kind::effect, who});
    offer_completions(lane, who, out);
  }
  for (const Paused& paused : pauses_) out.push_back({Choice::Kind::resume, paused.client});
  for (std::size_t i = 0; i < reconnections_.size(); ++i) {
    const EndpointId who = reconnections_[i]->who_;
    const bool is_first =
        std::none_of(reconnections_.begin(), reconnections_.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const Reconnection* r) { return r->who_ == who; });
    if (is_first) out.push_back({Choice::Kind::reconnect, static_cast<std::uint8_t>(who.value)});
  }
  offer_letters(out);
}

void SteppedEngine::offer_completions(const Lane& lane, std::uint8_t who,
                                      std::vector<Choice>& out) const {
  const auto next = next_to_complete(lane);
  if (next == lane.flights.end()) return;
  const Flight& oldest = **next;
  if (oldest.taken < oldest.count && !oldest.severed) return;
  const std::size_t count = variants(oldest) + (oldest.shaken && !oldest.severed ? 1 : 0);
  for (std::size_t v = 0; v < count; ++v) {
    out.push_back({Choice::Kind::complete, who, 0, static_cast<std::uint32_t>(v)});
  }
}

void SteppedEngine::offer_letters(std::vector<Choice>& out) const {
  for (std::size_t i = 0; i < letters_.size(); ++i) {
    const Choice choice{Choice::Kind::deliver, static_cast<std::uint8_t>(letters_[i].from.value),
                        static_cast<std::uint8_t>(letters_[i].to.value)};
    if (find_letter(choice) == i) out.push_back(choice);
  }
  for (std::uint32_t i = 0; i < echoes_.size(); ++i) {
    out.push_back({Choice::Kind::deliver, static_cast<std::uint8_t>(echoes_[i].from.value),
                   static_cast<std::uint8_t>(echoes_[i].to.value), i + 1});
  }
}

void SteppedEngine::timers(std::vector<Choice>& out) const {
  out.clear();
  const bool any_overdue = std::any_of(alarms_.begin(), alarms_.end(),
                                       [](const Alarm& a) { return a.passed_over >= kPassedOverMax; });
  for (std::uint32_t i = 0; i < alarms_.size(); ++i) {
    if (any_overdue && alarms_[i].passed_over < kPassedOverMax) continue;
    out.push_back({Choice::Kind::timer, static_cast<std::uint8_t>(alarms_[i].worker), 0, i});
  }
}

void SteppedEngine::perform(Choice choice) {
  switch (choice.kind) {
    case Choice::Kind::effect:
      take_next(lanes_[choice.who]);
      shed_the_told(lanes_[choice.who]);
      forget_the_dead(lanes_[choice.who]);
      break;
    case Choice::Kind::complete:
      complete_next(lanes_[choice.who], choice.variant);
      break;
    case Choice::Kind::deliver:
      deliver_noted(take_letter(choice));
      break;
    case Choice::Kind::resume: {
      const auto at = std::find_if(pauses_.begin(), pauses_.end(),
                                   [&](const Paused& p) { return p.client == choice.who; });
      const Paused paused = *at;
      pauses_.erase(at);
      note(paused.at, choice.who + 1u);
      resume(paused.coroutine);
      break;
    }
    case Choice::Kind::timer: {
      const Alarm alarm = alarms_[choice.variant];
      alarms_.erase(alarms_.begin() + static_cast<std::ptrdiff_t>(choice.variant));
      now_ = std::max(now_, alarm.when);
      for (Alarm& other : alarms_) other.passed_over += 1;
      fire(*alarm.timer);
      break;
    }
    case Choice::Kind::reconnect: {
      const auto first =
          std::find_if(reconnections_.begin(), reconnections_.end(),
                       [&](const Reconnection* r) { return r->who_.value == choice.who; });
      const std::coroutine_handle<> waiter = (*first)->waiter_;
      reconnections_.erase(first);
      resume(waiter);
      break;
    }
    default:
      CHECK(false);
  }
}

Letter SteppedEngine::take_letter(const Choice& choice) {
  std::vector<Letter>& from = choice.variant > 0 ? echoes_ : letters_;
  const auto at = from.begin() + static_cast<std::ptrdiff_t>(choice.variant > 0 ? choice.variant - 1
                                                                                : find_letter(choice));
  const Letter letter = *at;
  from.erase(at);
  return letter;
}

void SteppedEngine::deliver_noted(const Letter& letter) {
  std::uint64_t heard = letter.from.value + 1;
  for (const std::uint64_t word : letter.message.words) heard = mix(heard, word);
  note(letter.to, heard);
  deliver(letter);
}

void SteppedEngine::repeat(const Choice& choice) {
  const Letter letter = take_letter(choice);
  echoes_.push_back(letter);
  deliver_noted(letter);
}

void SteppedEngine::on_post(Flight& flight) {
  if (flight.index >= sights_.size()) sights_.resize(flight.index + 1);
  if (carries_out_at_once_) return carry_out(flight);
  Lane& lane = lanes_[flight.from.value];
  lane.flights.push_back(&flight);
  if (is_lost(flight)) flight.taken = flight.count;
  begin_reads(lane);
  if (posted) posted(flight);
}

// A single fetch_add. Whoever posts it is running: nobody else is resumed before it waits for something.
void SteppedEngine::carry_out(Flight& flight) {
  if (posted) posted(flight);
  take_effect(flight, flight.steps[0]);
  flight.taken = 1;
  observe_completion(lanes_[flight.from.value], flight);
  Doorbell* doorbell = flight.doorbell;
  discard(flight);
  doorbell->complete(Errc::ok);
}

void SteppedEngine::on_send(const Letter& letter) {
  letters_.push_back(letter);
  if (sent) sent(letter);
}

void SteppedEngine::on_arm(std::uint32_t worker, Timer& timer, Time when) {
  timer.armed_as = 1;
  alarms_.push_back({worker, &timer, when});
}

void SteppedEngine::on_disarm(Timer& timer) {
  std::erase_if(alarms_, [&](const Alarm& a) { return a.timer == &timer; });
}

// Nobody awaits the completions of a client that is gone.
void SteppedEngine::forget_the_dead(Lane& lane) {
  while (!lane.flights.empty() && lane.flights.front()->doorbell == nullptr &&
         lane.flights.front()->taken == lane.flights.front()->count) {
    discard(*lane.flights.front());
    lane.flights.erase(lane.flights.begin());
  }
}

// The first chain whose effects are not all done.
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

// A read may see memory from the moment on when everything before it has taken effect. Behind another read
// that is a step of its own: the one is over before the other begins (F1).
void SteppedEngine::begin_reads(Lane& lane) {
  Flight* flight = next_to_take(lane);
  while (flight != nullptr && flight->severed && flight->steps[flight->taken].kind == OpKind::read) {
    flight->taken += 1;  // nobody hears what it would see
    flight = next_to_take(lane);
  }
  if (flight == nullptr || flight->steps[flight->taken].kind != OpKind::read || is_lost(*flight))
    return;
  for (const Flight* earlier : lane.flights) {
    for (std::size_t i = 0; i < earlier->taken && earlier->status == Errc::ok; ++i) {
      if (earlier->steps[i].kind == OpKind::read && sight(*earlier, i).open) return;
    }
  }
  begin_read(*flight);
}

void SteppedEngine::begin_read(Flight& flight) {
  const Flight::Step& step = flight.steps[flight.taken];
  Sight& seen = sight(flight, flight.taken);
  seen.first.resize(step.words);
  memory(step.addr.mn).read(step.addr.offset, seen.first);
  seen.later.clear();
  seen.open = true;
  flight.taken += 1;
}

void SteppedEngine::take_next(Lane& lane) {
  // Reads that were posted earlier have seen all they will see (F1).
  for (const Flight* flight : lane.flights) {
    for (std::size_t i = 0; i < flight->taken; ++i) sight(*flight, i).open = false;
  }
  Flight& flight = *next_to_take(lane);
  Flight::Step& step = flight.steps[flight.taken];
  if (is_lost(flight)) {
    flight.taken = flight.count;
    return begin_reads(lane);
  }
  if (step.kind == OpKind::read) return begin_read(flight);
  take_effect(flight, step);
  flight.taken += 1;
  show_to_open_reads(step);
  begin_reads(lane);
}

void SteppedEngine::show_to_open_reads(const Flight::Step& changed) {
  for (const Lane& lane : lanes_) {
    for (const Flight* flight : lane.flights) {
      if (flight->status != Errc::ok || flight->severed) continue;
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
  if (flight.status != Errc::ok || flight.severed) return count;
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
  if (flight.status != Errc::ok || flight.severed) return;
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
  if (flight.status != Errc::ok) {  // the same again is a stutter
    const std::uint64_t failure = mix(1, static_cast<std::uint64_t>(flight.status));
    if (lane.last_look != failure) lane.observed.add(failure);
    lane.last_look = failure;
    return;
  }
  std::uint64_t seen = flight.count;
  bool changed = false;
  bool swaps = false;
  for (std::size_t i = 0; i < flight.count; ++i) {
    const Flight::Step& step = flight.steps[i];
    // Who looks after a reset counts how often it has seen the same, too.
    swaps = swaps || is_atomic(step.kind) || step.purpose == Purpose::reset ||
            (refetches_count_ && step.purpose == Purpose::refetch);
    seen = mix(seen, step.addr.packed() ^ step.operand);
    if (is_atomic(step.kind)) seen = mix(seen, step.old);
    changed = changed || step.changes_memory();
    if (step.kind != OpKind::read) continue;
    for (const std::uint64_t word : sight(flight, i).first) seen = mix(seen, word);
  }
  if (!changed && lane.last_look == seen) {  // a stutter, once it cannot be one of a few tries any more
    if (!swaps || lane.repeats == kTriesMax) return;
    lane.repeats += 1;
  } else {
    lane.repeats = 0;
  }
  lane.observed.add(seen);
  lane.last_look = changed ? 0 : seen;
}

std::size_t SteppedEngine::find_letter(const Choice& choice) const {
  const auto at = std::find_if(letters_.begin(), letters_.end(), [&](const Letter& letter) {
    return letter.from.value == choice.who && letter.to.value == choice.to;
  });
  return static_cast<std::size_t>(at - letters_.begin());
}

}  // namespace declock::sim
