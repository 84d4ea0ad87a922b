// Who coordinates a cluster, as a person writes it: HOST:PORT of the memory node that does, or zk://HOST:PORT,..[/NAME].
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "member_net/links.h"
#include "member_net/net_node.h"

namespace declock::member {

inline bool is_zookeeper(const std::string& coordinator) {
  return coordinator.starts_with("zk://");
}

// For a compute node. REQUIRES: config.secret is set. An error is one line.
Result<void, std::string> set_coordinator(const std::string& coordinator, NetNodeConfig& config);

// For a memory node, of a ZooKeeper ensemble. `shape`: of the cluster, if there is none yet. An error is one line.
using NewMemoryLink = std::function<std::unique_ptr<MemoryLink>(wire::Hub&, MemoryLink::Events&)>;
Result<NewMemoryLink, std::string> zookeeper_link(const std::string& coordinator,
                                                  const wire::Secret& secret, const ClusterShape& shape,
                                                  std::function<void(const std::string&)> log);

}  // namespace declock::member
