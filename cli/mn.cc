// declock mn: a memory node.
#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>

#include "base/units.h"
#include "cluster_options.h"
#include "exit_codes.h"
#include "member_zk/coordinator_option.h"
#include "memnode/memory_node.h"
#include "metrics/exporter.h"
#include "options.h"

namespace declock::cli {
namespace {

struct Options {
  memnode::Config config;
  net::NetworkOptions network;
  std::string fabric = "tcp";
  std::string listen = "127.0.0.1:7400";
  std::string size = "1GiB";
  std::string secret;
  std::string coordinator;
  std::string metrics;
};

memnode::MemoryNode* stopped_by_signal = nullptr;

void stop_on_signals(memnode::MemoryNode& node) {
  stopped_by_signal = &node;
  struct sigaction action {};
  action.sa_handler = [](int) { stopped_by_signal->stop(); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second one ends the program at once
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// With the time of day: these lines are read after the fact.
void log(const std::string& line) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%F %T", &local);
  fmt::print("{} {}\n", stamp, line);
  std::fflush(stdout);
}

// Ends before the node does.
std::unique_ptr<metrics::Exporter> serve_metrics(const std::string& at,
                                                 const memnode::MemoryNode& node) {
  if (at.empty()) return nullptr;
  auto endpoint = metrics::Exporter::open(at, [&node] { return families_of(node.snapshot()); });
  if (!endpoint) throw CannotRun("--" + endpoint.error());
  log(fmt::format("metrics are at port {}, under /metrics", (*endpoint)->port()));
  return std::move(*endpoint);
}

// As many descriptors as it may have: each worker of a compute node takes about a dozen.
void raise_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int run(Options& options) {
  const auto metrics_at = wire::parse_host_port(options.metrics);
  if (!options.metrics.empty() && !metrics_at) throw BadInput("--metrics " + metrics_at.error());
  memnode::Config& config = options.config;
  config.listen = or_bad_input(wire::parse_host_port(options.listen));
  if (config.listen.host == "0.0.0.0" || config.listen.host == "::") {
    throw BadInput(
        fmt::format("--listen {}: name one address of this machine, by which compute nodes reach it",
                    options.listen));
  }
  config.bytes = or_bad_input(parse_bytes(options.size)) / 8 * 8;
  if (config.bytes < 4096) throw BadInput(fmt::format("--size {}: at least 4KiB", options.size));
  config.secret = or_bad_input(wire::read_secret(options.secret));
  if (member::is_zookeeper(options.coordinator)) {
    config.other_coordinator =
        or_bad_input(member::zookeeper_link(options.coordinator, config.secret, config.shape, log));
  } else if (!options.coordinator.empty()) {
    config.coordinator = or_bad_input(wire::parse_host_port(options.coordinator));
  }
  if (options.coordinator.empty() && config.id != 0) {
    throw BadInput(
        fmt::format("--id {}: memory node 0 coordinates the cluster; give its address by --coordinator",
                    config.id));
  }
  if (!options.coordinator.empty() && !config.state_directory.empty())
    throw BadInput(
        "--state is for the memory node that coordinates the cluster, not for one with --coordinator");
  options.network.network = options.fabric == "verbs" ? Fabric::verbs : Fabric::tcp;
  config.expose = [network = options.network](const std::string& host, std::span<std::byte> memory) {
    return net::open_exposure(network, host, memory);
  };
  config.log = log;
  raise_limit();
  auto node = memnode::MemoryNode::open(config);
  if (!node) throw CannotRun(node.error());
  stop_on_signals(**node);
  log(fmt::format("memory node {} listens at {} with {} over {}{}", config.id,
                  to_string((*node)->address()), format_bytes(config.bytes), options.fabric,
                  !options.coordinator.empty() ? fmt::format(", coordinated by {}", options.coordinator)
                  : config.state_directory.empty() ? "; without --state a restart forgets the cluster"
                                                   : ""));
  const std::unique_ptr<metrics::Exporter> endpoint = serve_metrics(options.metrics, **node);
  const Result<void, std::string> ran = (*node)->run();
  if (!ran) throw CannotRun(ran.error());
  log("stopped; its memory is gone");
  return kFine;
}

}  // namespace

Action add_mn(Command program) {
  Command app =
      program.add_command("mn", "A memory node: memory and locks for compute nodes on the network");
  auto options = std::make_shared<Options>();
  memnode::Config& c = options->config;
  app.add_option("--fabric", options->fabric, "How its memory is reached")
      .check(one_of({"tcp", "verbs"}));
  app.add_option("--listen", options->listen, "An address of this machine, and a port")
      .type_name("HOST:PORT");
  app.add_option("--size", options->size, "Of its memory").type_name("SIZE");
  app.add_option("--secret", options->secret, "The cluster's secret; 'declock secret FILE' makes one")
      .required()
      .type_name("FILE");
  app.add_option("--id", c.id,
                 "Which memory node of the cluster this is; without ZooKeeper 0 coordinates it")
      .check(whole_number(0, member::kMnsMax - 1));
  app.add_option(
         "--coordinator", options->coordinator,
         "Where memory node 0 listens, or a ZooKeeper ensemble; not given: this node coordinates")
      .type_name("HOST:PORT|zk://HOST:PORT,..[/NAME]");
  app.add_option("--state", c.state_directory,
                 "What the coordinator remembers across restarts is kept there")
      .type_name("DIR");
  app.add_option("--metrics", options->metrics,
                 "Serves what it does to Prometheus there, under /metrics")
      .type_name("HOST:PORT");
  app.add_option("--members", c.shape.members, "Of a new cluster: compute nodes at a time")
      .check(whole_number(1, member::kMembersMax));
  app.add_option("--endpoints", c.shape.endpoints,
                 "Of a new cluster: endpoints per compute node at most")
      .check(whole_number(1, member::kMembersMax));
  app.add_duration("--lease", c.shape.lease, "Who is silent for so long is taken for dead",
                   milliseconds(10), seconds(3600));
  add_verbs_options(app, options->network);
  return [options] { return run(*options); };
}

}  // namespace declock::cli
