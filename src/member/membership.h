// Who is alive. The cluster's coordinator keeps a numbered list of the members, the view; each member knows one,
// perhaps an old one, and can ask for the current one.
//
// A member is in the view before any memory node (MN) gives it access. It leaves in this order: suspected ->
// every MN has revoked its access -> removed. So a member that is not in the current view can do nothing any
// more, whether it is dead, paused or cut off; and nobody else can know that.
#pragma once

#include <cstdint>
#include <vector>

#include "declock/result.h"
#include "declock/task.h"
#include "fabric/fabric.h"
#include "layout/ids.h"

namespace declock::member {

// Counts how often a slot was given to somebody: it tells a member from the one that had its slot before.
using Incarnation = Strong<struct IncarnationTag, std::uint32_t>;

struct Member {
  Slot slot;
  Incarnation incarnation;
  EndpointId first_endpoint;  // of its worker 0; those of the others follow

  constexpr bool operator==(const Member&) const = default;
};

struct View {
  std::uint64_t number = 0;
  std::uint64_t removals = 0;  // of members, ever: who joins later knows that there were some (H33)
  std::vector<Member> members{};
  std::vector<std::uint32_t> mns{};  // the incarnation of each memory node; empty: all in their first

  const Member* find(Slot slot) const {
    if (slot.value < members.size() && members[slot.value].slot == slot) return &members[slot.value];
    for (const Member& m : members) {
      if (m.slot == slot) return &m;
    }
    return nullptr;
  }
  bool has(const Member& member) const {
    const Member* found = find(member.slot);
    return found != nullptr && found->incarnation == member.incarnation;
  }
  std::uint32_t incarnation(MnId mn) const { return mn.value < mns.size() ? mns[mn.value] : 1; }
};

// Told of every view that a member hears of.
class ViewListener {
 public:
  virtual ~ViewListener() = default;
  virtual void on_view(const View& view) = 0;
};

// What one worker of a member knows of the cluster. Used from its thread alone.
class Membership {
 public:
  virtual ~Membership() = default;

  virtual const Member& self() const = 0;
  // The newest view that this member has heard of. It may be behind.
  virtual const View& known() const = 0;
  // The coordinator's view at some moment between the call and its completion; known() is no older then.
  // Errc::evicted: this member is in it no more.
  virtual Task<Result<void>> refresh(Worker& worker) = 0;
  // From any thread.
  virtual bool evicted() const = 0;
  // Nobody has removed this member yet, whatever it has heard. Only then may it say what a lock protects without asking the
  // memory node. False: it cannot tell.
  virtual bool is_certainly_member(Time /*now*/) const { return false; }
  virtual void listen(ViewListener* listener) = 0;
  virtual void unlisten(ViewListener* listener) = 0;
};

// Everybody is there from the beginning and stays. Members are numbered by slot, their endpoints in that order.
class FixedMembership final : public Membership {
 public:
  FixedMembership(Slot self, std::uint32_t members, std::uint32_t workers_per_member) {
    for (std::uint32_t i = 0; i < members; ++i) {
      view_.members.push_back(
          {Slot{static_cast<std::uint16_t>(i)}, Incarnation{1}, EndpointId{i * workers_per_member}});
    }
    self_ = view_.members[self.value];
  }

  const Member& self() const override { return self_; }
  const View& known() const override { return view_; }
  Task<Result<void>> refresh(Worker& worker) override { return nothing_new(worker); }
  bool evicted() const override { return false; }
  bool is_certainly_member(Time) const override { return true; }
  void listen(ViewListener*) override {}
  void unlisten(ViewListener*) override {}

 private:
  static Task<Result<void>> nothing_new(Worker&) { co_return Result<void>{}; }

  View view_;
  Member self_{};
};

}  // namespace declock::member
