// A memory node's link to a ZooKeeper ensemble. Together with those of the other memory nodes it is the coordinator:
//
//   a member is dead -> each memory node fences it, and writes that down -> whoever sees that all have removes it
//   a memory node is gone -> another one takes it out of the state: its memory is void, nobody waits for its fences
//
// Each of these is a write that takes effect only if the state is still the one that was looked at.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "member_net/links.h"
#include "member_zk/zk_loop.h"
#include "member_zk/zk_state.h"

namespace declock::member {

class ZkMemoryLink final : public MemoryLink {
 public:
  using Log = std::function<void(const std::string& line)>;

  // `shape`: of the cluster, if there is none yet. What is wrong is told by on_refused(); `log`, from the hub's loop too,
  // is for a person. REQUIRES: destroyed from the hub's loop, or when that has ended.
  ZkMemoryLink(wire::Hub& hub, Events& events, const ZkAddress& at, const wire::Secret& secret,
               const ClusterShape& shape, Log log);

  void register_as(std::uint16_t id, const std::string& address, std::uint32_t incarnation) override;
  void fetch(std::uint64_t ask) override;
  // REQUIRES: called in on_fence(), or before the next on_registered().
  void fenced(const MemberId& member) override;
  void on_tick(Time now) override;

 private:
  using Names = std::set<std::string>;
  using Confirmed = std::pair<MemberId, std::uint32_t>;  // by this incarnation
  struct Wishes {
    bool registers = false;
    std::uint16_t id = 0;
    std::string address;
    std::uint32_t incarnation = 0;
    std::set<std::uint64_t> asks;   // unanswered
    std::set<Confirmed> confirmed;  // not yet written down
    bool is_stuck = false;  // the owner did not confirm a fence in time, and its loop has not run since
  };
  // The cluster as it was at one moment, and at later ones: whoever is in the state and not in `members` is dead.
  struct Seen {
    ZkState state;
    Names members;
    Names mns;
    Names fenced;
  };
  template <class Change>
  void wish(Change change);

  // On the loop's thread. Those that return false did not get through: look again.
  Duration look();
  Duration on_fault(ZkFault fault);
  bool see(Seen& seen);
  bool take_seat(Seen& seen);
  bool take_place(Seen& seen);
  bool confirm_fences(const Seen& seen, const Wishes& wishes);
  bool is_owner_stuck() const;
  void give_up_session();
  bool move_on(Seen& seen);
  void ask_for_fences(const Seen& seen);
  void clean_up(const Seen& seen);
  void answer(const Seen& seen, const Wishes& wishes);
  bool is_fenced_by_all(const ClusterState& cluster, const MemberId& member, const Names& fenced) const;
  Duration refuse(const std::string& why);
  void log(const std::string& line);

  Events& events_;
  Log log_;
  std::uint32_t told_incarnation_ = 0;  // of the hub's loop
  std::mutex mutex_;
  Wishes wishes_;

  // Of the loop's thread:
  ClusterShape shape_;  // `lease`: of the cluster, once it is known
  std::uint16_t id_ = 0;
  std::string address_;
  std::uint32_t incarnation_ = 0;  // 0: its memory is fresh, or may have been given up
  std::uint32_t registered_ = 0;   // the incarnation that the owner was told
  std::uint64_t cluster_ = 0;      // that it is part of
  bool has_seat_ = false;          // mns/ID is of this session
  std::int64_t blocked_by_ = 0;    // the session of mns/ID
  Time blocked_since_{};
  std::int32_t told_ = -1;                         // the version of the state
  std::map<MemberId, std::optional<Time>> asked_;  // to be fenced, by this incarnation; no time: it was
  bool complained_ = false;
  bool is_over_ = false;
  ZkLoop loop_;  // last: its thread uses all of the above
};

}  // namespace declock::member
