// What happens around the network: members that fail and join, connections that break, a memory node that restarts; and
// what the members hear of it.
#include <algorithm>
#include <bit>

#include "explore/world.h"

namespace declock::explore {

bool World::Party::is_done() const {
  return std::all_of(clients.begin(), clients.end(), [](const Client* client) { return client->done; });
}

void World::Known::hear(const member::View& view) {
  if (view.number <= view_.number) return;
  view_ = view;
  world_.engine_->note(self_.first_endpoint, view.number);
  const std::vector<member::ViewListener*> listening = listeners_;
  for (member::ViewListener* listener : listening) listener->on_view(view_);
}

Task<Result<void>> World::ask_coordinator(Worker&, World& world, std::uint32_t index) {
  Party& party = world.parties_[index];
  const auto question = static_cast<std::uint32_t>(std::countr_one(party.asking));
  party.asking |= 1u << question;
  co_await world.engine_->pause(static_cast<std::uint8_t>(kQuestion + index + kClientsMax * question),
                                party.endpoint.id());
  party.asking &= ~(1u << question);
  world.known_[index].hear(world.view_);
  if (world.known_[index].evicted()) co_return Failure{Errc::evicted};
  co_return Result<void>{};
}

// All but those who join later are members, and know each other.
void World::meet(std::vector<member::Member> all) {
  const std::size_t first = all.size() - scenario_.heirs;  // of the heirs
  for (std::size_t i = first; i < all.size(); ++i) {
    all[i].slot = all[i - 1].slot;
    all[i].incarnation = member::Incarnation{all[i - 1].incarnation.value + 1};
  }
  view_ = {.number = 1, .members = all, .mns = {1}};
  view_.members.resize(first - scenario_.joins);
  freed_at_ = 0;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    memberships_.push_back(&known_.emplace_back(*this, i, all[i], view_));
  }
}

MendingLockClient* World::mending(const Party& party) const {
  if (MendingLockClient* all = family_->mending(party.index)) return all;
  return dynamic_cast<MendingLockClient*>(party.clients[0]->lock.get());
}

bool World::is_mishap(const sim::Choice& choice) const {
  using Kind = sim::Choice::Kind;
  switch (choice.kind) {
    case Kind::crash:
    case Kind::reset:
    case Kind::sever:
    case Kind::restart:
    case Kind::lose:
    case Kind::repeat:
      return true;
    case Kind::remove:
      return !parties_[choice.who].dead;
    default:
      return false;
  }
}

void World::enabled(std::vector<sim::Choice>& out) const {
  engine_->enabled(out);
  if (!scenario_.failing()) return;
  offer_for_letters(out);
  for (const Party& party : parties_) offer(party, out);
  if (left_.restarts > 0 && !finished()) out.push_back({sim::Choice::Kind::restart});
}

void World::offer_for_letters(std::vector<sim::Choice>& out) const {
  using Kind = sim::Choice::Kind;
  for (std::size_t i = 0, end = out.size(); i < end; ++i) {
    const sim::Choice choice = out[i];
    if (choice.kind != Kind::deliver || choice.variant > 0 || finished()) continue;
    if (left_.losses > 0) out.push_back({Kind::lose, choice.who, choice.to});
    if (left_.repeats > 0) out.push_back({Kind::repeat, choice.who, choice.to});
  }
}

void World::offer(const Party& party, std::vector<sim::Choice>& out) const {
  using Kind = sim::Choice::Kind;
  const auto who = static_cast<std::uint8_t>(party.index);
  if (party.outside) {
    if (may_join(party)) out.push_back({Kind::join, who});
    return;
  }
  if (may_leave(party)) out.push_back({Kind::leave, who});
  const bool done = party.is_done();
  const bool may_fail = left_.faults > 0 && !party.dead && !party.removed && !done;
  if (may_fail) out.push_back({Kind::crash, who});
  if (!party.removed && (party.dead || may_fail)) out.push_back({Kind::remove, who});
  if (party.dead) return;
  const Known& known = known_[party.index];
  // A zombie hears of it, some time.
  const bool behind = party.removed ? !known.evicted() : known.known().number < view_.number;
  if (behind) out.push_back({Kind::tell, who});
  if (party.removed) return;
  if (left_.resets > 0 && !done) out.push_back({Kind::reset, who});
  if (left_.breaks > 0 && engine_->awaits_completion(party.endpoint.id())) {
    out.push_back({Kind::sever, who});
  }
}

void World::perform(sim::Choice choice) {
  using Kind = sim::Choice::Kind;
  if (choice.kind < Kind::crash) return engine_->perform(choice);
  Party& party = parties_[choice.who];
  switch (choice.kind) {
    case Kind::crash:
      return crash(party);
    case Kind::remove:
      return remove(party);
    case Kind::join:
      return join(party);
    case Kind::leave:
      return depart(party);
    case Kind::tell:
      known_[party.index].hear(view_);
      return engine_->run_what_is_ready();
    case Kind::sever:
      left_.breaks -= 1;
      return engine_->sever(party.endpoint.id());
    case Kind::restart:
      return restart_memory();
    case Kind::lose:
      left_.losses -= 1;
      return engine_->lose(choice);
    case Kind::repeat:
      left_.repeats -= 1;
      return engine_->repeat(choice);
    default:
      left_.resets -= 1;
      engine_->note(party.endpoint.id(), ~std::uint64_t{0});
      return mending(party)->reset_for_nothing(kLock);
  }
}

// An heir waits until its slot is free, and until everybody knows that.
bool World::may_join(const Party& party) const {
  if (party.index + scenario_.heirs < parties_.size()) return true;
  if (!parties_[party.index - 1].removed) return false;
  if (!scenario_.protocol.acknowledged_slots) return true;
  return std::all_of(parties_.begin(), parties_.end(), [&](const Party& other) {
    const Known& known = known_[other.index];
    return !view_.has(known.self()) || known.known().number >= freed_at_;
  });
}

// Only to make room for its heir.
bool World::may_leave(const Party& party) const {
  const std::uint32_t heir = party.index + 1;
  if (heir >= parties_.size() || heir + scenario_.heirs < parties_.size()) return false;
  return !party.dead && !party.removed && party.is_done() && mending(party)->running() == 0;
}

void World::depart(Party& party) {
  end(party);
  party.removed = true;
  std::erase(view_.members, known_[party.index].self());
  view_.number += 1;
  freed_at_ = view_.number;
}

// In the view, and then it has access (H30).
void World::join(Party& party) {
  party.outside = false;
  view_.members.push_back(known_[party.index].self());
  view_.number += 1;
  known_[party.index].hear(view_);
  begin(party);
}

// Nobody waits for the rest of its program.
void World::no_longer_needed(const Party& party) {
  for (const Client* client : party.clients) unfinished_ -= client->done ? 0 : 1;
}

void World::crash(Party& party) {
  left_.faults -= 1;
  no_longer_needed(party);
  end(party);
}

void World::end(Party& party) {
  party.dead = true;
  mending(party)->stop();
  for (Client* client : party.clients) {
    client->task.reset();
    client->behind.clear();
    client->lock.reset();
  }
  if (scenario_.hierarchical()) family_->kill(party.index);
  engine_->forget_completions(party.endpoint.id());
}

// Fenced first: nothing that it has sent or sends takes effect any more.
void World::remove(Party& party) {
  if (!party.dead) {
    left_.faults -= 1;
    no_longer_needed(party);
  }
  party.removed = true;
  if (scenario_.protocol.fence) {
    engine_->revoke(party.endpoint.id(), MnId{0});
    for (Client* client : party.clients) leave(*client);
  }
  std::erase(view_.members, known_[party.index].self());
  view_.number += 1;
  view_.removals += 1;
  freed_at_ = view_.number;
}

// Every lock is free, and every hold void.
void World::restart_memory() {
  left_.restarts -= 1;
  for (Client& client : clients_) leave(client);
  engine_->restart_memory();
  view_.mns[0] += 1;
  view_.number += 1;
}

}  // namespace declock::explore
