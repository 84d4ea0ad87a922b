// What a cluster keeps in ZooKeeper, below /declock/NAME. Strangers can neither read nor write it.
//
//   state               the ClusterState. Everybody changes it, and only if it is still the version that was read.
//   members/SESSION     ephemeral, one per compute node. It is there before the node is in the state, and its name is
//                       used once: who is in the state and not here is dead, and stays so.
//   mns/ID              ephemeral, one per memory node: its address. It is there before the node is in the state.
//   fenced/S.I-M.J      memory node M, as incarnation J, has fenced the member in slot S, incarnation I. A memory node
//                       with fresh memory may have given access again: what it said as another incarnation is void.
//   barrier             written before a read that must not be older than its call: the servers agree on every write,
//                       while a `sync` is answered also by a leader that has been replaced and does not know it yet.
//
// A member whose `session` in the state is empty leaves by itself.
#pragma once

#include "member_net/cluster.h"
#include "member_net/messages.h"
#include "member_zk/zk_session.h"

namespace declock::member {

struct ZkState {
  ClusterState cluster;
  std::int32_t version = 0;
};

// `is_current`: as it is after the call, not as the server that happens to answer knows it.
ZkResult<ZkState> read_state(ZkSession& session, bool is_current);
// In place of that version; then it is of the next one.
ZkResult<void> write_state(ZkSession& session, ZkState& state);
// As the first. ZkFault::exists: somebody else was faster.
ZkResult<void> make_cluster(ZkSession& session, const ClusterState& first);

// `here`: what is in members/, read after the state.
bool is_dead(const MemberEntry& member, const std::set<std::string>& here);

std::string fence_name(const MemberId& member, std::uint16_t mn, std::uint32_t incarnation);
// Whom it is about.
std::optional<MemberId> fenced_member(const std::string& name);

// A line for a person. REQUIRES: forbidden, malformed or missing.
std::string reason(ZkFault fault, const ZkAddress& at);
std::string unanswered(const ZkAddress& at);

}  // namespace declock::member
