// Who has a link, reduced to what it hears: a compute node and a memory node without memory, each with a hub on a thread.
#pragma once

#include <mutex>
#include <thread>
#include <vector>

#include "member_zk/zk_compute_link.h"
#include "member_zk/zk_memory_link.h"
#include "support/soon.h"

namespace declock::zk {

// What the hub's thread writes and the test reads.
template <class T>
class Guarded {
 public:
  T get() const {
    const std::lock_guard guard{mutex_};
    return value_;
  }
  template <class Change>
  void change(Change change) {
    const std::lock_guard guard{mutex_};
    change(value_);
  }

 private:
  mutable std::mutex mutex_;
  T value_{};
};

class Owner : protected wire::Hub::Handler {
 protected:
  explicit Owner(const wire::Secret& secret) : hub_(secret, *this, milliseconds(20)) {}
  void run() {
    thread_ = std::thread{[this] { hub_.run(); }};
  }
  void stop() {
    hub_.stop();
    thread_.join();
  }
  void on_up(wire::LineId) override {}
  void on_frame(wire::LineId, const std::string&) override {}
  void on_down(wire::LineId, const std::string&, bool) override {}

  wire::Hub hub_;

 private:
  std::thread thread_;
};

struct ComputeHeard {
  std::optional<member::MemberId> self;
  member::ClusterState state;
  std::uint64_t answered = 0;  // the last ask
  int joins = 0;
  int evictions = 0;
  bool left = false;
  bool refused = false;  // for good
  std::string why;
};

class Compute final : private Owner, private member::ComputeLink::Events {
 public:
  Compute(const member::ZkAddress& at, const wire::Secret& secret)
      : Owner(secret), link_(hub_, *this, at, secret) {
    run();
  }
  ~Compute() override { stop(); }

  void join(std::uint16_t wanted = member::Join::kAnySlot) {
    member::Join join;
    join.workers = {{"an address", 1}};
    join.wanted = Slot{wanted};
    hub_.post([this, join] { link_.join(join); });
  }
  bool joins(std::uint16_t wanted = member::Join::kAnySlot) {
    join(wanted);
    return soon([&] { return heard().self.has_value(); });
  }
  bool fetches(std::uint64_t ask) {
    hub_.post([this, ask] { link_.fetch(ask); });
    return soon([&] { return heard().answered == ask; });
  }
  bool leaves() {
    hub_.post([this] { link_.leave(); });
    return soon([&] { return heard().left; });
  }
  void give_up() {
    hub_.post([this] { link_.give_up(); });
  }
  ComputeHeard heard() const { return heard_.get(); }

 private:
  void on_tick(Time now) override { link_.on_tick(now); }
  void on_joined(const member::MemberId& self, const member::ClusterState& state) override {
    heard_.change([&](ComputeHeard& h) {
      h.self = self;
      h.state = state;
      h.joins += 1;
    });
  }
  void on_state(std::uint64_t ask, const member::ClusterState& state) override {
    heard_.change([&](ComputeHeard& h) {
      h.state = state;
      if (ask != 0) h.answered = ask;
    });
  }
  void on_evicted() override {
    heard_.change([](ComputeHeard& h) { h.evictions += 1; });
  }
  void on_left() override {
    heard_.change([](ComputeHeard& h) { h.left = true; });
  }
  void on_refused(const std::string& why, bool final) override {
    heard_.change([&](ComputeHeard& h) {
      h.why = why;
      h.refused = h.refused || final;
    });
  }

  Guarded<ComputeHeard> heard_;
  member::ZkComputeLink link_;
};

struct MemoryHeard {
  std::uint32_t incarnation = 0;
  member::ClusterState state;
  std::uint64_t answered = 0;
  std::vector<member::MemberId> fences;
  std::string refused;
};

class Memory final : private Owner, private member::MemoryLink::Events {
 public:
  Memory(const member::ZkAddress& at, const wire::Secret& secret, const member::ClusterShape& shape,
         std::uint16_t id, const std::string& address)
      : Owner(secret), link_(hub_, *this, at, secret, shape, [](const std::string&) {}) {
    link_.register_as(id, address, 0);
    run();
  }
  ~Memory() override { stop(); }

  bool registers() const {
    return soon([&] { return heard().incarnation != 0; });
  }
  bool fetches(std::uint64_t ask) {
    hub_.post([this, ask] { link_.fetch(ask); });
    return soon([&] { return heard().answered == ask; });
  }
  // Fences are confirmed when they come, unless this was called; then by confirm().
  void hold_fences() {
    heard_.change([&](MemoryHeard&) { holds_ = true; });
  }
  void confirm() {
    hub_.post([this] {
      for (const member::MemberId& member : heard().fences) link_.fenced(member);
    });
  }
  MemoryHeard heard() const { return heard_.get(); }

 private:
  void on_tick(Time now) override { link_.on_tick(now); }
  void on_registered(std::uint32_t incarnation, const member::ClusterState& state) override {
    heard_.change([&](MemoryHeard& h) {
      h.incarnation = incarnation;
      h.state = state;
    });
  }
  void on_state(std::uint64_t ask, const member::ClusterState& state) override {
    heard_.change([&](MemoryHeard& h) {
      h.state = state;
      if (ask != 0) h.answered = ask;
    });
  }
  void on_fence(const member::MemberId& member) override {
    bool holds = false;
    heard_.change([&](MemoryHeard& h) {
      h.fences.push_back(member);
      holds = holds_;
    });
    if (!holds) link_.fenced(member);
  }
  void on_refused(const std::string& why) override {
    heard_.change([&](MemoryHeard& h) { h.refused = why; });
  }

  Guarded<MemoryHeard> heard_;
  bool holds_ = false;
  member::ZkMemoryLink link_;
};

}  // namespace declock::zk
