#include "explore/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/mix.h"
#include "locks/cql_family.h"

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
  end_all();
}

// Nobody says anything to anybody any more.
void World::end_all() {
  for (const Party& party : parties_) {
    if (party.dead) continue;
    if (MendingLockClient* mends = mending(party)) mends->stop();
  }
  for (Client& client : clients_) client.task.reset();
}

bool World::nothing_behind() const {
  if (family_->running() > 0) return false;
  return std::all_of(clients_.begin(), clients_.end(), [](const Client& client) {
    const auto* mending = dynamic_cast<const MendingLockClient*>(client.lock.get());
    return client.behind.running() == 0 && (mending == nullptr || mending->running() == 0);
  });
}

void World::leave(Client& client) {
  if (!client.holds) return;  // it was fenced meanwhile, or what it held is gone
  client.holds = false;
  holders_.leave(0, client.held_as);
}

std::uint64_t World::digest() const {
  std::uint64_t d = engine_->digest();
  if (!scenario_.failing()) return d;
  d = mix(d, left_.faults | left_.resets << 8 | left_.breaks << 16 | left_.restarts << 24);
  d = mix(d, left_.losses | left_.repeats << 8);
  d = mix(d, view_.number << 32 | freed_at_);
  for (const Client& client : clients_) d = mix(d, (client.done ? 1 : 0) + (client.holds ? 2 : 0));
  for (const Party& party : parties_) {
    d = mix(d, (party.dead ? 1 : 0) + (party.removed ? 2 : 0) + (party.outside ? 4 : 0));
    d = mix(d, known_[party.index].known().number);
  }
  return d;
}

std::unique_ptr<locks::LockFamily> World::make_family() {
  if (scenario_.family) return scenario_.family();
  const Duration patience = scenario_.failing() ? Duration{1} : cql::Options{}.patience;
  if (scenario_.lock == "cql") {
    const cql::Options options{.release_read = scenario_.release_read,
                               .patience = patience,
                               .rules = scenario_.protocol.rules};
    return std::make_unique<locks::CqlFamily>(static_cast<std::uint32_t>(scenario_.members()),
                                              scenario_.shape(), options, memberships_);
  }
  locks::FamilyConfig config{.lock = scenario_.lock,
                             .cns = static_cast<std::uint32_t>(scenario_.members()),
                             .slots = scenario_.slots,
                             .release_read = scenario_.release_read,
                             .bound = 1,
                             .patience = patience,
                             .rules = scenario_.protocol.rules};
  if (scenario_.failing()) {
    config.join = [this](std::uint32_t cn, std::span<Endpoint* const> endpoints) {
      return hier::stations_sharing(known_[cn], endpoints);
    };
  }
  return locks::make_family(config);
}

void World::build() {
  end_all();
  clients_.clear();
  parties_.clear();
  family_.reset();
  known_.clear();
  memberships_.clear();
  if (scenario_.failing()) {
    const auto members = static_cast<std::uint32_t>(scenario_.members());
    meet(member::FixedMembership{Slot{0}, members, 1}.known().members);
  }
  family_ = make_family();
  engine_ = std::make_unique<sim::SteppedEngine>(family_->stride() / 8 + 1, scenario_.at_once);
  engine_->observe(this);
  if (scenario_.failing()) engine_->count_refetches();
  for (std::uint32_t node = 0; node < scenario_.program.size(); ++node) {
    Party* party = nullptr;
    for (const Operations& operations : scenario_.program[node]) {
      if (party == nullptr || !family_->endpoint_per_worker()) {
        const auto index = static_cast<std::uint32_t>(parties_.size());
        party = &parties_.emplace_back(index, engine_->add_endpoint(engine_->add_worker()));
      }
      auto lock =
          family_->client({node, 0, party->endpoint, std::array<Endpoint*, 1>{&party->endpoint}});
      clients_.emplace_back(*this, static_cast<std::uint32_t>(clients_.size()), *party, operations,
                            std::move(lock));
      party->clients.push_back(&clients_.back());
    }
  }
}

void World::restart() {
  for (Client& client : clients_) {
    client.task.reset();
    client.behind.clear();
  }
  if (!scenario_.at_once && family_->restart()) {
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
  left_ = scenario_.mishaps;
  updates_ = 0;
  violation_.reset();
  for (Client& client : clients_) {
    client.number = 0;
    client.inside = false;
    client.done = false;
    client.holds = false;
  }
  for (Party& party : parties_) {
    party.outside = scenario_.failing() && party.index >= view_.members.size();
    if (!party.outside) begin(party);
  }
}

void World::begin(Party& party) {
  for (Client* client : party.clients) {
    client->task.emplace(client->run());
    client->task->start();
  }
  if (scenario_.failing()) mending(party)->start_patrol();
}

// Clients of a node know each other's state through its local locks. When all of them are between two
// operations and nothing is under way, they know nothing but how far each has come.
void World::between_operations(const Client& client) {
  std::uint64_t progress = 0;
  bool quiet = family_->running() == 0;
  for (const Client* other : client.party.clients) {
    progress = mix(progress, other->number);
    quiet = quiet && !other->inside && other->behind.running() == 0;
  }
  if (quiet && !scenario_.failing()) {
    engine_->forget(client.endpoint().id(), progress);
  } else {
    engine_->note(client.endpoint().id(), client.number);
  }
}

void World::enter(Client& client, Mode mode, const Hold& hold) {
  tell(mode == Mode::exclusive ? "enters exclusive" : "enters shared");
  const bool overtakes = fairness_->granted(client.index).by_queue > 0;
  // Nothing that it does takes effect.
  if ((client.party.removed && scenario_.protocol.fence) || is_void(hold)) return;
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
  // Whoever failed may have left something that nobody needed to mend.
  if (!scenario_.has_queue() || left_.faults < scenario_.mishaps.faults) return;
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
