#include "explore/world.h"

#include <fmt/format.h>

namespace declock::explore {

std::string_view to_string(Violation::Kind kind) {
  switch (kind) {
    case Violation::Kind::mutual_exclusion:
      return "mutual exclusion";
    case Violation::Kind::order:
      return "order";
    case Violation::Kind::left_over:
      return "left-over";
    case Violation::Kind::hang:
      return "hang";
    case Violation::Kind::stuck:
      return "stuck";
  }
  return "?";
}

World::World(const Scenario& scenario)
    : scenario_(scenario),
      shape_(scenario.shape()),
      engine_(shape_.bytes() / 8),
      fairness_(1, scenario.program.size()) {
  engine_.observe(this);
  for (std::uint32_t i = 0; i < scenario_.program.size(); ++i) {
    sim::SimWorker& worker = engine_.add_worker();
    sim::SimEndpoint& endpoint = engine_.add_endpoint(worker);
    const cql::Membership self{.slot = Slot{static_cast<std::uint16_t>(i)}};
    clients_.push_back({*this, i, worker, endpoint,
                        make_cql(scenario_.left_out, endpoint, shape_, self), std::nullopt});
  }
}

World::~World() {
  for (Client& client : clients_) client.task.reset();
}

void World::restart() {
  for (Client& client : clients_) client.task.reset();
  engine_.restart();
  holders_ = audit::Holders{1};
  fairness_ = audit::Fairness{1, clients_.size()};
  unfinished_ = clients_.size();
  violation_.reset();
  for (Client& client : clients_) {
    client.done = false;
    client.task.emplace(client.run());
    client.task->start();
  }
}

Task<void> World::Client::run() {
  std::uint64_t number = 0;
  for (const Mode mode : world.scenario_.program[index]) {
    world.engine_.begin_operation(endpoint.id(), ++number);
    world.fairness_.called(0, index, mode);
    const Result<Hold> hold = co_await lock->acquire(kLock, mode);
    if (!hold) {
      world.report(Violation::Kind::stuck, fmt::format("client {} cannot acquire the lock: {}", index,
                                                       to_string(hold.error())));
      co_return;
    }
    world.enter(index, mode);
    co_await world.engine_.pause(endpoint.id());  // the critical section
    world.holders_.leave(0, mode);
    world.tell("leaves");
    const Result<void> released = co_await lock->release(*hold);
    if (!released) {
      world.report(Violation::Kind::stuck, fmt::format("client {} cannot hand the lock over: {}", index,
                                                       to_string(released.error())));
      co_return;
    }
  }
  world.engine_.begin_operation(endpoint.id(), 0);
  done = true;
  world.unfinished_ -= 1;
  world.tell("is done");
}

void World::enter(std::uint32_t client, Mode mode) {
  tell(mode == Mode::exclusive ? "enters exclusive" : "enters shared");
  if (!holders_.enter(0, mode)) {
    report(Violation::Kind::mutual_exclusion,
           fmt::format("client {} enters while another holds the lock against it", client));
  }
  if (fairness_.granted(client).by_queue > 0) {
    report(Violation::Kind::order,
           fmt::format("client {} enters before a conflicting request that was in the queue first",
                       client));
  }
}

void World::on_effect(EndpointId from, const sim::Flight::Step& step) {
  if (step.purpose == Purpose::acquire && step.kind == OpKind::fetch_add) {
    fairness_.enqueued(from.value);
  }
}

void World::report(Violation::Kind kind, std::string text) {
  if (!violation_) violation_ = Violation{kind, std::move(text)};
}

void World::check_end() {
  const Header header = shape_.header.decode(engine_.memory(MnId{0}).load(0));
  std::uint64_t operations = 0;
  for (const auto& client : scenario_.program) operations += client.size();
  const Header expected{.ticket = Ticket{operations}};
  if (header != expected) {
    report(Violation::Kind::left_over,
           fmt::format("after {} operations the header says ticket {}, qsize {}, wcnt {}", operations,
                       header.ticket.value, header.qsize, header.wcnt));
  }
}

std::string World::unfinished_clients() const {
  std::string names;
  for (const Client& client : clients_) {
    if (!client.done) names += fmt::format("{}client {}", names.empty() ? "" : ", ", client.index);
  }
  return names;
}

}  // namespace declock::explore
