// DecLock beside the locks that a machine's processes use otherwise, in the same run: what lock and unlock cost when
// nobody else is there, and what is left when two processes contend.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace declock::bench {

// Those that are compared.
const std::vector<std::string>& peer_names();

struct PeersConfig {
  std::string lock = "all";
  std::uint32_t processes = 2;  // that contend
  double read_ratio = 0.5;
  Duration duration = milliseconds(500);  // of each measurement
  std::uint32_t rounds = 3;  // of which the best counts: the machine has other things to do
  std::uint64_t seed = 1;
};

struct PeerResult {
  std::string lock;
  double exclusive_ns = 0;  // lock + unlock, alone
  double shared_ns = 0;
  double contended_mops = 0;
  double overtakes = 0;  // per acquisition, contended, in a run that watches
  std::uint64_t overtakes_max = 0;
  std::uint64_t lost_updates = 0;
};

// Calls `progress` now and then with the lock that is measured; what it throws ends the run. Throws std::runtime_error.
std::vector<PeerResult> run_peers(const PeersConfig& config,
                                  const std::function<void(std::string_view)>& progress);

std::string to_json(const PeersConfig& config, const std::vector<PeerResult>& results,
                    std::string_view commit);
std::string table(const PeersConfig& config, const std::vector<PeerResult>& results);

}  // namespace declock::bench
