#include "member_net/cluster.h"

#include <algorithm>

namespace declock::member {

ClusterState ClusterState::empty(const ClusterShape& shape) {
  ClusterState state;
  state.shape = shape;
  state.incarnations.resize(shape.members);
  state.freed.resize(shape.members);
  return state;
}

bool ClusterState::is_valid() const {
  const bool shaped = format == kFormat && shape.members >= 1 && shape.members <= kMembersMax &&
                      shape.endpoints >= 1 && shape.endpoints <= kMembersMax &&
                      shape.lease >= milliseconds(10) && shape.lease <= seconds(3600);
  if (!shaped || mns.size() > kMnsMax || incarnations.size() != shape.members ||
      freed.size() != shape.members)
    return false;
  std::uint32_t next = 0;
  for (const MemberEntry& m : members) {
    if (m.slot.value < next || m.slot.value >= shape.members || m.workers.empty() ||
        m.workers.size() > kWorkersMax)
      return false;
    if (m.incarnation.value == 0 || m.incarnation.value > incarnations[m.slot.value]) return false;
    next = m.slot.value + 1u;
  }
  return true;
}

View ClusterState::view() const {
  View view{.number = number, .removals = removals};
  for (const MemberEntry& m : members)
    view.members.push_back({m.slot, m.incarnation, EndpointId{m.slot.value * shape.endpoints}});
  for (const MnEntry& mn : mns) view.mns.push_back(mn.incarnation);
  return view;
}

std::vector<net::PeerAddresses> ClusterState::peers() const {
  std::vector<net::PeerAddresses> peers;
  for (const MemberEntry& m : members) {
    peers.push_back({m.slot, m.incarnation.value, {}});
    for (const WorkerAddress& w : m.workers) peers.back().workers.push_back({w.blob, w.cookie});
  }
  return peers;
}

const MemberEntry* ClusterState::find(Slot slot) const {
  const auto at = std::find_if(members.begin(), members.end(),
                               [&](const MemberEntry& m) { return m.slot == slot; });
  return at == members.end() ? nullptr : &*at;
}

bool ClusterState::has(Slot slot, Incarnation incarnation) const {
  const MemberEntry* found = find(slot);
  return found != nullptr && found->incarnation == incarnation;
}

Result<MemberEntry> ClusterState::join(std::vector<WorkerAddress> workers, std::optional<Slot> wanted,
                                       std::string session, std::uint64_t acknowledged) {
  std::optional<Slot> best;
  auto place = members.begin();
  auto next = members.begin();
  for (std::uint32_t i = 0; i < shape.members; ++i) {
    const Slot slot{static_cast<std::uint16_t>(i)};
    if (next != members.end() && next->slot == slot) {
      ++next;
      continue;
    }
    if ((wanted && *wanted != slot) || freed[i] > acknowledged) continue;
    if (best && freed[best->value] <= freed[i]) continue;
    best = slot;
    place = next;
  }
  if (!best) return Failure{Errc::busy};
  const MemberEntry joined{*best, Incarnation{++incarnations[best->value]}, std::move(workers),
                           std::move(session)};
  members.insert(place, joined);
  number += 1;
  return joined;
}

bool ClusterState::has_free(std::optional<Slot> wanted) const {
  if (!wanted) return members.size() < shape.members;
  return wanted->value < shape.members && find(*wanted) == nullptr;
}

bool ClusterState::remove(Slot slot, Incarnation incarnation, bool counts) {
  const auto gone = std::erase_if(
      members, [&](const MemberEntry& m) { return m.slot == slot && m.incarnation == incarnation; });
  if (gone == 0) return false;
  number += 1;
  freed[slot.value] = number;
  if (counts) removals += 1;
  return true;
}

std::uint32_t ClusterState::mn_comes(std::uint16_t id, const std::string& address) {
  if (id >= mns.size()) mns.resize(id + 1u);
  mn_goes(id);
  if (mns[id].incarnation == 0) mns[id].incarnation = 1;
  mns[id].address = address;
  number += 1;
  return mns[id].incarnation;
}

void ClusterState::mn_goes(std::uint16_t id) {
  if (mns[id].address.empty()) return;
  mns[id].address.clear();
  mns[id].incarnation += 1;  // what was there is void from now on, not only when it comes back
  number += 1;
}

ClusterChange ClusterState::change_from(std::uint64_t from, const std::set<Slot>& slots) const {
  ClusterChange change{shape.id, from, number, removals, {}, mns};
  for (const Slot slot : slots) {
    change.slots.push_back({slot, incarnations[slot.value], freed[slot.value], {}});
    if (const MemberEntry* member = find(slot)) change.slots.back().member.push_back(*member);
  }
  return change;
}

bool ClusterState::apply(const ClusterChange& change) {
  if (change.cluster != shape.id || change.from != number || change.mns.size() > kMnsMax) return false;
  ClusterState next = *this;
  next.number = change.number;
  next.removals = change.removals;
  next.mns = change.mns;
  for (const SlotChange& c : change.slots) {
    if (c.slot.value >= shape.members || c.member.size() > 1) return false;
    next.incarnations[c.slot.value] = c.incarnation;
    next.freed[c.slot.value] = c.freed;
    const auto at = std::find_if(next.members.begin(), next.members.end(),
                                 [&](const MemberEntry& m) { return m.slot.value >= c.slot.value; });
    const auto behind = at != next.members.end() && at->slot == c.slot ? next.members.erase(at) : at;
    next.members.insert(behind, c.member.begin(), c.member.end());
  }
  if (!next.is_valid()) return false;
  *this = std::move(next);
  return true;
}

}  // namespace declock::member
