#include "member_sim/sim_cluster.h"

#include <algorithm>

namespace declock::member {

SimMembership::~SimMembership() {
  std::erase(cluster_.members_, this);
}

void SimMembership::hear(const View& view) {
  if (view.number <= known_.number) return;
  known_ = view;
  evicted_ = evicted_ || !view.has(self_);
  const std::vector<ViewListener*> told = listeners_;
  for (ViewListener* listener : told) listener->on_view(known_);
}

namespace {

// There and back, with a look at the coordinator's view in the middle.
Task<Result<void>> fetch_view(Worker& worker, SimMembership& member, SimCluster& cluster) {
  co_await worker.sleep_for(SimCluster::kHop);
  while (cluster.is_coordinator_away() || cluster.engine().is_cut(member.party(), sim::kCoordinator)) {
    co_await worker.sleep_for(microseconds(100));
  }
  const View view = cluster.view();
  co_await worker.sleep_for(SimCluster::kHop);
  member.hear(view);
  if (member.evicted()) co_return Failure{Errc::evicted};
  co_return Result<void>{};
}

}  // namespace

Task<Result<void>> SimMembership::refresh(Worker& worker) {
  return fetch_view(worker, *this, cluster_);
}

Task<void> SimMembership::keep_renewing() {
  const Duration pause{cluster_.config_.lease.ns / 4};
  while (!evicted_) {
    co_await worker_.sleep_for(pause);
    if (!cluster_.reaches(*this)) continue;
    const Time asked = worker_.now();
    co_await worker_.sleep_for(SimCluster::kHop);
    if (cluster_.is_coordinator_away()) continue;
    const bool renewed = cluster_.coordinator_.renew(self_, cluster_.clock());
    const View view = cluster_.view();
    co_await worker_.sleep_for(SimCluster::kHop);
    hear(view);
    if (renewed) certain_until_ = asked + cluster_.config_.lease;
    if (renewed || evicted_) continue;
    evicted_ = true;  // suspected: about to be fenced, with no way back
    const std::vector<ViewListener*> told = listeners_;
    for (ViewListener* listener : told) listener->on_view(known_);
  }
}

SimCluster::SimCluster(sim::TimedEngine& engine, const Config& config)
    : engine_(engine),
      config_(config),
      coordinator_(config.slots, config.mns, config.lease),
      worker_(engine.add_worker({}, sim::kCoordinator)),
      behind_(worker_.frames()) {
  behind_.spawn(watch());
}

std::unique_ptr<SimMembership> SimCluster::join(EndpointId first_endpoint, sim::SimWorker& worker) {
  if (is_away_) return nullptr;
  const Result<Member> member = coordinator_.join(first_endpoint, clock());
  if (!member) return nullptr;
  auto membership = std::make_unique<SimMembership>(*this, *member, coordinator_.view(), worker);
  members_.push_back(membership.get());
  membership->renewing_.spawn(membership->keep_renewing());
  if (!config_.view_before_access) {
    hidden_.push_back(*member);
    behind_.spawn(reveal(*member));
  }
  behind_.spawn(tell_everybody());
  return membership;
}

View SimCluster::view() const {
  View view = coordinator_.view();
  for (const Member& member : hidden_) std::erase(view.members, member);
  return view;
}

Task<void> SimCluster::reveal(Member member) {
  co_await worker_.sleep_for(config_.lease);
  if (is_away_) co_await until_back();
  std::erase(hidden_, member);
  coordinator_.changed();
  co_await tell_everybody();
}

Task<void> SimCluster::tell_everybody() {
  co_await worker_.sleep_for(kHop);
  const std::vector<SimMembership*> told = members_;
  for (SimMembership* member : told) {
    const bool still_there = std::find(members_.begin(), members_.end(), member) != members_.end();
    if (still_there && reaches(*member) && !engine_.is_paused(member->party())) member->hear(view());
  }
}

Task<void> SimCluster::watch() {
  for (;;) {
    co_await worker_.sleep_for(Duration{config_.lease.ns / 8});
    if (is_away_) continue;
    for (const Member& suspect : coordinator_.suspects(clock())) {
      if (on_suspected) on_suspected(suspect);
      behind_.spawn(evict(suspect, true));
    }
  }
}

void SimCluster::leave(const Member& member, bool counts) {
  CHECK(!is_away_);
  if (coordinator_.end_lease(member, clock())) behind_.spawn(evict(member, counts));
}

void SimCluster::restart_coordinator(Duration after) {
  if (is_away_) return;
  away_since_ = clock();
  is_away_ = true;
  behind_.spawn(come_back(after));
}

Task<void> SimCluster::come_back(Duration after) {
  co_await worker_.sleep_for(after);
  is_away_ = false;
  if (config_.pardon_lateness) pardoned_ = pardoned_ + after;
  co_await tell_everybody();
}

Task<void> SimCluster::until_back() {
  while (is_away_) co_await worker_.sleep_for(microseconds(100));
}

Task<void> SimCluster::evict(Member member, bool counts) {
  for (std::uint16_t mn = 0; mn < config_.mns && config_.fence; ++mn) {
    if (is_away_) co_await until_back();
    co_await worker_.sleep_for(kHop);
    for (std::uint32_t w = 0; w < config_.workers; ++w) {
      engine_.revoke(EndpointId{member.first_endpoint.value + w}, MnId{mn});
    }
    co_await worker_.sleep_for(kHop);
  }
  if (is_away_) co_await until_back();
  if (on_fenced && counts) on_fenced(member);
  coordinator_.remove(member, counts);
  co_await tell_everybody();
}

void SimCluster::restart(MnId mn, Duration after) {
  engine_.stop(mn);
  if (on_lost) on_lost(mn);
  behind_.spawn(start_later(mn, after));
}

Task<void> SimCluster::start_later(MnId mn, Duration after) {
  co_await worker_.sleep_for(after);
  if (is_away_) co_await until_back();
  engine_.start_again(mn);
  if (on_start) on_start(mn);
  coordinator_.restarted(mn);
  co_await tell_everybody();
}

}  // namespace declock::member
