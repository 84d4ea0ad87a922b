#include "sim/engine.h"

#include <algorithm>

#include "base/check.h"
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
void SimWorker::forget(std::coroutine_handle<> coroutine) {
  const std::coroutine_handle<> nobody = std::noop_coroutine();
  std::replace(engine_.ready_.begin(), engine_.ready_.end(), coroutine, nobody);
}

void SimWorker::make_ready(std::coroutine_handle<> coroutine) {
  engine_.ready_.push_back(coroutine);
}

SimEndpoint::Connection& SimEndpoint::connection(MnId mn) {
  while (connections_.size() <= mn.value) connections_.emplace_back();
  return connections_[mn.value];
}

std::uint32_t SimEndpoint::incarnation(MnId mn) const {
  return const_cast<SimEndpoint*>(this)->connection(mn).incarnation;
}

bool SimEndpoint::completes_at_once() const {
  return engine_.completes_at_once();
}

std::uint64_t SimEndpoint::load_at_once(RemoteAddr addr) const {
  return engine_.memory(addr.mn).load(addr.offset);
}

bool SimEndpoint::add_at_once(RemoteAddr addr, std::uint64_t expected, std::uint64_t delta,
                              Purpose purpose) {
  if (connection(addr.mn).revoked || load_at_once(addr) != expected) return false;
  Op add = Op::fetch_add(addr, delta, purpose);
  engine_.carries_out_at_once_ = true;
  const Doorbell posted = post(add);
  engine_.carries_out_at_once_ = false;
  CHECK(posted.await_ready());
  return true;
}

Task<Result<void>> SimEndpoint::reconnect(MnId mn) {
  return engine_.reconnect(*this, mn);
}

Task<Result<void>> SimEndpoint::reopen(MnId mn) {
  constexpr Duration kOneWay = microseconds(1);
  const Party me = engine_.workers_[worker_index_].party();
  for (;;) {  // until the MN is there
    co_await worker().sleep_for(kOneWay);
    if (connection(mn).revoked) co_return Failure{Errc::evicted};
    if (!engine_.is_down(mn) && !engine_.is_cut(me, party_of(mn))) break;
    co_await worker().sleep_for(microseconds(50));
  }
  engine_.reopen(id(), mn);
  co_await worker().sleep_for(kOneWay);
  co_return Result<void>{};
}

void SimEndpoint::ring(Doorbell& doorbell) {
  Connection& over = connection(doorbell.ops()[0]->addr.mn);
  for (const Op* op : doorbell.ops()) {
    if (op->incarnation != 0 && op->incarnation != over.incarnation) {
      doorbell.complete(Errc::mn_restarted);
      return;
    }
  }
  Flight& flight = engine_.take_flight();
  flight.connection = over.number;
  flight.sequence = over.posted++;
  flight.status = Errc::ok;
  flight.severed = flight.told = flight.shaken = false;
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

SimWorker& Engine::add_worker(Skew skew, Party party) {
  const auto index = static_cast<std::uint32_t>(workers_.size());
  return workers_.emplace_back(*this, index, Prng{seed_, 1'000'000 + index}, skew, party);
}

void Engine::stop(MnId mn) {
  down_[mn.value] = true;
  incarnations_[mn.value] += 1;  // what was open is broken
}

void Engine::start_again(MnId mn) {
  memories_[mn.value] = Memory{};
  down_[mn.value] = false;
}

void Engine::break_behind(const Flight& flight) {
  SimEndpoint::Connection& over = endpoints_[flight.from.value].connection(flight.mn());
  if (over.number == flight.connection) over.good_until = std::min(over.good_until, flight.sequence);
}

Task<Result<void>> Engine::reconnect(SimEndpoint& endpoint, MnId mn) {
  return endpoint.reopen(mn);
}

void Engine::break_now(EndpointId endpoint, MnId mn) {
  SimEndpoint::Connection& over = endpoints_[endpoint.value].connection(mn);
  CHECK(over.posted > 0);
  over.good_until = std::min(over.good_until, over.posted - 1);
}

bool Engine::is_broken(EndpointId endpoint, MnId mn) {
  const SimEndpoint::Connection& over = endpoints_[endpoint.value].connection(mn);
  return over.good_until != ~std::uint64_t{0} || over.incarnation != incarnations_[mn.value];
}

void Engine::reopen(EndpointId endpoint, MnId mn) {
  SimEndpoint::Connection& over = endpoints_[endpoint.value].connection(mn);
  over.number += 1;
  over.incarnation = incarnations_[mn.value];
  over.good_until = ~std::uint64_t{0};
}

bool Engine::is_lost(Flight& flight) {
  if (flight.status != Errc::ok) return true;
  const SimEndpoint::Connection& over = endpoints_[flight.from.value].connection(flight.mn());
  if (over.revoked) {
    // Evicted: certainly nothing of it took effect (F5).
    flight.status = flight.taken == 0 ? Errc::evicted : Errc::outcome_unknown;
  } else if (over.number != flight.connection || flight.sequence > over.good_until ||
             down_[flight.mn().value] || over.incarnation != incarnations_[flight.mn().value]) {
    flight.status = Errc::outcome_unknown;
  }
  return flight.status != Errc::ok;
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
  const Errc status = flight.status;
  trace(flight.from.value, flight.count);
  if (doorbell != nullptr) {
    for (std::size_t i = 0; i < flight.count; ++i) doorbell->ops()[i]->old = flight.steps[i].old;
  }
  discard(flight);
  if (doorbell != nullptr) doorbell->complete(status);
  run_ready();
}

void Engine::fail(Doorbell& doorbell) {
  doorbell.complete(Errc::outcome_unknown);
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
