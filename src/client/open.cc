// How a process joins a cluster.
#include <fmt/format.h>

#include "base/random.h"
#include "client/core.h"
#include "member_shm/compute_node.h"
#include "member_zk/coordinator_option.h"
#include "networks/networks.h"
#include "wire/secret.h"

namespace declock::client {
namespace {

using Joined = Result<std::unique_ptr<member::Node>, std::string>;

constexpr std::uint32_t kMembers = 16;
constexpr std::uint32_t kMembersMax = HeaderLayout::kMembersMax;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 44;
constexpr std::uint64_t kBytes = std::uint64_t{16} << 20;
constexpr std::uint32_t kShmWorkers = 8;
constexpr std::uint32_t kNetWorkers = 4;

template <class T>
T or_else(T value, T otherwise) {
  return value != 0 ? value : otherwise;
}

Joined join_shm(const Target& target) {
  const Options& options = target.options;
  if (options.members > kMembersMax || options.size > kBytesMax)
    return Failure{fmt::format("{} members with {} bytes: at most {} and {}", options.members,
                               options.size, kMembersMax, kBytesMax)};
  member::ComputeNode::Config config;
  config.cluster.name = target.name;
  config.cluster.directory = options.directory;
  config.remove_when_last = options.remove_when_last;
  config.seed = unguessable_number();
  // What is not asked for is as it is, if it is there.
  const auto there = shm::Cluster::open_members(options.directory, target.name);
  if (!there && !options.create) return Failure{there.error()};
  const shm::SegmentHeader shape = there ? there->shape() : shm::SegmentHeader{};
  config.cluster.members = or_else(options.members, or_else(shape.members, kMembers));
  config.cluster.mn_bytes = or_else(options.size, or_else(shape.mn_bytes, kBytes));
  config.cluster.workers = or_else(shape.workers, or_else(options.workers, kShmWorkers));
  config.cluster.endpoints = config.cluster.workers;
  config.cluster.mns = or_else(shape.mns, 1U);
  auto joined = member::ComputeNode::join(config);
  if (!joined) return Failure{joined.error()};
  return std::unique_ptr<member::Node>{std::move(*joined)};
}

Joined join_network(const Target& target) {
  const Options& options = target.options;
  member::NetNodeConfig config;
  auto secret = wire::read_secret(options.secret);
  if (!secret) return Failure{secret.error()};
  config.secret = *secret;
  config.workers = config.endpoints = or_else(options.workers, kNetWorkers);
  config.host = options.host;
  config.seed = unguessable_number();
  config.patience = milliseconds(options.patience_ms);
  net::NetworkOptions network;
  network.network = target.fabric == Fabric::verbs ? Fabric::verbs : Fabric::tcp;
  network.device = options.device;
  network.port = options.port;
  network.gid_index = options.gid_index;
  network.mtu = options.mtu;
  config.transport = [network](const std::string& host) { return net::open_transport(network, host); };

  // An ensemble is one coordinator; of memory nodes the first that will have us is.
  std::vector<std::string> coordinators = target.hosts;
  if (!options.zookeeper.empty()) {
    std::string servers;
    for (const std::string& host : target.hosts) servers += (servers.empty() ? "" : ",") + host;
    coordinators = {fmt::format("zk://{}/{}", servers, options.zookeeper)};
  }
  std::string errors;
  for (const std::string& coordinator : coordinators) {
    const auto set = member::set_coordinator(coordinator, config);
    if (!set) return Failure{set.error()};
    auto joined = member::NetNode::join(config);
    if (joined) return std::unique_ptr<member::Node>{std::move(*joined)};
    errors += (errors.empty() ? "" : "; ") + joined.error();
  }
  return Failure{errors};
}

}  // namespace

Result<std::shared_ptr<Core>, Error> Core::open(std::string_view uri, const Options& options,
                                                bool looks_only) {
  Result<Target, std::string> target = parse_uri(uri, options);
  if (!target) return Failure{Error{Errc::invalid_argument, target.error()}};
  target->looks_only = looks_only;
  std::unique_ptr<TraceLog> trace;
  if (!target->options.trace.empty()) {
    auto opened = TraceLog::open(target->options.trace);
    if (!opened) return Failure{Error{Errc::invalid_argument, opened.error()}};
    trace = std::move(*opened);
  }
  Joined node = target->fabric == Fabric::shm ? join_shm(*target) : join_network(*target);
  if (!node) return Failure{Error{Errc::unavailable, node.error()}};
  const std::string metrics = target->options.metrics;
  // In a forked child it stays, with the threads that are not there: nothing of it can be ended.
  std::shared_ptr<Core> core{new Core{std::move(*target), std::move(*node)}, [](Core* last) {
                               if (last->standing_.load() != Standing::forked) delete last;
                             }};
  core->trace_ = std::move(trace);
  if (const auto started = core->start(); !started) {
    (void)core->close();
    return Failure{Error{started.error().code, fmt::format("{}: {}", uri, started.error().message)}};
  }
  if (!metrics.empty()) {
    const auto served = core->serve_metrics(metrics);
    if (!served) {
      (void)core->close();
      return Failure{served.error()};
    }
  }
  return core;
}

}  // namespace declock::client
