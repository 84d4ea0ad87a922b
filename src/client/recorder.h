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
      16;  // acquisitions that are over at once are timed, on the average

  void trace(TraceLog* log) { trace_ = log; }

  // Before an acquisition that may be over at once: is it to be timed?
  bool times_this_one() {
    if (trace_ != nullptr) return true;
    if (untimed_ > 0) {
      untimed_ -= 1;
      return false;
    }
    // At random: a program that uses two locks in turn has both of them timed.
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    untimed_ = static_cast<std::uint32_t>((random_ >> 33) % (2 * kOneIn - 1));
    return true;
  }

  void begins() { waiting_.add(); }
  // `called`: when it was asked for; 0: not timed. `counts`: for so many acquisitions.
  void acquired(const LockRef& lock, Held& held, std::int64_t called_ns, std::int64_t now_ns,
                std::uint32_t counts, bool waited);
  // So many that did not wait, and are not timed.
  void acquired_at_once(const LockRef& lock, Mode mode, std::uint64_t n) {
    acquired_.add(n);
    Table& t = table(lock);
    (mode == Mode::shared ? t.acquired_shared : t.acquired_exclusive).add(n);
    if (Place* hot = place(lock)) hot->acquired.add(n);
  }
  void released_at_once(std::uint64_t n) { released_.add(n); }
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
  std::uint32_t untimed_ = 0;  // so many before the next that is
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
