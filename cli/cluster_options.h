// How a command finds its cluster over a network.
#pragma once

#include <string>

#include "member_net/net_node.h"
#include "networks/networks.h"
#include "options.h"

namespace declock::cli {

struct ClusterOptions {
  std::string fabric = "tcp";
  std::string coordinator;
  std::string secret;
  net::NetworkOptions network;
};

// --fabric, --coordinator, --secret, and those of verbs.
void add_cluster_options(Command app, ClusterOptions& options);

// For a compute node. Throws BadInput.
member::NetNodeConfig node_config(const ClusterOptions& options);
// Throws CannotRun.
std::unique_ptr<member::NetNode> join(const member::NetNodeConfig& config);

// The value, or BadInput with the error.
template <class T>
T or_bad_input(Result<T, std::string> result);

}  // namespace declock::cli

#include "commands.h"

template <class T>
T declock::cli::or_bad_input(Result<T, std::string> result) {
  if (!result) throw BadInput(result.error());
  return std::move(*result);
}
