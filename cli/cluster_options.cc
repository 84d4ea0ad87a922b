#include "cluster_options.h"

#include <fmt/format.h>

#include "member_zk/zk_compute_link.h"
#include "options.h"

namespace declock::cli {

void add_cluster_options(CLI::App& app, ClusterOptions& options) {
  app.add_option("--fabric", options.fabric, "How the cluster's memory is reached")
      ->check(one_of({"tcp", "verbs"}));
  app.add_option("--coordinator", options.coordinator,
                 "Where memory node 0 listens, or a ZooKeeper ensemble")
      ->required()
      ->type_name("HOST:PORT|zk://HOST:PORT,..[/NAME]");
  app.add_option("--secret", options.secret, "The cluster's secret")->required()->type_name("FILE");
  add_verbs_options(app, options.network);
}

member::NetNodeConfig node_config(const ClusterOptions& options) {
  member::NetNodeConfig config;
  config.secret = or_bad_input(wire::read_secret(options.secret));
  if (is_zookeeper(options.coordinator)) {
    const member::ZkAddress at = or_bad_input(member::parse_zk_url(options.coordinator));
    // Where others reach this machine: at the address from which it reaches the first server.
    config.coordinator =
        or_bad_input(wire::parse_host_port(at.servers.substr(0, at.servers.find(','))));
    config.other_coordinator = [at, secret = config.secret](wire::Hub& hub,
                                                            member::ComputeLink::Events& events) {
      return std::make_unique<member::ZkComputeLink>(hub, events, at, secret);
    };
  } else {
    config.coordinator = or_bad_input(wire::parse_host_port(options.coordinator));
  }
  net::NetworkOptions network = options.network;
  network.network = options.fabric == "verbs" ? net::Network::verbs : net::Network::tcp;
  config.transport = [network](const std::string& host) { return net::open_transport(network, host); };
  return config;
}

std::unique_ptr<member::NetNode> join(const member::NetNodeConfig& config) {
  auto node = member::NetNode::join(config);
  if (!node) throw CannotRun(node.error());
  return std::move(*node);
}

}  // namespace declock::cli
