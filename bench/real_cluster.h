// The cluster of a benchmark between processes on this machine: in shared memory, or with memory nodes of its own that are
// reached over a network. Made by the parent; each compute node's process joins it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "bench/micro.h"
#include "member/node.h"

namespace declock::bench {

class RealCluster {
 public:
  virtual ~RealCluster() = default;

  // In the process of a compute node, as the member in this slot, or in any. Throws std::runtime_error.
  virtual std::unique_ptr<member::Node> join(std::optional<std::uint32_t> slot) = 0;
  // Per compute node; number i belongs to worker i mod workers.
  virtual std::uint32_t endpoints() const = 0;
  // A word of a memory node, from a compute node's process at no cost, if the fabric has a way.
  virtual std::optional<std::uint64_t> look(RemoteAddr addr) = 0;

  // For the parent.
  virtual void all_have_joined() {}
  virtual std::uint64_t word(RemoteAddr addr) = 0;
  // What went wrong with a memory node, if something did.
  virtual std::string failure() { return {}; }
};

// Throws std::runtime_error.
std::unique_ptr<RealCluster> make_real_cluster(const MicroConfig& config, std::uint32_t endpoints,
                                               std::uint64_t mn_bytes);

// The address of the network namespace that this process is in: the first that is not the loopback's.
std::string own_address();
// Goes to that network namespace. Throws std::runtime_error.
void enter_namespace(const std::string& name);

}  // namespace declock::bench
