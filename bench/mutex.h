// The public API beside the standard library's lock: what SharedMutex and a coroutine client cost when nobody is in the way,
// and how late their time-outs are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "base/time.h"

namespace declock::bench {

struct MutexConfig {
  std::string uri;                     // of the cluster; empty: one of its own in shared memory
  std::uint32_t operations = 200'000;  // of each kind
  std::uint32_t timeouts = 200;        // of each kind
  Duration timeout = milliseconds(5);
};

struct MutexResult {
  struct Cost {
    std::string what;
    double exclusive_ns;  // lock and unlock
    double shared_ns;
  };
  std::vector<Cost> costs;
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
