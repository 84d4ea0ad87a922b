#include "explore/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

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
  for (Client& client : clients_) {
    if (auto* mending = dynamic_cast<MendingLockClient*>(client.lock.get())) mending->stop();
    client.task.reset();
  }
}

void World::Known::hear(const member::View& view) {
  if (view.number <= view_.number) return;
  view_ = view;
  world_.engine_->note(self_.first_endpoint, view.number);
  const std::vector<member::ViewListener*> listening = listeners_;
  for (member::ViewListener* listener : listening) listener->on_view(view_);
}

Task<Result<void>> World::ask_coordinator(Worker&, World& world, std::uint32_t index) {
  Client& client = world.clients_[index];
  const auto question = static_cast<std::uint32_t>(std::countr_one(client.asking));
  client.asking |= 1u << question;
  co_await world.engine_->pause(static_cast<std::uint8_t>(kQuestion + index + kClientsMax * question),
                                client.endpoint.id());
  client.asking &= ~(1u << question);
  world.known_[index].hear(world.view_);
  if (world.known_[index].evicted()) co_return Failure{Errc::evicted};
  co_return Result<void>{};
}

bool World::nothing_behind() const {
  if (family_->running() > 0) return false;
  return std::all_of(clients_.begin(), clients_.end(), [](const Client& client) {
    const auto* mending = dynamic_cast<const MendingLockClient*>(client.lock.get());
    return client.behind.running() == 0 && (mending == nullptr || mending->running() == 0);
  });
}

void World::enabled(std::vector<sim::Choice>& out) const {
  using Kind = sim::Choice::Kind;
  engine_->enabled(out);
  if (!scenario_.failing()) return;
  for (const Client& client : clients_) {
    const auto who = static_cast<std::uint8_t>(client.index);
    if (client.outside) {
      out.push_back({Kind::join, who});
      continue;
    }
    const bool may_fail = faults_left_ > 0 && !client.dead && !client.removed && !client.done;
    if (may_fail) out.push_back({Kind::crash, who});
    if (!client.removed && (client.dead || may_fail)) out.push_back({Kind::remove, who});
    if (client.dead || client.removed) continue;
    if (known_[client.index].known().number < view_.number) out.push_back({Kind::tell, who});
    if (resets_left_ > 0 && !client.done) out.push_back({Kind::reset, who});
  }
  // A zombie hears of it, some time.
  for (const Client& client : clients_) {
    const auto who = static_cast<std::uint8_t>(client.index);
    if (client.removed && !client.dead && !known_[client.index].evicted()) {
      out.push_back({Kind::tell, who});
    }
  }
}

void World::perform(sim::Choice choice) {
  using Kind = sim::Choice::Kind;
  if (choice.kind < Kind::crash) return engine_->perform(choice);
  Client& client = clients_[choice.who];
  switch (choice.kind) {
    case Kind::crash:
      return crash(client);
    case Kind::remove:
      return remove(client);
    case Kind::join:
      return join(client);
    case Kind::tell:
      known_[client.index].hear(view_);
      return engine_->run_what_is_ready();
    default:
      resets_left_ -= 1;
      engine_->note(client.endpoint.id(), ~std::uint64_t{0});
      return dynamic_cast<MendingLockClient&>(*client.lock).reset_for_nothing(kLock);
  }
}

void World::crash(Client& client) {
  faults_left_ -= 1;
  client.dead = true;
  if (!client.done) unfinished_ -= 1;
  dynamic_cast<MendingLockClient&>(*client.lock).stop();
  client.task.reset();
  client.behind.clear();
  client.lock.reset();
  engine_->forget_completions(client.endpoint.id());
}

// Fenced first: nothing that it has sent or sends takes effect any more.
void World::remove(Client& client) {
  if (!client.dead) {
    faults_left_ -= 1;
    if (!client.done) unfinished_ -= 1;
  }
  client.removed = true;
  if (scenario_.fence) {
    engine_->revoke(client.endpoint.id(), MnId{0});
    if (client.holds) leave(client, client.held_as);
  }
  std::erase_if(view_.members, [&](const member::Member& m) { return m.slot.value == client.index; });
  view_.number += 1;
  view_.removals += 1;
}

void World::leave(Client& client, Mode mode) {
  if (!client.holds) return;  // it was fenced meanwhile
  client.holds = false;
  holders_.leave(0, mode);
}

std::uint64_t World::digest() const {
  std::uint64_t d = engine_->digest();
  if (!scenario_.failing()) return d;
  d = mix(d, faults_left_ << 8 | resets_left_);
  d = mix(d, view_.number);
  for (const Client& client : clients_) {
    d = mix(d, (client.dead ? 1 : 0) + (client.removed ? 2 : 0) + (client.done ? 4 : 0) +
                   (client.outside ? 8 : 0));
    d = mix(d, known_[client.index].known().number);
  }
  return d;
}

void World::build() {
  for (Client& client : clients_) {
    if (auto* mending = dynamic_cast<MendingLockClient*>(client.lock.get())) mending->stop();
    client.task.reset();
  }
  clients_.clear();
  family_.reset();
  known_.clear();
  memberships_.clear();
  if (scenario_.failing()) {
    const auto members = static_cast<std::uint32_t>(scenario_.members());
    const member::View all = member::FixedMembership{Slot{0}, members, 1}.known();
    view_ = all;
    view_.number = 1;
    view_.members.resize(members - std::min(scenario_.joins, members));
    for (std::uint32_t i = 0; i < members; ++i) {
      memberships_.push_back(&known_.emplace_back(*this, i, all.members[i], view_));
    }
  }
  if (scenario_.family) {
    family_ = scenario_.family();
  } else if (scenario_.lock == "cql") {
    const Duration patience = scenario_.failing() ? Duration{1} : cql::Options{}.patience;
    family_ = make_cql_family(scenario_.left_out, static_cast<std::uint32_t>(scenario_.members()),
                              scenario_.shape(), {scenario_.release_read, patience}, memberships_);
  } else {
    family_ = locks::make_family({.lock = scenario_.lock,
                                  .cns = static_cast<std::uint32_t>(scenario_.members()),
                                  .slots = scenario_.slots,
                                  .release_read = scenario_.release_read,
                                  .bound = 1});
  }
  engine_ = std::make_unique<sim::SteppedEngine>(family_->stride() / 8 + 1);
  engine_->observe(this);
  if (scenario_.failing()) engine_->count_refetches();
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
  faults_left_ = scenario_.faults;
  resets_left_ = scenario_.resets;
  updates_ = 0;
  violation_.reset();
  for (Client& client : clients_) {
    client.number = 0;
    client.inside = false;
    client.done = false;
  }
  for (Client& client : clients_) {
    client.outside = scenario_.failing() && client.index >= view_.members.size();
    if (!client.outside) begin(client);
  }
}

void World::begin(Client& client) {
  client.task.emplace(client.run());
  client.task->start();
  if (scenario_.failing()) dynamic_cast<MendingLockClient&>(*client.lock).start_patrol();
}

// In the view, and then it has access (H30).
void World::join(Client& client) {
  client.outside = false;
  view_.members.push_back(known_[client.index].self());
  view_.number += 1;
  known_[client.index].hear(view_);
  begin(client);
}

Task<void> World::Client::run() {
  for (const Operation& operation : operations) {
    number += 1;
    world.between_operations(*this);
    inside = true;
    const Result<void> finished = co_await operate(operation);
    inside = false;
    if (!finished && removed) co_return;  // it was told so
    if (!finished) {
      world.report(Violation::Kind::stuck,
                   fmt::format("client {} gives up: {}", index, to_string(finished.error())));
      co_return;
    }
  }
  number = 0;
  world.between_operations(*this);
  done = true;
  if (!removed) world.unfinished_ -= 1;
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
  if (quiet && !scenario_.failing()) {
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
  world.enter(*this, mode);
  if (!hold->object_read) value = world.engine_->memory(MnId{0}).load(world.object().offset);
  if (world.scenario_.piggyback && value != world.updates_) {
    world.report(Violation::Kind::stale_read,
                 fmt::format("client {} reads {} after {} updates", index, value, world.updates_));
  }
  co_await world.engine_->pause(static_cast<std::uint8_t>(index),
                                endpoint.id());  // the critical section
  world.leave(*this, mode);
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

void World::enter(Client& client, Mode mode) {
  tell(mode == Mode::exclusive ? "enters exclusive" : "enters shared");
  const bool overtakes = fairness_->granted(client.index).by_queue > 0;
  if (client.removed && scenario_.fence) return;  // nothing that it does takes effect
  client.holds = true;
  client.held_as = mode;
  if (!holders_.enter(0, mode)) {
    report(Violation::Kind::mutual_exclusion,
           fmt::format("client {} enters while another holds the lock against it", client.index));
  }
  // Only the flat queue promises the order of its fetch-and-adds, and no reset does.
  if (overtakes && scenario_.lock == "cql" && !scenario_.failing()) {
    report(Violation::Kind::order,
           fmt::format("client {} enters before a conflicting request that was in the queue first",
                       client.index));
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
  // Whoever failed may have left something that nobody needed to mend.
  if (scenario_.failing() && view_.removals + faults_left_ < scenario_.faults) return;
  if (view_.removals > 0) return;
  const Header header = scenario_.shape().header.decode(engine_->memory(MnId{0}).load(0));
  std::uint64_t tickets = 0;  // a ticket per operation, where each client takes its own
  for (const Client& client : clients_) tickets += client.operations.size();
  if (scenario_.hierarchical() || scenario_.failing()) tickets = header.ticket.value;
  if (header ==
      Header{.ticket = Ticket{tickets}, .epoch = scenario_.failing() ? header.epoch : Epoch{}})
    return;
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
