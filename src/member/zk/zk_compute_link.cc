#include "member_zk/zk_compute_link.h"

#include <fmt/format.h>

#include <algorithm>

namespace declock::member {

ZkComputeLink::ZkComputeLink(wire::Hub& hub, Events& events, const ZkAddress& at,
                             const wire::Secret& secret)
    : events_(events), loop_(hub, at, secret, [this] { return look(); }) {}

template <class Change>
void ZkComputeLink::wish(Change change) {
  {
    const std::lock_guard guard{mutex_};
    change(wishes_);
  }
  loop_.wake();
}

void ZkComputeLink::join(const Join& join) {
  wish([&](Wishes& w) { w.join = join; });
}
void ZkComputeLink::fetch(std::uint64_t ask) {
  wish([&](Wishes& w) { w.asks.insert(ask); });
}
void ZkComputeLink::leave() {
  wish([](Wishes& w) { w.leaving = true; });
}
void ZkComputeLink::give_up() {
  wish([](Wishes& w) { w.given_up = true; });
}

// ---------------------------------------------------------------- on the loop's thread

Duration ZkComputeLink::look() {
  const Wishes wishes = [&] {
    const std::lock_guard guard{mutex_};
    return wishes_;
  }();
  ZkSession& session = loop_.session();
  const Duration idle{lease_.ns / 2};
  if (is_over_ || !wishes.join) return idle;
  if (wishes.given_up) return end(nullptr);
  if (session.is_lost()) {
    if (self_) return end(&Events::on_evicted);
    session.close();
  }
  if (!session.ready(lease_))
    return session.is_unanswered() ? refuse(unanswered(session.address()), false) : idle;

  ZkResult<ZkState> state = read_state(session, !wishes.asks.empty());
  if (state) return self_ ? follow(*state, wishes) : try_joining(*state, *wishes.join);
  const ZkFault fault = state.error();
  if (fault != ZkFault::missing && fault != ZkFault::malformed && fault != ZkFault::forbidden)
    return ZkLoop::kPause;
  // The cluster was taken away, and with it everybody's membership.
  if (self_ && fault != ZkFault::forbidden) return end(&Events::on_evicted);
  return self_ ? idle : refuse(reason(fault, session.address()), fault != ZkFault::missing);
}

Duration ZkComputeLink::try_joining(ZkState& state, const Join& join) {
  ZkSession& session = loop_.session();
  const ClusterShape& shape = state.cluster.shape;
  if (shape.lease != lease_) {
    lease_ = shape.lease;
    return ZkLoop::kAgain;
  }
  if (join.workers.empty() || join.workers.size() > kWorkersMax || join.endpoints > shape.endpoints) {
    return refuse(
        fmt::format(
            "{} workers with {} endpoints: this cluster admits 1 to {} endpoints per compute node; "
            "start it with a larger --endpoints",
            join.workers.size(), join.endpoints, shape.endpoints),
        true);
  }
  const auto is_self = [&](const MemberEntry& m) { return m.session == session.name(); };
  const std::vector<MemberEntry>& members = state.cluster.members;
  // A write of which we do not know what became may have made us a member.
  if (std::none_of(members.begin(), members.end(), is_self)) {
    const ZkResult<void> made = session.create_ephemeral("members/" + session.name(), "");
    if (!made && made.error() != ZkFault::exists) return ZkLoop::kPause;
    const bool any = join.wanted.value == Join::kAnySlot;
    const Result<MemberEntry> joined = state.cluster.join(
        join.workers, any ? std::nullopt : std::optional{join.wanted}, session.name());
    if (!joined) return no_slot(state, join);
    if (to_bytes(state.cluster).size() > ZkSession::kDataMax / 2)
      return refuse(
          "the addresses of all workers are more than ZooKeeper keeps; join with fewer workers", true);
    if (!write_state(session, state)) return ZkLoop::kAgain;
  }
  const MemberEntry& entry = *std::find_if(members.begin(), members.end(), is_self);
  self_ = {entry.slot, entry.incarnation};
  cluster_ = shape.id;
  told_ = state.version;
  loop_.tell([this, self = *self_, cluster = state.cluster] { events_.on_joined(self, cluster); });
  return ZkLoop::kAgain;  // fetches that came too early
}

Duration ZkComputeLink::no_slot(const ZkState& state, const Join& join) {
  const ZkResult<std::set<std::string>> here = loop_.session().children("members");
  if (!here) return ZkLoop::kPause;
  const std::vector<MemberEntry>& members = state.cluster.members;
  if (std::any_of(members.begin(), members.end(),
                  [&](const MemberEntry& m) { return is_dead(m, *here); }))
    return refuse(
        "no member slot is free before a dead compute node has been fenced by every memory node",
        false);
  return refuse(
      join.wanted.value != Join::kAnySlot
          ? fmt::format("member slot {} is taken", join.wanted.value)
          : fmt::format(
                "all {} member slots are taken; wait until one leaves, or start the cluster with a "
                "larger --members",
                state.cluster.shape.members),
      true);
}

Duration ZkComputeLink::follow(ZkState& state, const Wishes& wishes) {
  ClusterState& cluster = state.cluster;
  if (cluster.shape.id != cluster_ || !cluster.has(self_->slot, self_->incarnation))
    return end(has_left_ ? &Events::on_left : &Events::on_evicted);
  if (wishes.leaving) {
    const auto self = std::find_if(cluster.members.begin(), cluster.members.end(),
                                   [&](const MemberEntry& m) { return m.slot == self_->slot; });
    if (!self->session.empty()) {
      self->session.clear();
      if (!write_state(loop_.session(), state)) return ZkLoop::kAgain;
    }
    has_left_ = true;
  }
  if (state.version != told_) loop_.tell([this, cluster] { events_.on_state(0, cluster); });
  told_ = state.version;
  for (const std::uint64_t ask : wishes.asks)
    loop_.tell([this, ask, cluster] { events_.on_state(ask, cluster); });
  const std::lock_guard guard{mutex_};
  for (const std::uint64_t ask : wishes.asks) wishes_.asks.erase(ask);
  return {lease_.ns / 2};
}

Duration ZkComputeLink::refuse(const std::string& why, bool final) {
  if (why != std::exchange(refused_, why))
    loop_.tell([this, why, final] { events_.on_refused(why, final); });
  if (final) return end(nullptr);
  return ZkLoop::kPause;
}

// For good: what comes after, comes as another member.
Duration ZkComputeLink::end(std::function<void(Events&)> last) {
  is_over_ = true;
  loop_.session().close();
  if (last) loop_.tell([this, last] { last(events_); });
  return {lease_.ns / 2};
}

}  // namespace declock::member
