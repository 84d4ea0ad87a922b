// The coordinator of a simulated cluster, and the members' connections to it. In virtual time, and subject to the same
// pauses and partitions as everything else.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "member/coordinator.h"
#include "runtime/task_group.h"
#include "sim/timed.h"

namespace declock::member {

class SimCluster;

class SimMembership final : public Membership {
 public:
  SimMembership(SimCluster& cluster, const Member& self, const View& view, sim::SimWorker& worker)
      : cluster_(cluster), self_(self), known_(view), worker_(worker), renewing_(worker.frames()) {}
  ~SimMembership() override;

  const Member& self() const override { return self_; }
  const View& known() const override { return known_; }
  Task<Result<void>> refresh(Worker& worker) override;
  bool evicted() const override { return evicted_; }
  bool is_certainly_member(Time now) const override { return !evicted_ && now < certain_until_; }
  void listen(ViewListener* listener) override { listeners_.push_back(listener); }
  void unlisten(ViewListener* listener) override { std::erase(listeners_, listener); }

  void hear(const View& view);
  sim::Party party() const { return worker_.party(); }
  FramePool& frames() { return worker_.frames(); }

 private:
  friend class SimCluster;
  Task<void> keep_renewing();

  SimCluster& cluster_;
  Member self_;
  View known_;
  bool evicted_ = false;
  Time certain_until_{};  // by its own clock: a lease from when it asked for one
  sim::SimWorker& worker_;
  std::vector<ViewListener*> listeners_;
  TaskGroup renewing_;
};

class SimCluster {
 public:
  struct Config {
    std::uint32_t slots = 8;
    std::uint32_t mns = 1;
    std::uint32_t workers = 1;  // per member
    Duration lease = milliseconds(10);
    // To be left out, to see what they are for:
    bool fence = true;               // H4, H5
    bool view_before_access = true;  // H30
    bool pardon_lateness = true;     // a coordinator that was away judges nobody by its own absence
  };
  SimCluster(sim::TimedEngine& engine, const Config& config);

  // The member is in the view when this returns. Null: every slot is taken, or the coordinator is away.
  std::unique_ptr<SimMembership> join(EndpointId first_endpoint, sim::SimWorker& worker);
  // The member goes by itself: with nothing held, waited for or under way, or (`counts`) with what there is.
  void leave(const Member& member, bool counts);
  // The MN stops, and starts again after this time.
  void restart(MnId mn, Duration after);
  // The coordinator does, and remembers everything: meanwhile nobody joins, leaves, renews or is judged.
  void restart_coordinator(Duration after);
  bool is_coordinator_away() const { return is_away_; }
  // The time by which it judges: it stands still while the coordinator is away.
  Time clock() const { return is_away_ ? away_since_ : Time{engine_.now().ns - pardoned_.ns}; }

  // Called when a member's lease has ended; when one that did not leave with nothing held can do nothing any more; when an
  // MN has lost its memory, and when it is about to serve again.
  std::function<void(const Member&)> on_suspected;
  std::function<void(const Member&)> on_fenced;
  std::function<void(MnId)> on_lost;
  std::function<void(MnId)> on_start;

  View view() const;
  sim::TimedEngine& engine() { return engine_; }
  FramePool& frames() { return worker_.frames(); }

  // One way between anybody and the coordinator.
  static constexpr Duration kHop = microseconds(5);

 private:
  friend class SimMembership;
  Task<void> watch();
  Task<void> evict(Member member, bool counts);
  Task<void> come_back(Duration after);
  Task<void> until_back();
  Task<void> reveal(Member member);
  Task<void> start_later(MnId mn, Duration after);
  Task<void> tell_everybody();
  bool reaches(const SimMembership& member) const {
    return !is_away_ && !engine_.is_cut(member.party(), sim::kCoordinator);
  }

  sim::TimedEngine& engine_;
  Config config_;
  Coordinator coordinator_;
  sim::SimWorker& worker_;
  std::vector<SimMembership*> members_;
  std::vector<Member> hidden_;  // without view_before_access: not in the view yet
  bool is_away_ = false;
  Time away_since_;      // by clock()
  Duration pardoned_{};  // how long it was away, in all
  TaskGroup behind_;
};

}  // namespace declock::member
