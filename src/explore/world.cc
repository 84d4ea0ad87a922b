#include "explore/world.h"

#include <fmt/format.h>

#include <array>

#include "base/mix.h"

namespace declock::explore {

std::string_view to_string(Violation::Kind kind) {
  switch (kind) {
    case Violation::Kind::mutual_exclusion:
      return "mutual exclusion";
    case Violation::Kind::order:
      return "order";
    case Violation::Kind::stale_read:
      return "stale read";
    case Violation::Kind::left_over:
      return "left-over";
    case Violation::Kind::hang:
      return "hang";
    case Violation::Kind::stuck:
      return "stuck";
  }
  return "?";
}

World::World(const Scenario& scenario) : scenario_(scenario) {
  build();
}

World::~World() {
  for (Client& client : clients_) client.task.reset();
}

void World::build() {
  clients_.clear();
  family_.reset();
  if (scenario_.family) {
    family_ = scenario_.family();
  } else if (scenario_.lock == "cql") {
    family_ = make_cql_family(scenario_.left_out, static_cast<std::uint32_t>(scenario_.members()),
                              scenario_.shape(), {.release_read = scenario_.release_read});
  } else {
    family_ = locks::make_family({.lock = scenario_.lock,
                                  .cns = static_cast<std::uint32_t>(scenario_.members()),
                                  .slots = scenario_.slots,
                                  .release_read = scenario_.release_read,
                                  .bound = 1});
  }
  engine_ = std::make_unique<sim::SteppedEngine>(family_->stride() / 8 + 1);
  engine_->observe(this);
  std::uint32_t index = 0;
  for (std::uint32_t node = 0; node < scenario_.program.size(); ++node) {
    sim::SimEndpoint* shared = nullptr;
    for (const Operations& operations : scenario_.program[node]) {
      if (shared == nullptr || !family_->endpoint_per_worker()) {
        shared = &engine_->add_endpoint(engine_->add_worker());
      }
      clients_.emplace_back(*this, index++, node, operations, *shared,
                            family_->client({node, 0, *shared, std::array<Endpoint*, 1>{shared}}));
    }
  }
}

void World::restart() {
  for (Client& client : clients_) {
    client.task.reset();
    client.behind.clear();
  }
  if (family_->restart()) {
    engine_->restart();
  } else {  // it is in the middle of something
    const auto posted = std::move(engine_->posted);
    const auto sent = std::move(engine_->sent);
    build();
    engine_->posted = posted;
    engine_->sent = sent;
  }
  holders_ = audit::Holders{1};
  fairness_.emplace(1, clients_.size());
  unfinished_ = clients_.size();
  updates_ = 0;
  violation_.reset();
  for (Client& client : clients_) {
    client.number = 0;
    client.inside = false;
    client.done = false;
  }
  for (Client& client : clients_) {
    client.task.emplace(client.run());
    client.task->start();
  }
}

Task<void> World::Client::run() {
  for (const Operation& operation : operations) {
    number += 1;
    world.between_operations(*this);
    inside = true;
    const Result<void> finished = co_await operate(operation);
    inside = false;
    if (!finished) {
      world.report(Violation::Kind::stuck,
                   fmt::format("client {} gives up: {}", index, to_string(finished.error())));
      co_return;
    }
  }
  number = 0;
  world.between_operations(*this);
  done = true;
  world.unfinished_ -= 1;
  world.tell("is done");
}

// Clients of a node know each other's state through its local locks. When all of them are between two
// operations and nothing is under way, they know nothing but how far each has come.
void World::between_operations(const Client& client) {
  std::uint64_t progress = 0;
  bool quiet = family_->running() == 0;
  for (const Client& other : clients_) {
    if (&other.endpoint != &client.endpoint) continue;
    progress = mix(progress, other.number);
    quiet = quiet && !other.inside && other.behind.running() == 0;
  }
  if (quiet) {
    engine_->forget(client.endpoint.id(), progress);
  } else {
    engine_->note(client.endpoint.id(), client.number);
  }
}

Task<Result<Hold>> World::Client::acquire(Operation operation, Op* object) {
  using Patience = Operation::Patience;
  if (operation.patience == Patience::waits) return lock->acquire(kLock, operation.mode, object);
  auto& timed = dynamic_cast<TimedLockClient&>(*lock);
  if (operation.patience == Patience::tries) return timed.try_acquire(kLock, operation.mode);
  return acquire_or_cancel(timed, operation.mode);
}

Task<Result<Hold>> World::Client::acquire_or_cancel(TimedLockClient& timed, Mode mode) {
  Task<void> impatience = cancel_some_time(timed);
  impatience.start();
  co_return co_await timed.acquire_until(kLock, mode, endpoint.worker().now() + seconds(1));
}

Task<void> World::Client::cancel_some_time(TimedLockClient& timed) {
  co_await world.engine_->pause(static_cast<std::uint8_t>(index + kImpatience), endpoint.id());
  timed.cancel();
}

Task<Result<void>> World::Client::operate(Operation operation) {
  const Mode mode = operation.mode;
  const bool writes = world.scenario_.piggyback && mode == Mode::exclusive;
  std::uint64_t value = 0;
  Op read = Op::read(world.object(), {&value, 1}, Purpose::data);
  Op write = Op::write(world.object(), {&value, 1}, Purpose::data);

  world.fairness_->called(0, index, mode);
  const Result<Hold> hold = co_await acquire(operation, world.scenario_.piggyback ? &read : nullptr);
  if (!hold && (hold.error() == Errc::busy || hold.error() == Errc::cancelled)) {
    world.fairness_->gave_up(index);
    world.tell(hold.error() == Errc::busy ? "finds it busy" : "gives up waiting");
    co_return Result<void>{};
  }
  if (!hold) co_return Failure{hold.error()};
  world.enter(index, mode);
  if (!hold->object_read) value = world.engine_->memory(MnId{0}).load(world.object().offset);
  if (world.scenario_.piggyback && value != world.updates_) {
    world.report(Violation::Kind::stale_read,
                 fmt::format("client {} reads {} after {} updates", index, value, world.updates_));
  }
  co_await world.engine_->pause(static_cast<std::uint8_t>(index),
                                endpoint.id());  // the critical section
  world.holders_.leave(0, mode);
  world.tell("leaves");
  if (writes) {
    value += 1;
    world.updates_ += 1;
  }
  if (world.scenario_.piggyback && !writes && lock->may_release_behind(mode)) {
    behind.spawn(release_behind(*hold));
    co_return Result<void>{};
  }
  co_return co_await lock->release(*hold, writes ? &write : nullptr);
}

Task<void> World::Client::release_behind(Hold hold) {
  const Result<void> released = co_await lock->release(hold);
  if (!released) {
    world.report(Violation::Kind::stuck, fmt::format("client {} cannot hand the lock over: {}", index,
                                                     to_string(released.error())));
  }
}

void World::enter(std::uint32_t client, Mode mode) {
  tell(mode == Mode::exclusive ? "enters exclusive" : "enters shared");
  if (!holders_.enter(0, mode)) {
    report(Violation::Kind::mutual_exclusion,
           fmt::format("client {} enters while another holds the lock against it", client));
  }
  // Only the flat queue promises the order of its fetch-and-adds.
  if (fairness_->granted(client).by_queue > 0 && scenario_.lock == "cql") {
    report(Violation::Kind::order,
           fmt::format("client {} enters before a conflicting request that was in the queue first",
                       client));
  }
}

void World::on_effect(EndpointId from, const sim::Flight::Step& step) {
  if (scenario_.lock == "cql" && step.purpose == Purpose::acquire && step.kind == OpKind::fetch_add) {
    fairness_->enqueued(from.value);
  }
}

void World::report(Violation::Kind kind, std::string text) {
  if (!violation_) violation_ = Violation{kind, std::move(text)};
}

void World::check_end() {
  const std::uint64_t updates = engine_->memory(MnId{0}).load(object().offset);
  if (scenario_.piggyback && updates != updates_) {
    report(Violation::Kind::stale_read,
           fmt::format("{} of {} updates are lost", updates_ - updates, updates_));
  }
  if (!scenario_.has_queue()) return;
  const Header header = scenario_.shape().header.decode(engine_->memory(MnId{0}).load(0));
  std::uint64_t tickets = 0;  // a ticket per operation, where each client takes its own
  for (const Client& client : clients_) tickets += client.operations.size();
  if (scenario_.hierarchical()) tickets = header.ticket.value;
  if (header == Header{.ticket = Ticket{tickets}}) return;
  report(Violation::Kind::left_over,
         fmt::format("in the end the header says ticket {}, qsize {}, wcnt {}", header.ticket.value,
                     header.qsize, header.wcnt));
}

std::string World::unfinished_clients() const {
  std::string names;
  for (const Client& client : clients_) {
    if (!client.done) names += fmt::format("{}client {}", names.empty() ? "" : ", ", client.index);
  }
  return names;
}

}  // namespace declock::explore
