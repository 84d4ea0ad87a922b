// A compute node's link to the coordinator that is a ZooKeeper ensemble and the cluster's memory nodes.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "member_net/links.h"
#include "member_zk/zk_loop.h"
#include "member_zk/zk_state.h"

namespace declock::member {

class ZkComputeLink final : public ComputeLink {
 public:
  // What is wrong is told by on_refused(). REQUIRES: destroyed from the hub's loop, or when that has ended; without
  // leave() that is like a crash.
  ZkComputeLink(wire::Hub& hub, Events& events, const ZkAddress& at, const wire::Secret& secret);

  void join(const Join& join) override;
  void fetch(std::uint64_t ask) override;
  void leave() override;
  void give_up() override;
  void on_tick(Time) override {}  // its loop has a clock of its own

 private:
  struct Wishes {
    std::optional<Join> join;
    std::set<std::uint64_t> asks;  // unanswered
    bool leaving = false;
    bool given_up = false;
  };
  template <class Change>
  void wish(Change change);

  // On the loop's thread:
  Duration look();
  Duration try_joining(ZkState& state, const Join& join);
  Duration follow(ZkState& state, const Wishes& wishes);
  Duration no_slot(const ZkState& state, const Join& join);
  Duration refuse(const std::string& why, bool final);
  Duration end(std::function<void(Events&)> last);

  Events& events_;
  std::mutex mutex_;
  Wishes wishes_;

  // Of the loop's thread:
  Duration lease_ = ClusterShape{}.lease;  // until the cluster's own is known
  std::optional<MemberId> self_;
  std::uint64_t cluster_ = 0;
  std::int32_t told_ = -1;  // the version of the state
  bool has_left_ = false;   // the state says so
  bool is_over_ = false;
  std::string refused_;
  ZkLoop loop_;  // last: its thread uses all of the above
};

}  // namespace declock::member
