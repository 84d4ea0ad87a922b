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

class SimWorker final : public Worker {
 public:
  SimWorker(Engine& engine, std::uint32_t index, Prng random, Skew skew)
      : Worker(random), engine_(engine), index_(index), skew_(skew) {}

  std::uint32_t index() const { return index_; }
  Time now() const override;
  void arm(Timer& timer, Time when) override;
  void disarm(Timer& timer) override;
  void make_ready(std::coroutine_handle<> coroutine) override;

 private:
  Engine& engine_;
  std::uint32_t index_;
  Skew skew_;
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
  std::uint32_t taken = 0;  // steps that have begun to take effect
  Time ready;               // timed engine: when the NIC is done with it

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
  std::uint32_t incarnation(MnId) const override { return 1; }
  void deliver(const Letter& letter) {
    if (receiver() != nullptr) receiver()->on_message(letter.from, letter.message);
  }

 private:
  void ring(Doorbell& doorbell) override;
  void abandon(Doorbell& doorbell) override;
  void transmit(EndpointId to, const Message& message) override;

  Engine& engine_;
  std::uint32_t worker_index_;
};

class Engine {
 public:
  Engine(unsigned mns, std::uint64_t seed) : seed_(seed), memories_(mns) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  SimWorker& add_worker(Skew skew = {});
  virtual SimEndpoint& add_endpoint(SimWorker& worker);

  Memory& memory(MnId mn) { return memories_.at(mn.value); }
  void observe(EffectObserver* observer) { observer_ = observer; }
  OpCounts counts() const;

  // A digest of everything that happened so far, in order.
  std::uint64_t trace_hash() const { return trace_; }

  virtual Time now() const = 0;

 protected:
  friend class SimWorker;
  friend class SimEndpoint;

  virtual void on_post(Flight& flight) = 0;
  virtual void on_send(const Letter& letter) = 0;
  virtual void on_arm(std::uint32_t worker, Timer& timer, Time when) = 0;
  virtual void on_disarm(Timer& timer) = 0;

  // An atomic or a write takes effect.
  void take_effect(Flight& flight, Flight::Step& step);
  // A read sees words [begin, end) as they are now.
  void sample(const Flight& flight, Flight::Step& step, std::size_t begin, std::size_t end);
  // REQUIRES: all steps took effect. Ends with the run of whatever became ready.
  void complete(Flight& flight);
  void deliver(const Letter& letter);
  void fire(Timer& timer);
  void resume(std::coroutine_handle<> coroutine);
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
  std::deque<SimWorker> workers_;
  std::deque<SimEndpoint> endpoints_;
  std::deque<Flight> flights_;
  std::vector<Flight*> idle_flights_;
  std::vector<std::coroutine_handle<>> ready_;
  EffectObserver* observer_ = nullptr;
  std::uint64_t trace_ = 0;
};

}  // namespace declock::sim
