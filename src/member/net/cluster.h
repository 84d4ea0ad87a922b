// A cluster over a network: what its coordinator must not forget, and what everybody is told of it.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "layout/entry.h"
#include "member/coordinator.h"
#include "member_net/archive.h"
#include "net/port.h"

namespace declock::member {

// What is fixed when the cluster is made.
struct ClusterShape {
  std::uint64_t id = 0;          // random: tells it from one that was here before
  std::uint32_t members = 16;    // compute nodes at a time
  std::uint32_t endpoints = 16;  // per compute node, at most
  Duration lease = seconds(2);   // who has not been heard of for so long is taken for dead

  void fields(auto& f) { f(id, members, endpoints, lease); }
};

struct WorkerAddress {
  std::string blob;
  std::uint64_t cookie = 0;
  void fields(auto& f) { f(blob, cookie); }
};

struct MemberEntry {
  Slot slot{};
  Incarnation incarnation{};
  std::vector<WorkerAddress> workers{};
  std::string session{};  // ZooKeeper: the node that vanishes with this member
  void fields(auto& f) { f(slot, incarnation, workers, session); }
};

struct MnEntry {
  std::uint32_t incarnation = 0;  // 0: there was never one
  std::string address{};          // host:port; empty: it is not there
  void fields(auto& f) { f(incarnation, address); }
};

// What became of some slots between two states.
struct SlotChange {
  Slot slot{};
  std::uint32_t incarnation = 0;  // the last that was given away
  std::uint64_t freed = 0;
  std::vector<MemberEntry> member{};  // at most one: who has it now
  void fields(auto& f) { f(slot, incarnation, freed, member); }
};
struct ClusterChange {
  std::uint64_t cluster = 0;  // the shape's id
  std::uint64_t from = 0;     // the number of the state that it changes
  std::uint64_t number = 0;
  std::uint64_t removals = 0;
  std::vector<SlotChange> slots{};
  std::vector<MnEntry> mns{};  // all of them
  void fields(auto& f) { f(cluster, from, number, removals, slots, mns); }
};

// The view with everybody's addresses. A coordinator that has this and the incarnations given away so far can go on
// where another stopped.
struct ClusterState {
  static constexpr std::uint32_t kFormat = 2;

  std::uint32_t format = kFormat;
  ClusterShape shape;
  std::uint64_t number = 0;
  std::uint64_t removals = 0;
  std::vector<MemberEntry> members{};  // by slot, ascending
  std::vector<MnEntry> mns{};
  std::vector<std::uint32_t> incarnations{};  // by slot: the last that was given away
  std::vector<std::uint64_t> freed{};  // by slot: the number of the state that it became free with

  void fields(auto& f) { f(format, shape, number, removals, members, mns, incarnations, freed); }
  // With no members, and slots that nobody has had yet.
  static ClusterState empty(const ClusterShape& shape);
  // False: no member of a cluster would say so.
  bool is_valid() const;

  View view() const;
  std::vector<net::PeerAddresses> peers() const;
  const MemberEntry* find(Slot slot) const;
  bool has(Slot slot, Incarnation incarnation) const;

  // Errc::busy: every slot is taken, or the one that is wanted. Of those that are free it is the one that has been so for
  // longest, and none that became free after the state `acknowledged`: a queue entry tells two members that had the same
  // slot apart only if they came one after the other.
  Result<MemberEntry> join(std::vector<WorkerAddress> workers, std::optional<Slot> wanted,
                           std::string session = {},
                           std::uint64_t acknowledged = std::numeric_limits<std::uint64_t>::max());
  bool has_free(std::optional<Slot> wanted) const;
  // After it was fenced. Whoever has left by itself does not count as a removal: it left nothing behind.
  bool remove(Slot slot, Incarnation incarnation, bool counts);
  // A memory node with fresh memory: its incarnation.
  std::uint32_t mn_comes(std::uint16_t id, const std::string& address);
  // Its memory is void.
  void mn_goes(std::uint16_t id);

  // What makes this state of the one with the number `from`, if only these slots changed and `mns` may have.
  ClusterChange change_from(std::uint64_t from, const std::set<Slot>& slots) const;
  // False: it is for another state, or no member of a cluster would say so. Then nothing has changed.
  bool apply(const ClusterChange& change);
};

inline constexpr std::uint32_t kMembersMax = 1024;
inline constexpr std::uint32_t kMnsMax = 64;

template <class T>
std::string to_bytes(const T& value) {
  std::string bytes;
  ToBytes{bytes}(value);
  return bytes;
}
template <class T>
std::optional<T> from_bytes(std::string_view bytes) {
  T value{};
  FromBytes from{bytes};
  from(value);
  if (!from.done()) return {};
  return value;
}

}  // namespace declock::member
