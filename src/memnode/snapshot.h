// What a memory node tells of itself, and its Prometheus families. docs/grafana has a dashboard and alerts that use them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "metrics/family.h"

namespace declock::memnode {

struct Snapshot {
  std::uint16_t id = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t names = 0;        // of allocations
  std::uint32_t incarnation = 0;  // 0: it is not part of the cluster yet
  // The cluster, as far as this node knows:
  std::uint64_t view = 0;
  std::uint64_t members = 0;
  std::uint64_t members_max = 0;
  std::uint64_t removals = 0;
  std::uint64_t memory_nodes = 0;  // that serve
  // Since it was started:
  std::uint64_t fences = 0;
  std::uint64_t connections_refused = 0;
  Duration uptime{};
};

std::vector<metrics::Family> families_of(const Snapshot& snapshot);

}  // namespace declock::memnode
