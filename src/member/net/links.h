// How a compute node and a memory node talk to their coordinator, whichever kind that is. What a link hears it tells from
// the loop of its owner's hub.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "member_net/messages.h"
#include "wire/hub.h"

namespace declock::member {

class ComputeLink {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    virtual void on_joined(const MemberId& self, const ClusterState& state) = 0;
    // `ask`: the number of a fetch(), or 0.
    virtual void on_state(std::uint64_t ask, const ClusterState& state) = 0;
    virtual void on_evicted() = 0;
    virtual void on_left() = 0;
    // It cannot join, and this is why. `final`: trying again is of no use.
    virtual void on_refused(const std::string& why, bool final) = 0;
  };
  virtual ~ComputeLink() = default;

  // All of these from the hub's loop.
  virtual void join(const Join& join) = 0;
  // The state at some moment between the call and the answer.
  virtual void fetch(std::uint64_t ask) = 0;
  virtual void leave() = 0;
  // All workers go by the state with this number, or a later one.
  virtual void seen(std::uint64_t) {}
  // Renews no more: this node gives itself up.
  virtual void give_up() = 0;
  virtual void on_tick(Time now) = 0;
};

class MemoryLink {
 public:
  class Events {
   public:
    virtual ~Events() = default;
    // From now on it is this incarnation; if it was another before, its memory is void.
    virtual void on_registered(std::uint32_t incarnation, const ClusterState& state) = 0;
    virtual void on_state(std::uint64_t ask, const ClusterState& state) = 0;
    // To be answered by fenced().
    virtual void on_fence(const MemberId& member) = 0;
    virtual void on_refused(const std::string& why) = 0;
  };
  virtual ~MemoryLink() = default;

  // As which incarnation it would like to go on; 0: with fresh memory.
  virtual void register_as(std::uint16_t id, const std::string& address, std::uint32_t incarnation) = 0;
  virtual void fetch(std::uint64_t ask) = 0;
  virtual void fenced(const MemberId& member) = 0;
  virtual void on_tick(Time now) = 0;
};

// Both over a line to the coordinator that a memory node hosts. Their owner passes on what concerns that line.
class NetLine {
 public:
  NetLine(wire::Hub& hub, const wire::HostPort& coordinator)
      : hub_(hub), line_(hub.dial(coordinator)) {}
  // To a coordinator in this process: frames go by this function, and the line is always up.
  NetLine(wire::Hub& hub, std::function<void(const std::string& frame)> send)
      : hub_(hub), send_(std::move(send)) {}
  bool is(wire::LineId line) const { return line == line_ && line != 0; }

 protected:
  template <class T>
  void send(const T& message) {
    if (send_) return send_(frame_of(message));
    hub_.send(line_, frame_of(message));
  }
  bool is_up() const { return send_ || hub_.is_up(line_); }

  // The last state that has come over it, which the next change belongs to. False: it is none, or the change is to another
  // one, and then the whole state is asked for.
  bool take(const StateIs& whole);
  bool take(const Changed& changed);
  Fetch fetch_of(std::uint64_t ask) const { return {ask, state_.shape.id, state_.number}; }

  wire::Hub& hub_;
  wire::LineId line_ = 0;
  std::function<void(const std::string& frame)> send_;
  ClusterState state_;
};

class NetComputeLink final : public ComputeLink, public NetLine {
 public:
  NetComputeLink(wire::Hub& hub, const wire::HostPort& coordinator, Events& events)
      : NetLine(hub, coordinator), events_(events) {}

  void join(const Join& join) override;
  void fetch(std::uint64_t ask) override;
  void leave() override;
  void seen(std::uint64_t number) override;
  void give_up() override { given_up_ = true; }
  void on_tick(Time now) override;

  void on_up();
  // False: malformed, or not for a compute node.
  bool on_frame(const std::string& frame);
  void on_down(const std::string& why, bool refused);

 private:
  void say_hello();
  void renew();

  Events& events_;
  std::optional<Join> join_;
  std::optional<MemberId> self_;
  Duration lease_ = seconds(1);
  Time renewed_{};
  std::uint64_t seen_ = 0;
  std::uint64_t acknowledged_ = 0;  // of that, what it has said
  std::set<std::uint64_t> asks_;    // unanswered
  bool leaving_ = false;
  bool given_up_ = false;
};

class NetMemoryLink final : public MemoryLink, public NetLine {
 public:
  NetMemoryLink(wire::Hub& hub, const wire::HostPort& coordinator, Events& events)
      : NetLine(hub, coordinator), events_(events) {}
  NetMemoryLink(wire::Hub& hub, std::function<void(const std::string& frame)> send, Events& events)
      : NetLine(hub, std::move(send)), events_(events) {}

  void register_as(std::uint16_t id, const std::string& address, std::uint32_t incarnation) override;
  void fetch(std::uint64_t ask) override;
  void fenced(const MemberId& member) override { send(Fenced{register_.id, member}); }
  void on_tick(Time) override { send(RenewMn{register_.id}); }

  void on_up();
  bool on_frame(const std::string& frame);

 private:
  Events& events_;
  RegisterMn register_;
  std::set<std::uint64_t> asks_;  // unanswered
};

}  // namespace declock::member
