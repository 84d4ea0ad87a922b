// Who coordinates a cluster, as a person writes it: HOST:PORT of the memory node that does, or zk://HOST:PORT,..[/NAME].
#pragma once

#include <string>

#include "member_net/net_node.h"

namespace declock::member {

inline bool is_zookeeper(const std::string& coordinator) {
  return coordinator.starts_with("zk://");
}

// For a compute node. REQUIRES: config.secret is set. An error is one line.
Result<void, std::string> set_coordinator(const std::string& coordinator, NetNodeConfig& config);

}  // namespace declock::member
