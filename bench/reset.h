// How long a reset takes (paper section 6.6): all clients use one lock, and now and then some node resets it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "sim/nic.h"

namespace declock::bench {

struct ResetConfig {
  std::uint32_t cns = 8;
  std::uint32_t clients = 32;  // per CN
  std::uint32_t resets = 100;
  std::uint64_t seed = 1;
  sim::NicModel nic;
};

struct ResetResult {
  ResetConfig config;
  Histogram took_ns;  // from the claimant's first look at the header to its restored one
};

ResetResult run_reset(const ResetConfig& config);

// Clients 8 to 256 on 8 compute nodes, then 2 to 128 compute nodes.
std::vector<ResetConfig> reset_series(std::uint64_t seed, std::uint32_t resets);

std::string reset_table(const std::vector<ResetResult>& results);
std::string reset_json(const std::vector<ResetResult>& results, std::string_view commit);

}  // namespace declock::bench
