#include "sim/engine.h"

#include "base/mix.h"

namespace declock::sim {

Time SimWorker::now() const {
  const Time t = engine_.now();
  return t + skew_.offset + Duration{t.ns / 1'000 * skew_.drift_ppb / 1'000'000};
}
void SimWorker::arm(Timer& timer, Time when) {
  engine_.on_arm(index_, timer, engine_.now() + (when - now()));
}
void SimWorker::disarm(Timer& timer) {
  engine_.on_disarm(timer);
}
void SimWorker::make_ready(std::coroutine_handle<> coroutine) {
  engine_.ready_.push_back(coroutine);
}

void SimEndpoint::ring(Doorbell& doorbell) {
  Flight& flight = engine_.take_flight();
  flight.doorbell = &doorbell;
  flight.from = id();
  flight.worker = worker_index_;
  flight.count = 0;
  flight.taken = 0;
  for (const Op* op : doorbell.ops()) {
    Flight::Step& step = flight.steps[flight.count++];
    step.kind = op->kind;
    step.purpose = op->purpose;
    step.addr = op->addr;
    step.operand = op->operand;
    step.expected = op->expected;
    step.compare_mask = op->compare_mask;
    step.swap_mask = op->swap_mask;
    step.into = op->into;
    step.from.assign(op->from.begin(), op->from.end());
    step.words = op->words();
  }
  engine_.on_post(flight);
}

void SimEndpoint::abandon(Doorbell& doorbell) {
  for (Flight& flight : engine_.flights_) {
    if (flight.doorbell == &doorbell) flight.doorbell = nullptr;
  }
}

void SimEndpoint::transmit(EndpointId to, const Message& message) {
  engine_.on_send(Letter{id(), to, message});
}

SimWorker& Engine::add_worker(Skew skew) {
  const auto index = static_cast<std::uint32_t>(workers_.size());
  return workers_.emplace_back(*this, index, Prng{seed_, 1'000'000 + index}, skew);
}

SimEndpoint& Engine::add_endpoint(SimWorker& worker) {
  return endpoints_.emplace_back(*this, EndpointId{static_cast<std::uint32_t>(endpoints_.size())},
                                 worker);
}

OpCounts Engine::counts() const {
  OpCounts sum;
  for (const SimEndpoint& endpoint : endpoints_) sum += endpoint.counts();
  return sum;
}

Flight& Engine::take_flight() {
  if (idle_flights_.empty()) {
    Flight& flight = flights_.emplace_back();
    flight.index = static_cast<std::uint32_t>(flights_.size() - 1);
    return flight;
  }
  Flight& flight = *idle_flights_.back();
  idle_flights_.pop_back();
  return flight;
}

void Engine::discard(Flight& flight) {
  flight.doorbell = nullptr;
  idle_flights_.push_back(&flight);
}

void Engine::take_effect(Flight& flight, Flight::Step& step) {
  Memory& mem = memory(step.addr.mn);
  switch (step.kind) {
    case OpKind::fetch_add:
      step.old = mem.load(step.addr.offset);
      mem.store(step.addr.offset, step.old + step.operand);
      break;
    case OpKind::compare_swap:  // its masks are all ones
    case OpKind::masked_compare_swap:
      step.old = mem.load(step.addr.offset);
      if (step.changes_memory()) {
        mem.store(step.addr.offset, (step.old & ~step.swap_mask) | (step.operand & step.swap_mask));
      }
      break;
    case OpKind::write:
      mem.write(step.addr.offset, step.from);
      break;
    case OpKind::read:
      CHECK(false);  // reads are sampled
  }
  trace(step.addr.packed(), is_atomic(step.kind) ? step.old : step.from[0]);
  if (observer_ != nullptr) observer_->on_effect(flight.from, step);
}

void Engine::sample(const Flight& flight, Flight::Step& step, std::size_t begin, std::size_t end) {
  trace(step.addr.packed(), begin << 32 | end);
  if (flight.doorbell == nullptr) return;
  memory(step.addr.mn).read(step.addr.offset + 8 * begin, step.into.subspan(begin, end - begin));
}

void Engine::complete(Flight& flight) {
  Doorbell* doorbell = flight.doorbell;
  trace(flight.from.value, flight.count);
  if (doorbell != nullptr) {
    for (std::size_t i = 0; i < flight.count; ++i) doorbell->ops()[i]->old = flight.steps[i].old;
  }
  discard(flight);
  if (doorbell != nullptr) doorbell->complete(Errc::ok);
  run_ready();
}

void Engine::deliver(const Letter& letter) {
  trace(std::uint64_t{letter.from.value} << 32 | letter.to.value, letter.message.words[0]);
  endpoints_[letter.to.value].deliver(letter);
  run_ready();
}

void Engine::fire(Timer& timer) {
  timer.armed_as = 0;
  resume(timer.waiter);
}

void Engine::resume(std::coroutine_handle<> coroutine) {
  coroutine.resume();
  run_ready();
}

void Engine::run_ready() {
  // Bounded: a coroutine that runs becomes ready again only through another's step in the same instant,
  // and each of those consumes an event or a request.
  for (std::size_t i = 0; i < ready_.size(); ++i) ready_[i].resume();
  ready_.clear();
}

void Engine::trace(std::uint64_t a, std::uint64_t b) {
  trace_ = mix(mix(trace_, a ^ static_cast<std::uint64_t>(now().ns) << 20), b);
}

}  // namespace declock::sim
