// Connections that break, and the memory node that restarts, under the stepped engine.
#include <algorithm>
#include <utility>

#include "sim/stepped.h"

namespace declock::sim {

std::vector<Flight*>::const_iterator SteppedEngine::next_to_complete(const Lane& lane) {
  return std::find_if(lane.flights.begin(), lane.flights.end(),
                      [](const Flight* f) { return !f->told; });
}

bool SteppedEngine::awaits_completion(EndpointId who) const {
  const std::vector<Flight*>& flights = lanes_[who.value].flights;
  return std::any_of(flights.begin(), flights.end(), [](const Flight* f) {
    return f->doorbell != nullptr && !f->severed && f->status == Errc::ok;
  });
}

bool SteppedEngine::is_unknown(const Choice& choice) const {
  const Flight& flight = oldest_flight(choice.who);
  return flight.severed || flight.status != Errc::ok ||
         (flight.shaken && choice.variant == variants(flight));
}

void SteppedEngine::complete_next(Lane& lane, std::size_t variant) {
  const auto next = next_to_complete(lane);
  Flight& flight = **next;
  if (flight.shaken && variant == variants(flight)) flight.severed = true;
  if (flight.severed && flight.status == Errc::ok) {
    Flight reported = flight;
    reported.status = Errc::outcome_unknown;
    observe_completion(lane, reported);
    flight.told = true;
    Doorbell* doorbell = std::exchange(flight.doorbell, nullptr);
    shed_the_told(lane);
    if (doorbell != nullptr) fail(*doorbell);
    return;
  }
  lane.flights.erase(next);
  fill_reads(flight, variant);
  observe_completion(lane, flight);
  complete(flight);
}

// Nobody hears of what is left of them; only what changes memory matters.
void SteppedEngine::shed_the_told(Lane& lane) {
  std::erase_if(lane.flights, [&](Flight* flight) {
    if (!flight->told) return false;
    const auto* left = flight->steps.begin() + flight->taken;
    const auto* end = flight->steps.begin() + flight->count;
    const bool over =
        std::all_of(left, end, [](const Flight::Step& step) { return step.kind == OpKind::read; });
    if (over) discard(*flight);
    return over;
  });
}

void SteppedEngine::forget_completions(EndpointId who) {
  Lane& lane = lanes_[who.value];
  for (Flight* flight : lane.flights) flight->told = flight->told || flight->severed;
  shed_the_told(lane);
  forget_the_dead(lane);
}

void SteppedEngine::sever(EndpointId who) {
  Lane& lane = lanes_[who.value];
  break_now(who, MnId{0});
  for (Flight* flight : lane.flights) {
    flight->severed = true;
    flight->told = flight->told || flight->doorbell == nullptr;
    for (std::size_t i = 0; i < flight->taken; ++i) sight(*flight, i).open = false;
  }
  begin_reads(lane);
  shed_the_told(lane);
}

void SteppedEngine::restart_memory() {
  stop(MnId{0});
  start_again(MnId{0});
  for (Lane& lane : lanes_) {
    for (Flight* flight : lane.flights) {
      for (std::size_t i = 0; i < flight->taken; ++i) sight(*flight, i).open = false;
      if (flight->taken == flight->count) {
        flight->shaken = true;
      } else if (is_lost(*flight)) {
        flight->taken = flight->count;
      }
    }
    shed_the_told(lane);
    forget_the_dead(lane);
  }
}

Task<Result<void>> SteppedEngine::reconnect(SimEndpoint& endpoint, MnId mn) {
  return await_reconnection(endpoint, *this, mn);
}

Task<Result<void>> SteppedEngine::await_reconnection(SimEndpoint& endpoint, SteppedEngine& engine,
                                                     MnId mn) {
  co_await Reconnection{engine, endpoint.id()};
  if (engine.is_revoked(endpoint.id(), mn)) co_return Failure{Errc::evicted};
  if (engine.is_broken(endpoint.id(), mn)) {
    engine.reopen(endpoint.id(), mn);
    engine.reopened(engine.lanes_[endpoint.id().value]);
  }
  engine.note(endpoint.id(), endpoint.incarnation(mn));
  co_return Result<void>{};
}

void SteppedEngine::reopened(Lane& lane) {
  for (Flight* flight : lane.flights) {
    flight->severed = true;
    if (flight->taken < flight->count && is_lost(*flight)) flight->taken = flight->count;
  }
  shed_the_told(lane);
}

}  // namespace declock::sim
