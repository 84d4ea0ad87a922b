// What one worker's locks did, for Cluster::stats(), `declock top` and traces. Written by whoever runs the worker, read by
// anybody at any time: every word is an atomic of its own, and what is read together may be a little apart.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/tally.h"
#include "client/report.h"
#include "client/trace.h"
#include "declock/lock_ref.h"
#include "declock/stats.h"
#include "lock/lock.h"

namespace declock::client {

class Recorder {
 public:
  static constexpr std::uint32_t kTables = 64;  // what has a higher number is counted with the last
  static constexpr std::uint32_t kOneIn =
      64;  // acquisitions that are over at once are timed, on the average

  void trace(TraceLog* log) { trace_ = log; }

  // So many acquisitions until the next that is to be timed, where not all are.
  std::uint32_t until_timed() {
    // At random: what a program does in turn is all timed at times.
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    return static_cast<std::uint32_t>(1 + (random_ >> 33) % (2 * kOneIn - 1));
  }

  void begins() { waiting_.add(); }
  // `called`: when it was asked for; 0: not timed. `counts`: for so many acquisitions.
  void acquired(const LockRef& lock, Held& held, std::int64_t called_ns, std::int64_t now_ns,
                std::uint32_t counts, bool waited);
  // Acquisitions that are not timed: so many that did not wait, that waited for others of this process, and for others elsewhere.
  void acquired_often(const LockRef& lock, Mode mode, std::uint64_t at_once, std::uint64_t here,
                      std::uint64_t elsewhere);
  void released_often(std::uint64_t n) { released_.add(n); }
  // The times of one.
  void time(const LockRef& lock, Held& held, std::int64_t called_ns, std::int64_t now_ns,
            std::uint32_t counts, bool waited);
  void held_for(const LockRef& lock, std::int64_t ns, std::uint32_t counts);
  void gave_up(const LockRef& lock, Errc why);
  void release_begins(const LockRef& lock, const Held& held, std::int64_t now_ns);
  void release_ends(const LockRef& lock, const Held& held, std::int64_t began_ns, std::int64_t now_ns,
                    Errc error);

  std::uint64_t waiting() const { return waiting_.get() - waited_.get(); }
  std::uint64_t holding() const { return acquired_.get() - released_.get(); }

  // Adds what this worker did to what others did.
  void add_to(std::vector<TableStats>& tables) const;
  void add_to(Stats& stats) const;
  void add_to(std::vector<HotLock>& hot) const;

 private:
  struct LatencyCounts {
    std::array<Tally, Latency::kBuckets> buckets;
    Tally sum_ns;
    void add(std::int64_t ns, std::uint32_t counts);
    void add_to(Latency& latency) const;
  };
  struct Table {
    Tally acquired_shared;
    Tally acquired_exclusive;
    Tally busy;
    Tally timed_out;
    Tally cancelled;
    Tally failed;
    LatencyCounts wait;
    LatencyCounts hold;
  };
  // Locks that are used much: a place by address, for whoever uses it most of late.
  struct Place {
    Tally lock;
    Tally acquired;
    Tally waited;
    Tally wait_ns;
    Tally held;
    Tally hold_ns;
    std::uint32_t stays = 0;  // so many others go away unnoticed
  };
  static constexpr std::size_t kPlaces = 256;

  Table& table(const LockRef& lock) {
    std::atomic<Table*>& at = tables_[lock.table < kTables ? lock.table : kTables - 1];
    Table* table = at.load(std::memory_order_relaxed);  // only its worker writes it
    return table != nullptr ? *table : new_table(at);
  }
  Table& new_table(std::atomic<Table*>& at);
  Place* place(const LockRef& lock) {
    constexpr std::uint32_t kStaysMax = 64;
    const std::uint64_t key = lock.at.packed() + 1;  // 0: nobody
    Place& at = places_[(key * 0x9E3779B97F4A7C15) >> 56];
    if (at.lock.get() != key) {
      if (at.stays > 0) {
        at.stays -= 1;
        return nullptr;
      }
      for (Tally* count : {&at.acquired, &at.waited, &at.wait_ns, &at.held, &at.hold_ns}) count->set(0);
      at.lock.set(key);
    }
    if (at.stays < kStaysMax) at.stays += 1;
    return &at;
  }

  TraceLog* trace_ = nullptr;
  std::uint64_t random_ = 0;
  Tally waiting_;
  Tally waited_;
  Tally acquired_;
  Tally released_;
  Tally local_;
  Tally remote_;
  std::array<std::atomic<Table*>, kTables> tables_{};
  std::vector<std::unique_ptr<Table>> own_tables_;
  std::array<Place, kPlaces> places_;
};

}  // namespace declock::client
