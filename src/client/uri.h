// What a URI says: which cluster, over which fabric, and with which options (include/declock/cluster.h lists them).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "declock/cluster.h"
#include "fabric/kind.h"

namespace declock::client {

struct Target {
  Fabric fabric = Fabric::shm;     // but not sim
  std::string name;                // shm
  std::vector<std::string> hosts;  // tcp and verbs: HOST:PORT
  Options options;
  bool looks_only = false;  // takes no locks
};

// An error says what is wrong, and what is accepted.
Result<Target, std::string> parse_uri(std::string_view uri, const Options& options);

}  // namespace declock::client
