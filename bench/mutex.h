// The library's lock beside those that threads and processes use otherwise: what SharedMutex costs alone and contended, what
// a coroutine client costs, and how late their time-outs are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "base/time.h"

namespace declock::bench {

struct MutexConfig {
  std::string uri;                       // of the cluster; empty: one of its own in shared memory
  Duration duration = milliseconds(50);  // of each measurement of a mutex
  std::uint32_t rounds = 5;              // of which the median counts
  std::uint32_t operations = 200'000;    // of a coroutine client
  std::uint32_t timeouts = 200;          // of each kind
  Duration timeout = milliseconds(5);
};

struct MutexResult {
  std::vector<std::string> locks;
  // Nothing where a lock cannot be used so, or nothing is known.
  struct Row {
    std::string what;
    std::vector<std::optional<double>> values;  // by lock
  };
  std::vector<Row> ns;            // lock and unlock
  std::vector<Row> instructions;  // the same
  std::vector<Row> overtakes;     // per acquisition
  std::uint64_t lost_updates = 0;
  double client_exclusive_ns = 0;
  double client_shared_ns = 0;
  struct Lateness {
    std::string what;
    std::uint64_t early;  // must be 0
    Histogram late_ns;
  };
  std::vector<Lateness> lateness;
};

// Calls `progress` before each part; what it throws ends the run. Throws std::runtime_error.
MutexResult run_mutex(const MutexConfig& config, const std::function<void(std::string_view)>& progress);

std::string table(const MutexResult& result);
std::string to_json(const MutexConfig& config, const MutexResult& result, std::string_view commit);

}  // namespace declock::bench
