#include "cluster_options.h"

#include <fmt/format.h>

#include "member_zk/coordinator_option.h"
#include "options.h"

namespace declock::cli {

void add_cluster_options(Command app, ClusterOptions& options) {
  app.add_option("--fabric", options.fabric, "How the cluster's memory is reached")
      .check(one_of({"tcp", "verbs"}));
  app.add_option("--coordinator", options.coordinator,
                 "Where memory node 0 listens, or a ZooKeeper ensemble")
      .required()
      .type_name("HOST:PORT|zk://HOST:PORT,..[/NAME]");
  app.add_option("--secret", options.secret, "The cluster's secret").required().type_name("FILE");
  add_verbs_options(app, options.network);
}

member::NetNodeConfig node_config(const ClusterOptions& options) {
  member::NetNodeConfig config;
  config.secret = or_bad_input(wire::read_secret(options.secret));
  const auto set = member::set_coordinator(options.coordinator, config);
  if (!set) throw BadInput(set.error());
  net::NetworkOptions network = options.network;
  network.network = options.fabric == "verbs" ? Fabric::verbs : Fabric::tcp;
  config.transport = [network](const std::string& host) { return net::open_transport(network, host); };
  return config;
}

std::unique_ptr<member::NetNode> join(const member::NetNodeConfig& config) {
  auto node = member::NetNode::join(config);
  if (!node) throw CannotRun(node.error());
  return std::move(*node);
}

}  // namespace declock::cli
