// How long a lock is out of use when its holder is killed: processes on this machine that all want one lock, and whoever
// holds it is killed, again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/histogram.h"
#include "bench/micro.h"

namespace declock::bench {

struct RecoveryConfig {
  Fabric fabric = Fabric::shm;
  Duration lease = milliseconds(300);  // on a network
  net::NetworkOptions network{};
  std::uint32_t processes = 4;
  std::uint32_t kills = 100;
  std::uint64_t seed = 1;
};

struct RecoveryResult {
  RecoveryConfig config;
  Histogram took_ns;  // from the signal to the next holder
};

// Calls `progress` with the kills so far. Throws std::runtime_error, also if nobody gets the lock within 30 s.
RecoveryResult run_recovery(const RecoveryConfig& config,
                            const std::function<void(std::uint32_t)>& progress);

std::string recovery_json(const RecoveryResult& result, std::string_view commit);
std::string recovery_summary(const RecoveryResult& result);

}  // namespace declock::bench
