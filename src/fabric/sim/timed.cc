#include "sim/timed.h"

#include <algorithm>
#include <utility>

#include "base/mix.h"

namespace declock::sim {
namespace {

// Hands out indices into a vector, the freed ones first.
template <class T>
std::uint32_t place(std::vector<T>& items, std::vector<std::uint32_t>& idle, T item) {
  if (idle.empty()) {
    items.push_back(item);
    return static_cast<std::uint32_t>(items.size() - 1);
  }
  const std::uint32_t index = idle.back();
  idle.pop_back();
  items[index] = item;
  return index;
}

template <class T>
T& at_grown(std::vector<T>& items, std::size_t index) {
  if (index >= items.size()) items.resize(index + 1);
  return items[index];
}

}  // namespace

TimedEngine::TimedEngine(const NicModel& model, unsigned mns, std::uint64_t seed)
    : Engine(mns, seed), model_(model), network_(seed, 0) {
  units_.resize(mns * static_cast<std::size_t>(model.processing_units));
  nics_.resize(mns);
  slots_.resize(mns * static_cast<std::size_t>(model.atomic_slots));
}

bool TimedEngine::step() {
  if (heap_.empty()) return false;
  const Event event = heap_.top();
  heap_.pop();
  now_ = Time{event.at_ns};
  events_ += 1;
  happen(event);
  return true;
}

void TimedEngine::run_until(Time end) {
  while (!heap_.empty() && heap_.top().at_ns <= end.ns) step();
  now_ = std::max(now_, end);
}

bool TimedEngine::is_cut(Party a, Party b) const {
  return std::any_of(cuts_.begin(), cuts_.end(), [&](const auto& c) {
    return (c.first == a && c.second == b) || (c.first == b && c.second == a);
  });
}

bool TimedEngine::is_paused(Party party) const {
  return std::find(paused_.begin(), paused_.end(), party) != paused_.end();
}

void TimedEngine::resume(Party party) {
  std::erase(paused_, party);
  for (const Kept& kept : kept_) {
    if (kept.for_whom == party) heap_.push(now_, kept.event.kind, kept.event.index);
  }
  std::erase_if(kept_, [&](const Kept& kept) { return kept.for_whom == party; });
}

void TimedEngine::heal() {
  cuts_.clear();
  for (const Event& event : held_up_) heap_.push(now_, event.kind, event.index);
  held_up_.clear();
}

void TimedEngine::mend(Party a, Party b) {
  std::erase_if(cuts_, [&](const auto& cut) {
    return (cut.first == a && cut.second == b) || (cut.first == b && cut.second == a);
  });
  // What is still cut off is held up again, in the same order.
  for (const Event& event : held_up_) heap_.push(now_, event.kind, event.index);
  held_up_.clear();
}

// True: the event concerns a party that is paused or cut off.
bool TimedEngine::keep_for_later(const Event& event) {
  Party whose;
  switch (event.kind) {
    case EventKind::complete:
      whose = party_of_worker(flight(event.index).worker);
      if (is_cut(party_of(flight(event.index).mn()), whose)) {
        held_up_.push_back(event);
        return true;
      }
      break;
    case EventKind::deliver: {
      const Letter& letter = letters_[event.index];
      whose = party_of_endpoint(letter.to);
      if (is_cut(party_of_endpoint(letter.from), whose)) {
        held_up_.push_back(event);
        return true;
      }
      break;
    }
    case EventKind::timer:
      whose = party_of_worker(timers_[event.index].worker);
      break;
    case EventKind::arrive:
      if (is_cut(party_of_worker(flight(event.index).worker), party_of(flight(event.index).mn()))) {
        held_up_.push_back(event);
        return true;
      }
      return false;
    default:
      return false;
  }
  if (!is_paused(whose)) return false;
  kept_.push_back({event, whose});
  return true;
}

void TimedEngine::happen(const Event& event) {
  if (!(paused_.empty() && cuts_.empty()) && keep_for_later(event)) return;
  switch (event.kind) {
    case EventKind::arrive:
      arrive(flight(event.index));
      break;
    case EventKind::free_slot:
      free_slot(event.index);
      break;
    case EventKind::tear: {
      const Torn torn = torn_[event.index];
      idle_torn_.push_back(event.index);
      end_torn_read(torn);
      break;
    }
    case EventKind::complete: {
      Flight& done = flight(event.index);
      if (done.status == Errc::ok && network_.one_in(mishaps_.unknown_one_in)) {
        break_behind(done);
        done.status = Errc::outcome_unknown;
      }
      complete(done);
      break;
    }
    case EventKind::deliver: {
      const Letter letter = letters_[event.index];
      idle_letters_.push_back(event.index);
      deliver(letter);
      break;
    }
    case EventKind::timer: {
      Timer* timer = timers_[event.index].timer;
      idle_timers_.push_back(event.index);
      if (timer != nullptr) fire(*timer);
      break;
    }
  }
}

Duration TimedEngine::way(std::int64_t base_ns) {
  Duration d = Duration{base_ns} + network_.exponential(Duration{model_.jitter_mean_ns});
  if (network_.one_in(static_cast<std::uint64_t>(model_.hiccup_one_in))) d.ns += model_.hiccup_ns;
  return d;
}

Time TimedEngine::charge_cpu(std::uint32_t worker, std::int64_t ns) {
  Time& free = at_grown(core_free_, worker);
  free = std::max(free, now_) + Duration{ns};
  return free;
}

TimedEngine::QueuePair& TimedEngine::pair_of(const Flight& flight) {
  const std::size_t index = flight.from.value * nics_.size() + flight.mn().value;
  if (index >= pairs_.size()) {
    const auto units = static_cast<std::uint64_t>(model_.processing_units);
    for (std::size_t i = pairs_.size(); i <= index; ++i) {
      const std::uint64_t nic = i % nics_.size();
      pairs_.emplace_back().unit = static_cast<std::uint32_t>(nic * units + mix(1, i) % units);
    }
  }
  return pairs_[index];
}

// A single fetch_add of whoever runs now.
void TimedEngine::carry_out(Flight& flight) {
  take_effect(flight, flight.steps[0]);
  Doorbell* doorbell = flight.doorbell;
  discard(flight);
  doorbell->complete(Errc::ok);
}

void TimedEngine::on_post(Flight& flight) {
  if (carries_out_at_once_) return carry_out(flight);
  QueuePair& pair = pair_of(flight);
  const Time posted = charge_cpu(flight.worker, model_.verb_cpu_ns * flight.count);
  pair.last_arrival = std::max(pair.last_arrival, posted + way(model_.one_way_ns));
  if (network_.one_in(mishaps_.delayed_one_in)) pair.last_arrival = pair.last_arrival + mishaps_.delay;
  heap_.push(pair.last_arrival, EventKind::arrive, flight.index);
}

void TimedEngine::on_send(const Letter& letter) {
  const Time posted = charge_cpu(endpoint(letter.from).worker_index(), model_.message_cpu_ns);
  Time& last = last_delivery_[std::uint64_t{letter.from.value} << 32 | letter.to.value];
  // The three words of a short message are in message_one_way_ns.
  const auto more_words = static_cast<std::int64_t>(letter.message.words.size()) - 3;
  const Duration payload{std::max<std::int64_t>(more_words, 0) * 8 * model_.payload_ps_per_byte / 1000};
  last = std::max(last, posted + way(model_.message_one_way_ns) + payload);
  heap_.push(last, EventKind::deliver, place(letters_, idle_letters_, letter));
}

void TimedEngine::on_arm(std::uint32_t worker, Timer& timer, Time when) {
  const std::uint32_t index = place(timers_, idle_timers_, Alarm{&timer, worker});
  timer.armed_as = index + std::uint64_t{1};
  heap_.push(std::max(when, now_), EventKind::timer, index);
}

void TimedEngine::on_disarm(Timer& timer) {
  timers_[timer.armed_as - 1].timer = nullptr;
}

void TimedEngine::arrive(Flight& flight) {
  if (flight.doorbell != nullptr && paused_.empty() && network_.one_in(mishaps_.unknown_one_in)) {
    // Whoever posted it is told before it takes effect, which it may yet.
    break_behind(flight);
    Doorbell* doorbell = std::exchange(flight.doorbell, nullptr);
    heap_.push(now_ + mishaps_.delay, EventKind::arrive, flight.index);
    fail(*doorbell);
    return;
  }
  flight.ready = now_;
  const std::uint32_t unit = pair_of(flight).unit;
  units_[unit].waiting.push_back(flight.index);
  if (!units_[unit].blocked) work_off(unit);
}

void TimedEngine::end_torn_read(const Torn& torn) {
  Flight& reader = flight(torn.flight);
  sample(reader, reader.steps[reader.count - 1], torn.begin, torn.end);
  QueuePair& pair = pair_of(reader);
  Unit& unit = units_[pair.unit];
  pair.torn = false;
  unit.waiting.insert(unit.waiting.begin() + (unit.blocked ? 1 : 0), pair.held.begin(),
                      pair.held.end());
  pair.held.clear();
  if (!unit.blocked) work_off(pair.unit);
}

void TimedEngine::work_off(std::uint32_t index) {
  Unit& unit = units_[index];
  while (!unit.waiting.empty()) {
    Flight& first = flight(unit.waiting.front());
    QueuePair& pair = pair_of(first);
    if (pair.torn) {
      pair.held.push_back(first.index);
      unit.waiting.pop_front();
      continue;
    }
    if (!serve(first)) {
      unit.blocked = true;
      const std::uint32_t slot = slot_index(first.steps[first.taken]);
      slots_[slot].waiting.push_back(index);
      if (slots_[slot].waiting.size() == 1) heap_.push(slots_[slot].free, EventKind::free_slot, slot);
      return;
    }
    unit.waiting.pop_front();
    pair.last_completion = std::max(pair.last_completion, first.ready + way(model_.one_way_ns));
    heap_.push(pair.last_completion, EventKind::complete, first.index);
  }
}

void TimedEngine::free_slot(std::uint32_t index) {
  Slot& slot = slots_[index];
  const std::uint32_t unit = slot.waiting.front();
  slot.waiting.erase(slot.waiting.begin());
  slot.reserved = true;
  units_[unit].blocked = false;
  work_off(unit);
  // The unit may have come back for the slot, behind the others; then there is an event already.
  if (slot.waiting.size() > 1 || (slot.waiting.size() == 1 && slot.waiting[0] != unit)) {
    heap_.push(slot.free, EventKind::free_slot, index);
  }
}

// False: an atomic waits for its slot.
bool TimedEngine::serve(Flight& flight) {
  Nic& nic = nics_[flight.mn().value];
  while (flight.taken < flight.count) {
    if (is_lost(flight)) {
      flight.taken = flight.count;
      return true;
    }
    Flight::Step& step = flight.steps[flight.taken];
    if (is_atomic(step.kind) && is_busy(slots_[slot_index(step)])) return false;
    const Time done = serve_step(flight, step, nic);
    flight.ready = std::max(flight.ready, done);
    flight.taken += 1;
  }
  return true;
}

// When the NIC is done with this step. Effects happen in the order in which steps enter the pipeline,
// so they may be applied here although the step's turn comes a little later.
Time TimedEngine::serve_step(Flight& flight, Flight::Step& step, Nic& nic) {
  const auto bytes = static_cast<std::int64_t>(8 * step.words);
  Time begin = std::max(now_, nic.pipeline_free);
  if (is_atomic(step.kind)) {
    nic.pipeline_free = begin + Duration{model_.atomic_ns};
    Slot& slot = slots_[slot_index(step)];
    slot.free = begin + Duration{model_.atomic_slot_held_ns};
    slot.reserved = false;
    take_effect(flight, step);
    return slot.free;
  }
  nic.pipeline_free = begin + Duration{model_.read_write_ns};
  std::int64_t& link_free_ps = step.kind == OpKind::write ? nic.inbound_free_ps : nic.outbound_free_ps;
  link_free_ps =
      std::max(link_free_ps, nic.pipeline_free.ns * 1000) + bytes * model_.payload_ps_per_byte;
  Time done{link_free_ps / 1000};
  if (step.kind == OpKind::write) {
    take_effect(flight, step);
  } else {
    done = std::max(done, read_words(flight, step));
  }
  return done;
}

// When the last word has been seen.
Time TimedEngine::read_words(Flight& flight, Flight::Step& step) {
  // Only the last read of a chain is torn: what follows in the chain must not overtake it (F1).
  const bool last = flight.taken + 1 == flight.count;
  if (step.words < 2 || !last ||
      !network_.one_in(static_cast<std::uint64_t>(model_.torn_read_one_in))) {
    sample(flight, step, 0, step.words);
    return now_;
  }
  const std::size_t cut = 1 + network_.below(step.words - 1);
  const bool head_first = network_.below(2) == 0;
  sample(flight, step, head_first ? 0 : cut, head_first ? cut : step.words);
  const Torn rest{flight.index, head_first ? cut : 0, head_first ? step.words : cut};
  const Time until = now_ + Duration{model_.torn_read_gap_ns};
  pair_of(flight).torn = true;
  heap_.push(until, EventKind::tear, place(torn_, idle_torn_, rest));
  return until;
}

}  // namespace declock::sim
