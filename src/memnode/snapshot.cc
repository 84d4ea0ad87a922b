#include "memnode/snapshot.h"

#include <string>

namespace declock::memnode {

std::vector<metrics::Family> families_of(const Snapshot& s) {
  const auto one = [&](std::uint64_t value) {
    return std::vector{metrics::sample(value, {{"mn", std::to_string(s.id)}})};
  };
  std::vector<metrics::Sample> uptime = one(0);
  uptime.front().value = static_cast<double>(s.uptime.ns) / 1e9;
  return {
      metrics::gauge("declock_memory_node_memory_bytes", "Memory that it has.", one(s.memory_bytes)),
      metrics::gauge("declock_memory_node_allocated_bytes", "Of these, given to a name.",
                     one(s.allocated_bytes)),
      metrics::gauge("declock_memory_node_names", "Names that have memory.", one(s.names)),
      metrics::gauge("declock_memory_node_incarnation",
                     "Grows whenever it starts with fresh memory; 0: not part of the cluster yet.",
                     one(s.incarnation)),
      metrics::gauge("declock_memory_node_uptime_seconds", "Since it was started.", uptime),
      metrics::counter("declock_memory_node_fences_total",
                       "Compute nodes whose access was taken away, since they failed or left.",
                       one(s.fences)),
      metrics::counter("declock_memory_node_connections_refused_total",
                       "Peers with another secret, another version, or garbage, since it was started.",
                       one(s.connections_refused)),
      metrics::gauge("declock_cluster_view", "Number of the membership view.", one(s.view)),
      metrics::gauge("declock_cluster_members", "Compute nodes in the view.", one(s.members)),
      metrics::gauge("declock_cluster_members_limit", "Compute nodes that the cluster admits.",
                     one(s.members_max)),
      metrics::gauge("declock_cluster_memory_nodes", "Memory nodes that serve.", one(s.memory_nodes)),
      metrics::counter("declock_cluster_removals_total",
                       "Compute nodes that were taken for dead, since the cluster was made.",
                       one(s.removals)),
  };
}

}  // namespace declock::memnode
