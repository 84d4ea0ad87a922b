// The simulated fabric, first half: what can happen. Operations take effect on memory, chains complete,
// messages are delivered, timers fire, each by a call of the second half, which decides when: the timed
// engine by a model of the NIC (timed.h), the stepped engine in any order that its caller picks
// (stepped.h).
#pragma once

#include <array>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "fabric/fabric.h"
#include "sim/memory.h"

namespace declock::sim {

class Engine;

// How a worker's clock is wrong.
struct Skew {
  Duration offset;
  std::int64_t drift_ppb = 0;  // nanoseconds gained per second
};

// Who can be paused, and cut off from whom: a compute node, a memory node, the coordinator.
using Party = Strong<struct PartyTag, std::uint32_t>;
inline constexpr Party kCoordinator{0x8000'0000};
constexpr Party party_of(MnId mn) {
  return Party{0x4000'0000 + std::uint32_t{mn.value}};
}

class SimWorker final : public Worker {
 public:
  SimWorker(Engine& engine, std::uint32_t index, Prng random, Skew skew, Party party)
      : Worker(random), engine_(engine), index_(index), skew_(skew), party_(party) {}

  std::uint32_t index() const { return index_; }
  Party party() const { return party_; }
  Time now() const override;
  void arm(Timer& timer, Time when) override;
  void disarm(Timer& timer) override;
  void make_ready(std::coroutine_handle<> coroutine) override;
  void forget(std::coroutine_handle<> coroutine) override;

 private:
  Engine& engine_;
  std::uint32_t index_;
  Skew skew_;
  Party party_;
};

// A posted chain, as it travels. It is a copy: the coroutine that posted it may be gone before it
// lands.
struct Flight {
  struct Step {
    OpKind kind;
    Purpose purpose;
    RemoteAddr addr;
    std::uint64_t operand;
    std::uint64_t expected;
    std::uint64_t compare_mask;
    std::uint64_t swap_mask;
    std::uint64_t old;
    std::span<std::uint64_t>
        into;  // read: the caller's memory, to be touched only while `doorbell` is set
    std::vector<std::uint64_t> from;  // write
    std::size_t words;

    // REQUIRES: it took effect.
    bool changes_memory() const {
      if (kind == OpKind::read) return false;
      if (kind == OpKind::write || kind == OpKind::fetch_add) return true;
      return ((old ^ expected) & compare_mask) == 0;
    }
  };

  Doorbell* doorbell = nullptr;  // null once the coroutine is gone
  EndpointId from;
  std::uint32_t worker = 0;
  std::uint32_t index = 0;  // in the engine's pool
  std::array<Step, Doorbell::kOpsMax> steps;
  std::uint32_t count = 0;
  std::uint32_t taken = 0;       // steps that have begun to take effect
  std::uint32_t connection = 0;  // which of the endpoint's to this MN
  std::uint64_t sequence = 0;    // over that connection
  Errc status = Errc::ok;        // otherwise: the remaining steps take no effect
  // Stepped engine, once the connection broke: whoever posted it hears that its outcome is unknown, or has heard so.
  bool severed = false;
  bool told = false;
  bool shaken = false;  // the MN restarted behind its last step: severed perhaps
  Time ready;           // timed engine: when the NIC is done with it

  MnId mn() const { return steps[0].addr.mn; }
};

struct Letter {
  EndpointId from;
  EndpointId to;
  Message message;
};

// Sees every effect on memory, in order. For checkers: they know nothing of the protocol.
class EffectObserver {
 public:
  virtual ~EffectObserver() = default;
  virtual void on_effect(EndpointId from, const Flight::Step& step) = 0;
};

class SimEndpoint final : public Endpoint {
 public:
  SimEndpoint(Engine& engine, EndpointId id, SimWorker& worker)
      : Endpoint(id, worker), engine_(engine), worker_index_(worker.index()) {}
  std::uint32_t worker_index() const { return worker_index_; }
  bool has_masked_compare_swap() const override { return true; }
  bool completes_at_once() const override;
  bool may_watch() const override { return completes_at_once(); }
  std::uint64_t load_at_once(RemoteAddr addr) const override;
  bool add_at_once(RemoteAddr addr, std::uint64_t expected, std::uint64_t delta,
                   Purpose purpose) override;
  std::uint32_t incarnation(MnId mn) const override;
  Task<Result<void>> reconnect(MnId mn) override;
  void deliver(const Letter& letter) {
    if (receiver() != nullptr) receiver()->on_message(letter.from, letter.message);
  }

 private:
  void ring(Doorbell& doorbell) override;
  void abandon(Doorbell& doorbell) override;
  void transmit(EndpointId to, const Message& message) override;
  Task<Result<void>> reopen(MnId mn);

  friend class Engine;
  struct Connection {
    std::uint32_t number = 0;
    std::uint32_t incarnation = 1;  // of the MN, when it was opened
    bool revoked = false;
    std::uint64_t posted = 0;  // chains so far
    std::uint64_t good_until =
        ~std::uint64_t{0};  // what was posted behind this one is lost: the connection broke
  };
  Connection& connection(MnId mn);

  Engine& engine_;
  std::uint32_t worker_index_;
  std::vector<Connection> connections_;  // by MN
};

class Engine {
 public:
  Engine(unsigned mns, std::uint64_t seed)
      : seed_(seed), memories_(mns), incarnations_(mns, 1), down_(mns) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  SimWorker& add_worker(Skew skew = {}, Party party = {});
  virtual SimEndpoint& add_endpoint(SimWorker& worker);

  Memory& memory(MnId mn) { return memories_.at(mn.value); }

  // The MN revokes an endpoint's access: from now on nothing that it sent or sends takes effect there (F5).
  void revoke(EndpointId endpoint, MnId mn) {
    endpoints_[endpoint.value].connection(mn).revoked = true;
  }
  // The MN stops; later it starts again, with fresh memory. What is on its way to it is lost.
  void stop(MnId mn);
  void start_again(MnId mn);
  bool is_down(MnId mn) const { return down_[mn.value]; }
  std::uint32_t incarnation(MnId mn) const { return incarnations_[mn.value]; }
  virtual bool is_cut(Party, Party) const { return false; }
  // See Endpoint::completes_at_once().
  virtual bool completes_at_once() const { return false; }
  // See Endpoint::reconnect().
  virtual Task<Result<void>> reconnect(SimEndpoint& endpoint, MnId mn);
  void observe(EffectObserver* observer) { observer_ = observer; }
  OpCounts counts() const;

  // A digest of everything that happened so far, in order.
  std::uint64_t trace_hash() const { return trace_; }

  virtual Time now() const = 0;
  // Whatever was made ready from outside.
  void run_what_is_ready() { run_ready(); }

 protected:
  friend class SimWorker;
  friend class SimEndpoint;

  Party party_of_endpoint(EndpointId id) {
    return workers_[endpoints_[id.value].worker_index()].party();
  }
  Party party_of_worker(std::uint32_t index) { return workers_[index].party(); }

  virtual void on_post(Flight& flight) = 0;
  virtual void on_send(const Letter& letter) = 0;
  virtual void on_arm(std::uint32_t worker, Timer& timer, Time when) = 0;
  virtual void on_disarm(Timer& timer) = 0;

  // The outcome of this flight becomes unknown to whoever posted it: its connection breaks behind it.
  void break_behind(const Flight& flight);
  // What the endpoint posts from now on is lost, until it has another connection.
  void break_now(EndpointId endpoint, MnId mn);
  bool is_broken(EndpointId endpoint, MnId mn);
  bool is_revoked(EndpointId id, MnId mn) { return endpoints_[id.value].connection(mn).revoked; }
  // Another connection: nothing that went over the old one takes effect any more.
  void reopen(EndpointId endpoint, MnId mn);
  // Is this flight to take no effect any more? Sets its status.
  bool is_lost(Flight& flight);
  // An atomic or a write takes effect.
  void take_effect(Flight& flight, Flight::Step& step);
  // A read sees words [begin, end) as they are now.
  void sample(const Flight& flight, Flight::Step& step, std::size_t begin, std::size_t end);
  // REQUIRES: all steps took effect. Ends with the run of whatever became ready.
  void complete(Flight& flight);
  // Tells whoever posted a chain that its outcome is unknown.
  void fail(Doorbell& doorbell);
  void deliver(const Letter& letter);
  void fire(Timer& timer);
  void resume(std::coroutine_handle<> coroutine);
  // What is posted now is to be carried out before post() returns.
  bool carries_out_at_once_ = false;
  // A flight that will never complete goes back to the pool.
  void discard(Flight& flight);

  void trace(std::uint64_t a, std::uint64_t b);
  Flight& flight(std::uint32_t index) { return flights_[index]; }
  SimEndpoint& endpoint(EndpointId id) { return endpoints_[id.value]; }

 private:
  Flight& take_flight();
  void run_ready();

  std::uint64_t seed_;
  std::vector<Memory> memories_;
  std::vector<std::uint32_t> incarnations_;  // by MN
  std::vector<bool> down_;
  std::deque<SimWorker> workers_;
  std::deque<SimEndpoint> endpoints_;
  std::deque<Flight> flights_;
  std::vector<Flight*> idle_flights_;
  std::vector<std::coroutine_handle<>> ready_;
  EffectObserver* observer_ = nullptr;
  std::uint64_t trace_ = 0;
};

}  // namespace declock::sim
