// What the locks of this process did: counts and latencies, per lock table.
//
// Thread-safety: plain values.
#ifndef DECLOCK_STATS_H
#define DECLOCK_STATS_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "declock/config.h"

namespace declock {

// How long something took, in powers of two: bucket i counts what took less than 2^i times 256 ns, and not less than
// the bucket before; the last one everything above as well.
struct Latency {
  static constexpr std::size_t kBuckets = 28;
  static constexpr std::uint64_t below_ns(std::size_t bucket) { return std::uint64_t{256} << bucket; }

  std::array<std::uint64_t, kBuckets> buckets{};
  std::uint64_t sum_ns = 0;

  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t n : buckets) sum += n;
    return sum;
  }
  // The upper end of the bucket that has the value which `permille` of a thousand do not exceed; 0 if there is none.
  std::uint64_t quantile_ns(unsigned permille) const {
    const std::uint64_t all = count();
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += buckets[i];
      if (seen > 0 && seen * 1000 >= all * permille) return below_ns(i);
    }
    return 0;
  }
  Latency& operator+=(const Latency& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) buckets[i] += other.buckets[i];
    sum_ns += other.sum_ns;
    return *this;
  }
  Latency& operator-=(const Latency& earlier) {
    for (std::size_t i = 0; i < kBuckets; ++i) buckets[i] -= earlier.buckets[i];
    sum_ns -= earlier.sum_ns;
    return *this;
  }
};

struct TableStats {
  std::string
      table;  // its name; "(names)": locks by name; "(embedded)": locks at addresses of the application. What is more than 64 tables
              // is counted with the last.
  std::uint64_t acquired_shared = 0;
  std::uint64_t acquired_exclusive = 0;
  std::uint64_t busy = 0;  // attempts that did not want to wait
  std::uint64_t timed_out = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t failed = 0;  // any other error, of acquisitions and releases
  // Acquisitions that are over at once, without sleeping, are timed one in 64, at random, and count 64 times here;
  // all others are timed.
  Latency wait{};  // from the call to the lock
  Latency hold{};  // from the lock to its release
};

struct Stats {
  std::vector<TableStats> tables;
  std::uint64_t hand_overs_local = 0;   // a client of this process got the lock from another one of it
  std::uint64_t hand_overs_remote = 0;  // from another process, by a message
  std::uint64_t resets = 0;             // of locks, by this process, after somebody failed
  std::uint64_t aborted = 0;            // acquisitions that a reset made try again
  // Operations on memory nodes, by kind (read, write, fetch_add, ...) and purpose (acquire, release, ...).
  struct Operations {
    std::string kind;
    std::string purpose;
    std::uint64_t count = 0;
  };
  std::vector<Operations> operations;
  std::uint64_t messages = 0;  // to other compute nodes
  std::uint64_t view = 0;      // the number of the membership view that this process knows
  std::uint64_t members = 0;   // in it
  std::uint64_t removals = 0;  // of members that were taken for dead, ever
};

}  // namespace declock

#endif
