// What compute nodes, memory nodes and the coordinator say to each other. A frame is one of these: a byte that says which,
// and its fields.
//
//   compute node -> coordinator   join, renew, fetch, leave        <- joined, state, changed, left, refused
//   memory node  -> coordinator   register_mn, renew_mn, fenced    <- registered, state, changed, fence
//   compute node -> memory node   attach, relay, allocate          <- attached, relay, allocated, refused
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "member_net/cluster.h"

namespace declock::member {

enum class Kind : std::uint8_t {
  join = 1,
  joined,
  renew,
  fetch,
  state,
  leave,
  left,
  register_mn,
  registered,
  renew_mn,
  fence,
  fenced,
  attach,
  attached,
  relay,
  allocate,
  allocated,
  refused,
  changed,
};

struct MemberId {
  Slot slot{};
  Incarnation incarnation{};
  auto operator<=>(const MemberId&) const = default;
  void fields(auto& f) { f(slot, incarnation); }
};

struct Join {
  static constexpr Kind kKind = Kind::join;
  static constexpr std::uint16_t kAnySlot = 0xFFFF;
  std::uint32_t endpoints = 1;
  std::vector<WorkerAddress> workers{};
  Slot wanted{kAnySlot};
  void fields(auto& f) { f(endpoints, workers, wanted); }
};
struct Joined {
  static constexpr Kind kKind = Kind::joined;
  MemberId self;
  ClusterState state;
  void fields(auto& f) { f(self, state); }
};
// I am alive. The answer is nothing, or refused: you are taken for dead.
struct Renew {
  static constexpr Kind kKind = Kind::renew;
  MemberId self;
  std::uint64_t seen = 0;  // all its workers go by the state with this number, or a later one
  void fields(auto& f) { f(self, seen); }
};
// The state at some moment between this and its answer; `ask` comes back with it.
struct Fetch {
  static constexpr Kind kKind = Kind::fetch;
  std::uint64_t ask = 0;
  std::uint64_t cluster = 0;  // of the state that it has, and
  std::uint64_t have = 0;     // its number: if that is the newest, it is not sent again
  void fields(auto& f) { f(ask, cluster, have); }
};
struct StateIs {
  static constexpr Kind kKind = Kind::state;
  std::uint64_t ask = 0;  // 0: nobody asked, it is new
  ClusterState state;
  void fields(auto& f) { f(ask, state); }
};
// The same, to somebody who has the state before it.
struct Changed {
  static constexpr Kind kKind = Kind::changed;
  std::uint64_t ask = 0;
  ClusterChange change;
  void fields(auto& f) { f(ask, change); }
};
struct Leave {
  static constexpr Kind kKind = Kind::leave;
  MemberId self;
  void fields(auto& f) { f(self); }
};
struct Left {
  static constexpr Kind kKind = Kind::left;
  void fields(auto&) {}
};

struct RegisterMn {
  static constexpr Kind kKind = Kind::register_mn;
  std::uint16_t id = 0;
  std::uint64_t cluster = 0;      // that it belongs to, and
  std::uint32_t incarnation = 0;  // as which; 0: its memory is fresh
  std::string address{};
  void fields(auto& f) { f(id, cluster, incarnation, address); }
};
// If that is another incarnation than it said, its memory is void, and so is every access to it.
struct Registered {
  static constexpr Kind kKind = Kind::registered;
  std::uint32_t incarnation = 0;
  ClusterState state;
  void fields(auto& f) { f(incarnation, state); }
};
struct RenewMn {
  static constexpr Kind kKind = Kind::renew_mn;
  std::uint16_t id = 0;
  void fields(auto& f) { f(id); }
};
// Take away every access that this member has, and say so.
struct Fence {
  static constexpr Kind kKind = Kind::fence;
  MemberId member;
  void fields(auto& f) { f(member); }
};
struct Fenced {
  static constexpr Kind kKind = Kind::fenced;
  std::uint16_t mn = 0;
  MemberId member;
  void fields(auto& f) { f(mn, member); }
};

struct Attach {
  static constexpr Kind kKind = Kind::attach;
  MemberId self;
  std::uint16_t worker = 0;
  std::string offer{};
  void fields(auto& f) { f(self, worker, offer); }
};
struct Attached {
  static constexpr Kind kKind = Kind::attached;
  std::uint16_t worker = 0;
  std::uint32_t incarnation = 0;
  std::string answer{};
  std::uint64_t bytes = 0;  // of the memory
  void fields(auto& f) { f(worker, incarnation, answer, bytes); }
};
// From one compute node's worker to another's, through a memory node that both are connected with.
struct Relay {
  static constexpr Kind kKind = Kind::relay;
  MemberId from;
  std::uint16_t from_worker = 0;
  MemberId to;
  std::uint16_t to_worker = 0;
  bool is_answer = false;
  std::string blob{};
  void fields(auto& f) { f(from, from_worker, to, to_worker, is_answer, blob); }
};
// Memory by name: made if there is none, the same for everybody who asks for it.
struct Allocate {
  static constexpr Kind kKind = Kind::allocate;
  std::uint64_t ask = 0;
  std::string name{};
  std::uint64_t bytes = 0;  // 0: only if it is there
  std::string use{};        // what it is for; must be the same for everybody
  void fields(auto& f) { f(ask, name, bytes, use); }
};
struct Allocated {
  static constexpr Kind kKind = Kind::allocated;
  std::uint64_t ask = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t incarnation = 0;
  std::string error{};  // empty: it is there
  void fields(auto& f) { f(ask, offset, bytes, incarnation, error); }
};
struct Refused {
  static constexpr Kind kKind = Kind::refused;
  bool evicted = false;
  std::string why{};
  bool final = true;  // false: it waits, for this reason
  void fields(auto& f) { f(evicted, why, final); }
};

template <class T>
std::string frame_of(const T& message) {
  return static_cast<char>(T::kKind) + to_bytes(message);
}

// Hands a frame to `handler` as the message that it is. False: it is none of these, or malformed.
template <class... Messages, class Handler>
bool dispatch(std::string_view frame, Handler&& handler) {
  if (frame.empty()) return false;
  const auto try_one = [&]<class T>(const T*) {
    if (static_cast<Kind>(frame[0]) != T::kKind) return false;
    const std::optional<T> message = from_bytes<T>(frame.substr(1));
    if (!message) return false;
    handler(*message);
    return true;
  };
  return (try_one(static_cast<const Messages*>(nullptr)) || ...);
}

}  // namespace declock::member
