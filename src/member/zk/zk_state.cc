#include "member_zk/zk_state.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>

namespace declock::member {

ZkResult<ZkState> read_state(ZkSession& session, bool is_current) {
  if (is_current) {
    const ZkResult<void> passed = session.set("barrier", "", -1);
    if (!passed) return Failure{passed.error()};
  }
  const ZkResult<ZkNode> node = session.get("state");
  if (!node) return Failure{node.error()};
  std::optional<ClusterState> state = from_bytes<ClusterState>(node->data);
  if (!state || !state->is_valid()) return Failure{ZkFault::malformed};
  return ZkState{std::move(*state), node->version};
}

ZkResult<void> write_state(ZkSession& session, ZkState& state) {
  const ZkResult<void> written = session.set("state", to_bytes(state.cluster), state.version);
  if (written) state.version += 1;
  return written;
}

ZkResult<void> make_cluster(ZkSession& session, const ClusterState& first) {
  const ZkResult<void> root = session.make_root();
  if (!root) return root;
  for (const char* path : {"members", "mns", "fenced", "barrier"}) {
    const ZkResult<void> made = session.create(path, "");
    if (!made && made.error() != ZkFault::exists) return made;
  }
  return session.create("state", to_bytes(first));  // last: who sees it sees the others
}

bool is_dead(const MemberEntry& member, const std::set<std::string>& here) {
  return member.session.empty() || !here.contains(member.session);
}

std::string fence_name(const MemberId& member, std::uint16_t mn, std::uint32_t incarnation) {
  return fmt::format("{}.{}-{}.{}", member.slot.value, member.incarnation.value, mn, incarnation);
}

std::optional<MemberId> fenced_member(const std::string& name) {
  MemberId member;
  if (std::sscanf(name.c_str(), "%" SCNu16 ".%" SCNu32 "-", &member.slot.value,
                  &member.incarnation.value) != 2)
    return {};
  return member;
}

std::string reason(ZkFault fault, const ZkAddress& at) {
  switch (fault) {
    case ZkFault::forbidden:
      return fmt::format(
          "cluster '{}' at {} was made with another secret; use that one, or another name", at.name,
          at.servers);
    case ZkFault::malformed:
      return fmt::format("{}/state at {} is not what this version writes; use another name", at.path(),
                         at.servers);
    default:
      return fmt::format("there is no cluster '{}' at {}; start a memory node first", at.name,
                         at.servers);
  }
}

std::string unanswered(const ZkAddress& at) {
  return fmt::format("no ZooKeeper server answers at {}", at.servers);
}

}  // namespace declock::member
