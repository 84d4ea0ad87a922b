#include "member_zk/zk_memory_link.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>

#include "base/futex.h"

namespace declock::member {

ZkMemoryLink::ZkMemoryLink(wire::Hub& hub, Events& events, const ZkAddress& at,
                           const wire::Secret& secret, const ClusterShape& shape, Log log)
    : events_(events),
      log_(std::move(log)),
      shape_(shape),
      loop_(hub, at, secret, [this] { return look(); }) {}

template <class Change>
void ZkMemoryLink::wish(Change change) {
  {
    const std::lock_guard guard{mutex_};
    change(wishes_);
  }
  loop_.wake();
}

void ZkMemoryLink::register_as(std::uint16_t id, const std::string& address,
                               std::uint32_t incarnation) {
  wish([&](Wishes& w) {
    w.registers = true;
    w.id = id;
    w.address = address;
    w.incarnation = incarnation;
  });
}
void ZkMemoryLink::fetch(std::uint64_t ask) {
  wish([&](Wishes& w) { w.asks.insert(ask); });
}
void ZkMemoryLink::fenced(const MemberId& member) {
  wish([&](Wishes& w) { w.confirmed.insert({member, told_incarnation_}); });
}
void ZkMemoryLink::on_tick(Time) {
  {
    const std::lock_guard guard{mutex_};
    if (!std::exchange(wishes_.is_stuck, false)) return;
  }
  loop_.wake();
}

// ---------------------------------------------------------------- on the loop's thread

Duration ZkMemoryLink::look() {
  const Wishes wishes = [&] {
    const std::lock_guard guard{mutex_};
    Wishes now = wishes_;
    wishes_.registers = false;
    return now;
  }();
  if (wishes.registers) {
    id_ = wishes.id;
    address_ = wishes.address;
    incarnation_ = wishes.incarnation;
    has_seat_ = false;
  }
  ZkSession& session = loop_.session();
  const Duration idle{shape_.lease.ns / 2};
  if (is_over_ || address_.empty() || wishes.is_stuck) return idle;
  if (id_ >= kMnsMax) return refuse(fmt::format("--id {}: at most {}", id_, kMnsMax - 1));
  if (session.is_lost()) give_up_session();
  if (!session.ready(shape_.lease)) {
    if (session.is_unanswered() && !std::exchange(complained_, true))
      log(unanswered(session.address()));
    return session.is_unanswered() ? ZkLoop::kPause : idle;
  }
  complained_ = false;

  Seen seen;
  ZkResult<ZkState> state = read_state(session, !wishes.asks.empty());
  if (!state) return on_fault(state.error());
  seen.state = std::move(*state);
  const ClusterShape& shape = seen.state.cluster.shape;
  if (cluster_ != 0 && shape.id != cluster_)
    return refuse("the cluster was made anew; start this memory node again");
  if (!has_seat_ && shape.lease != shape_.lease) {
    shape_.lease = shape.lease;
    return ZkLoop::kAgain;
  }
  if (!see(seen) || !take_seat(seen)) return ZkLoop::kPause;
  if (!take_place(seen) || !confirm_fences(seen, wishes)) return ZkLoop::kAgain;
  if (is_owner_stuck()) {
    give_up_session();
    const std::lock_guard guard{mutex_};
    wishes_.is_stuck = true;
    return idle;
  }
  if (!move_on(seen)) return ZkLoop::kAgain;
  ask_for_fences(seen);
  clean_up(seen);
  answer(seen, wishes);
  return idle;
}

Duration ZkMemoryLink::on_fault(ZkFault fault) {
  ZkSession& session = loop_.session();
  const bool is_new = cluster_ == 0;
  if (fault == ZkFault::missing && is_new) {
    ClusterState first = ClusterState::empty(shape_);
    randombytes_buf(&first.shape.id, sizeof first.shape.id);
    const ZkResult<void> made = make_cluster(session, first);
    if (made || made.error() != ZkFault::forbidden) return ZkLoop::kAgain;
    fault = ZkFault::forbidden;
  }
  if (fault == ZkFault::missing || fault == ZkFault::malformed ||
      (fault == ZkFault::forbidden && is_new))
    return refuse(reason(fault, session.address()));
  return ZkLoop::kPause;
}

// The others may take it out of the state, and count on that: its memory is as good as void.
void ZkMemoryLink::give_up_session() {
  loop_.session().close();
  incarnation_ = 0;
  has_seat_ = false;
}

bool ZkMemoryLink::see(Seen& seen) {
  const auto read = [&](const char* path, Names& names) {
    ZkResult<Names> children = loop_.session().children(path);
    if (children) names = std::move(*children);
    return static_cast<bool>(children);
  };
  return read("members", seen.members) && read("mns", seen.mns) && read("fenced", seen.fenced);
}

// ---------------------------------------------------------------- being part of it

// Nobody else is this memory node as long as it has the seat.
bool ZkMemoryLink::take_seat(Seen& seen) {
  const std::string name = std::to_string(id_);
  has_seat_ = has_seat_ && seen.mns.contains(name);
  if (has_seat_) return true;
  ZkSession& session = loop_.session();
  const ZkResult<void> made = session.create_ephemeral("mns/" + name, address_);
  if (!made && made.error() != ZkFault::exists) return false;
  if (!made) {
    const ZkResult<ZkNode> node = session.get("mns/" + name);
    if (!node) return false;
    if (node->owner != session.id()) {
      // Of a process that is dead, it is gone before this is over.
      const Time now = monotonic_now();
      if (std::exchange(blocked_by_, node->owner) != node->owner) blocked_since_ = now;
      if (now - blocked_since_ > session.timeout() * 2)
        (void)refuse(fmt::format("memory node {} is here already, at {}; give this one another --id",
                                 id_, node->data));
      return false;
    }
  }
  has_seat_ = true;
  seen.mns.insert(name);
  return true;
}

// In the state.
bool ZkMemoryLink::take_place(Seen& seen) {
  ClusterState& cluster = seen.state.cluster;
  const bool is_there = incarnation_ != 0 && id_ < cluster.mns.size() &&
                        cluster.mns[id_].incarnation == incarnation_ &&
                        !cluster.mns[id_].address.empty();
  if (!is_there) {
    // If it is not known what becomes of the write, this is found there next time: nobody else writes an address for
    // who has the seat.
    incarnation_ = cluster.mn_comes(id_, address_);
    if (!write_state(loop_.session(), seen.state)) return false;
  }
  if (registered_ == incarnation_) return true;
  registered_ = incarnation_;
  cluster_ = cluster.shape.id;
  told_ = seen.state.version;
  asked_.clear();
  loop_.tell([this, incarnation = incarnation_, cluster] {
    told_incarnation_ = incarnation;
    events_.on_registered(incarnation, cluster);
  });
  return true;
}

// ---------------------------------------------------------------- fencing and removing

bool ZkMemoryLink::confirm_fences(const Seen& seen, const Wishes& wishes) {
  for (const Confirmed& confirmed : wishes.confirmed) {
    const auto& [member, incarnation] = confirmed;
    if (incarnation == incarnation_ && seen.state.cluster.has(member.slot, member.incarnation)) {
      const ZkResult<void> made =
          loop_.session().create("fenced/" + fence_name(member, id_, incarnation), "");
      if (!made && made.error() != ZkFault::exists) return false;
      asked_[member].reset();
    }
    const std::lock_guard guard{mutex_};
    wishes_.confirmed.erase(confirmed);
  }
  return true;
}

// It has a lease for it, as everybody has for everything: nobody is to wait for its fences any longer.
bool ZkMemoryLink::is_owner_stuck() const {
  return std::any_of(asked_.begin(), asked_.end(), [&](const auto& asked) {
    return asked.second && monotonic_now() - *asked.second > shape_.lease;
  });
}

bool ZkMemoryLink::is_fenced_by_all(const ClusterState& cluster, const MemberId& member,
                                    const Names& fenced) const {
  for (std::uint16_t mn = 0; mn < cluster.mns.size(); ++mn) {
    const MnEntry& entry = cluster.mns[mn];
    if (!entry.address.empty() && !fenced.contains(fence_name(member, mn, entry.incarnation)))
      return false;
  }
  return true;
}

// Takes out of the state who is not to be there any more.
bool ZkMemoryLink::move_on(Seen& seen) {
  ClusterState& cluster = seen.state.cluster;
  std::vector<std::string> lines;
  for (std::uint16_t mn = 0; mn < cluster.mns.size(); ++mn) {
    if (cluster.mns[mn].address.empty() || seen.mns.contains(std::to_string(mn))) continue;
    cluster.mn_goes(mn);
    lines.push_back(fmt::format("memory node {} is gone: its memory is void", mn));
  }
  const std::vector<MemberEntry> members = cluster.members;
  for (const MemberEntry& m : members) {
    if (!is_dead(m, seen.members) || !is_fenced_by_all(cluster, {m.slot, m.incarnation}, seen.fenced))
      continue;
    const bool counts = !m.session.empty();
    cluster.remove(m.slot, m.incarnation, counts);
    lines.push_back(fmt::format(
        "removed the compute node in slot {} (incarnation {}), which {}: every memory node has "
        "fenced it",
        m.slot.value, m.incarnation.value, counts ? "was silent" : "has left"));
  }
  if (lines.empty()) return true;
  if (!write_state(loop_.session(), seen.state)) return false;
  for (const std::string& line : lines) log(line);
  return true;
}

void ZkMemoryLink::ask_for_fences(const Seen& seen) {
  const ClusterState& cluster = seen.state.cluster;
  std::erase_if(asked_, [&](const auto& m) { return !cluster.has(m.first.slot, m.first.incarnation); });
  for (const MemberEntry& m : cluster.members) {
    const MemberId member{m.slot, m.incarnation};
    if (is_dead(m, seen.members) && asked_.try_emplace(member, monotonic_now()).second)
      loop_.tell([this, member] { events_.on_fence(member); });
  }
}

// What was said about members that are gone.
void ZkMemoryLink::clean_up(const Seen& seen) {
  const ClusterState& cluster = seen.state.cluster;
  for (const std::string& name : seen.fenced) {
    const std::optional<MemberId> member = fenced_member(name);
    // One that joined after the state was read is not in it either.
    const bool is_gone = member && member->slot.value < cluster.incarnations.size() &&
                         member->incarnation.value <= cluster.incarnations[member->slot.value] &&
                         !cluster.has(member->slot, member->incarnation);
    if (is_gone) (void)loop_.session().remove("fenced/" + name);
  }
}

// ---------------------------------------------------------------- telling

void ZkMemoryLink::answer(const Seen& seen, const Wishes& wishes) {
  const ClusterState& cluster = seen.state.cluster;
  if (told_ != seen.state.version) loop_.tell([this, cluster] { events_.on_state(0, cluster); });
  told_ = seen.state.version;
  for (const std::uint64_t ask : wishes.asks)
    loop_.tell([this, ask, cluster] { events_.on_state(ask, cluster); });
  const std::lock_guard guard{mutex_};
  for (const std::uint64_t ask : wishes.asks) wishes_.asks.erase(ask);
}

Duration ZkMemoryLink::refuse(const std::string& why) {
  is_over_ = true;
  loop_.session().close();
  loop_.tell([this, why] { events_.on_refused(why); });
  return {shape_.lease.ns / 2};
}

void ZkMemoryLink::log(const std::string& line) {
  loop_.tell([this, line] { log_(line); });
}

}  // namespace declock::member
