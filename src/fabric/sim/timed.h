// The simulated fabric, second half, in virtual time: the NIC model says when things happen.
//
// A chain costs its core some CPU, travels to the MN, and is processed there by the unit that its queue
// pair hashes to. Units work in order. An operation takes its turn in the NIC-wide pipeline; an atomic
// also needs the slot that its address hashes to, and while it waits for the slot everything behind it
// in the same unit waits too. That head-of-line blocking is how one contended word slows everybody
// down.
//
// The same seed gives the same run: all arithmetic is on integers, and events of one instant happen in
// the order in which they were scheduled.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "base/prng.h"
#include "sim/engine.h"
#include "sim/event_heap.h"
#include "sim/nic.h"

namespace declock::sim {

class TimedEngine final : public Engine {
 public:
  TimedEngine(const NicModel& model, unsigned mns, std::uint64_t seed);

  Time now() const override { return now_; }
  // As in shared memory: clients may act on it in one step. Other threads come between any two steps, so a chain takes its
  // time here as well.
  void set_at_once() { at_once_ = true; }
  bool completes_at_once() const override { return at_once_; }

  // Runs every event up to and including this moment, and ends there.
  void run_until(Time end);
  // The next event, if there is one.
  bool step();

  std::uint64_t events() const { return events_; }

  // Faults. A party that is paused does nothing, but what it has sent goes on; everything for it is kept.
  void pause(Party party) { paused_.push_back(party); }
  void resume(Party party);
  bool is_paused(Party party) const;
  // Between the two nothing arrives until it is healed; then everything does, in order.
  void cut(Party a, Party b) { cuts_.emplace_back(a, b); }
  void heal();
  void mend(Party a, Party b);  // only between these
  bool is_cut(Party a, Party b) const override;
  // One chain in so many is held up for this long on its way; one in so many is reported as of unknown outcome,
  // before or after it takes effect.
  struct Mishaps {
    std::uint64_t delayed_one_in = 0;
    Duration delay{};
    std::uint64_t unknown_one_in = 0;
  };
  void set_mishaps(const Mishaps& mishaps) { mishaps_ = mishaps; }

 private:
  // In order on the way there and on the way back, per endpoint and MN.
  struct QueuePair {
    Time last_arrival;
    Time last_completion;
    std::uint32_t unit = 0;
    bool torn = false;                // a read is being sampled: what follows waits (F1)
    std::vector<std::uint32_t> held;  // flights that wait for that
  };
  struct Unit {
    bool blocked = false;
    std::deque<std::uint32_t> waiting;  // flights; if blocked, by the first of them
  };
  // Atomics on words of one slot take turns. Units that wait for it are served in the order in which
  // they came: no unit starves, whatever the others do.
  struct Slot {
    Time free;
    std::vector<std::uint32_t> waiting;  // units; at most all of them
    bool reserved = false;               // for the unit that is being served now
  };
  struct Nic {
    Time pipeline_free;
    std::int64_t inbound_free_ps = 0;
    std::int64_t outbound_free_ps = 0;
  };
  struct Torn {
    std::uint32_t flight;
    std::size_t begin;
    std::size_t end;
  };

  void on_post(Flight& flight) override;
  void carry_out(Flight& flight);
  void on_send(const Letter& letter) override;
  void on_arm(std::uint32_t worker, Timer& timer, Time when) override;
  void on_disarm(Timer& timer) override;

  void happen(const Event& event);
  bool keep_for_later(const Event& event);
  void arrive(Flight& flight);
  void end_torn_read(const Torn& torn);
  void work_off(std::uint32_t unit);
  bool serve(Flight& flight);
  Time serve_step(Flight& flight, Flight::Step& step, Nic& nic);
  Time read_words(Flight& flight, Flight::Step& step);

  QueuePair& pair_of(const Flight& flight);
  std::uint32_t slot_index(const Flight::Step& step) const {
    const auto per_nic = static_cast<std::uint64_t>(model_.atomic_slots);
    return static_cast<std::uint32_t>(step.addr.mn.value * per_nic + step.addr.offset / 8 % per_nic);
  }
  bool is_busy(const Slot& slot) const {
    return slot.free > now_ || (!slot.waiting.empty() && !slot.reserved);
  }
  void free_slot(std::uint32_t index);
  Duration way(std::int64_t base_ns);
  Time charge_cpu(std::uint32_t worker, std::int64_t ns);

  NicModel model_;
  Prng network_;
  Time now_;
  EventHeap heap_;
  std::uint64_t events_ = 0;

  std::vector<Time> core_free_;  // by worker
  std::vector<QueuePair> pairs_;
  std::vector<Unit> units_;  // all MNs' units in one row
  std::vector<Nic> nics_;
  std::vector<Slot> slots_;  // all MNs' in one row

  std::vector<Letter> letters_;
  std::vector<std::uint32_t> idle_letters_;
  std::unordered_map<std::uint64_t, Time> last_delivery_;  // by (from, to): messages stay in order

  std::vector<Torn> torn_;
  std::vector<std::uint32_t> idle_torn_;

  struct Alarm {
    Timer* timer;
    std::uint32_t worker;
  };
  std::vector<Alarm> timers_;
  std::vector<std::uint32_t> idle_timers_;

  struct Kept {
    Event event;
    Party for_whom;  // was paused
  };
  std::vector<Party> paused_;
  std::vector<std::pair<Party, Party>> cuts_;
  std::vector<Kept> kept_;
  std::vector<Event> held_up_;  // arrivals and letters between parties that are cut off
  bool at_once_ = false;
  Mishaps mishaps_;
};

}  // namespace declock::sim
