// A few clients of one CQL lock on the timed simulator, for scripted sequences.
#pragma once

#include <gtest/gtest.h>

#include <deque>

#include "cql/cql.h"
#include "sim/timed.h"

namespace declock {

inline sim::NicModel quiet_nic() {
  sim::NicModel nic;
  nic.jitter_mean_ns = 0;
  nic.hiccup_one_in = 0;
  nic.torn_read_one_in = 0;
  return nic;
}

class Lab {
 public:
  explicit Lab(unsigned clients, cql::Options options = {}, unsigned slots = 0)
      : shape{clients, slots == 0 ? clients : slots, QueueLayout::owner}, engine{quiet_nic(), 1, 1} {
    for (unsigned i = 0; i < clients; ++i) {
      sim::SimWorker& worker = engine.add_worker();
      sim::SimEndpoint& endpoint = engine.add_endpoint(worker);
      nodes.emplace_back(worker, endpoint, shape, Slot{static_cast<std::uint16_t>(i)}, clients,
                         options);
    }
  }
  ~Lab() { tasks.clear(); }

  struct Node {
    Node(sim::SimWorker& w, sim::SimEndpoint& e, const LockShape& shape, Slot slot, unsigned members,
         cql::Options options)
        : worker(w),
          endpoint(e),
          membership(slot, members, 1),
          lock(e, shape, {membership, requests}, options) {}
    sim::SimWorker& worker;
    sim::SimEndpoint& endpoint;
    member::FixedMembership membership;
    cql::Requests requests;
    cql::CqlLock lock;
  };

  void start(Task<void> task) {
    tasks.push_back(std::move(task));
    tasks.back().start();
  }
  // Runs for this much virtual time.
  void run(Duration d) { engine.run_until(engine.now() + d); }
  bool all_done() const {
    for (const Task<void>& task : tasks) {
      if (!task.done()) return false;
    }
    return true;
  }
  Header header() { return shape.header.decode(engine.memory(MnId{0}).load(0)); }
  void set_header(const Header& h) { engine.memory(MnId{0}).store(0, shape.header.encode(h)); }

  LockShape shape;
  sim::TimedEngine engine;
  std::deque<Node> nodes;
  std::deque<Task<void>> tasks;

  static constexpr RemoteAddr kLock{MnId{0}, 0};
};

// Acquires, holds for a while, releases.
struct Visit {
  bool entered = false;
  bool left = false;
  Errc error = Errc::ok;
  Hold hold;
};

inline Task<void> visit(Worker& worker, LockClient& lock, RemoteAddr addr, Mode mode, Duration stay,
                        Visit& seen) {
  const Result<Hold> hold = co_await lock.acquire(addr, mode);
  if (!hold) {
    seen.error = hold.error();
    co_return;
  }
  seen.hold = *hold;
  seen.entered = true;
  co_await worker.sleep_for(stay);
  const Result<void> released = co_await lock.release(*hold);
  if (!released) seen.error = released.error();
  seen.left = true;
}

}  // namespace declock
