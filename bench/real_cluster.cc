#include "bench/real_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/check.h"
#include "base/futex.h"
#include "bench/processes.h"
#include "bench/temporary_names.h"
#include "member_net/net_node.h"
#include "member_shm/compute_node.h"
#include "memnode/memory_node.h"

namespace declock::bench {
namespace {

std::optional<Slot> as_slot(std::optional<std::uint32_t> number) {
  if (!number) return {};
  return Slot{static_cast<std::uint16_t>(*number)};
}

class ShmCluster final : public RealCluster {
 public:
  ShmCluster(const MicroConfig& config, std::uint32_t endpoints, std::uint64_t mn_bytes)
      : config_(cluster_config(config, endpoints, mn_bytes)), seed_(config.seed), names_(config_) {
    auto opened = shm::Cluster::open_or_create(config_);
    if (!opened) throw std::runtime_error(opened.error());
    cluster_.emplace(std::move(*opened));
  }

  std::unique_ptr<member::Node> join(std::optional<std::uint32_t> slot) override {
    auto joined = member::ComputeNode::join({.cluster = config_, .seed = seed_, .names_may_go = true},
                                            as_slot(slot));
    if (!joined) throw std::runtime_error(joined.error());
    return std::move(*joined);
  }
  std::uint32_t endpoints() const override { return config_.endpoints; }
  std::optional<std::uint64_t> look(RemoteAddr addr) override { return word(addr); }
  void all_have_joined() override { names_.remove(); }
  std::uint64_t word(RemoteAddr addr) override { return cluster_->word(addr).load(); }

 private:
  static shm::ClusterConfig cluster_config(const MicroConfig& config, std::uint32_t endpoints,
                                           std::uint64_t mn_bytes) {
    shm::ClusterConfig cluster;
    cluster.name = fmt::format("bench-{}", getpid());
    cluster.members = config.cns;
    cluster.workers = config.workers;
    cluster.endpoints = endpoints;
    cluster.mns = config.mns;
    cluster.mn_bytes = mn_bytes;
    return cluster;
  }

  shm::ClusterConfig config_;
  std::uint64_t seed_;
  TemporaryNames names_;
  std::optional<shm::Cluster> cluster_;
};

class NetCluster final : public RealCluster {
 public:
  NetCluster(const MicroConfig& config, std::uint32_t endpoints, std::uint64_t mn_bytes)
      : config_(config), endpoints_(endpoints), shared_(sizeof(Place) * (config.mns + std::size_t{1})) {
    config_.network.network = config.fabric == Fabric::verbs ? Fabric::verbs : Fabric::tcp;
    net::load(config_.network);
    CHECK(getrandom(secret_.key.data(), secret_.key.size(), 0) ==
          static_cast<ssize_t>(secret_.key.size()));
    places_ = shared_.take<Place>(config.mns);
    for (std::uint32_t mn = 0; mn < config.mns; ++mn) {
      memories_.push_back(std::make_unique<SharedBytes>(mn_bytes + 64));
      std::byte* at = memories_[mn]->take<std::byte>(mn_bytes);
      memory_.push_back({at, mn_bytes});
      memory_nodes_.start([&, mn] { be_memory_node(mn); });
      const Time latest = monotonic_now() + seconds(10);
      while (places_[mn].port.load() == 0) {
        if (const std::string why = failure(); !why.empty()) throw std::runtime_error(why);
        if (monotonic_now() > latest) throw std::runtime_error("a memory node does not start");
        usleep(1000);
      }
    }
  }

  std::unique_ptr<member::Node> join(std::optional<std::uint32_t> slot) override {
    if (!config_.namespaces.empty())
      enter_namespace(config_.namespaces[1 + slot.value_or(0) % (config_.namespaces.size() - 1)]);
    member::NetNodeConfig node;
    node.coordinator = place_of(0);
    node.secret = secret_;
    node.workers = config_.workers;
    node.endpoints = endpoints_;
    node.slot = as_slot(slot);
    node.seed = config_.seed;
    node.transport = [this](const std::string& host) {
      return net::open_transport(config_.network, host);
    };
    auto joined = member::NetNode::join(node);
    if (!joined) throw std::runtime_error(joined.error());
    return std::move(*joined);
  }
  std::uint32_t endpoints() const override { return endpoints_; }
  std::optional<std::uint64_t> look(RemoteAddr) override { return {}; }
  std::uint64_t word(RemoteAddr addr) override {
    auto* words = reinterpret_cast<std::uint64_t*>(memory_[addr.mn.value].data());
    return std::atomic_ref{words[addr.offset / 8]}.load();
  }
  std::string failure() override { return memory_nodes_.failure(); }

 private:
  // Where a memory node is.
  struct Place {
    std::array<char, 64> host;
    std::atomic<std::uint16_t> port;  // 0: not yet
  };
  wire::HostPort place_of(std::uint32_t mn) const {
    return {places_[mn].host.data(), places_[mn].port.load()};
  }

  void be_memory_node(std::uint32_t mn) {
    if (!config_.namespaces.empty()) enter_namespace(config_.namespaces[0]);
    memnode::Config node;
    node.listen.host = config_.namespaces.empty() ? "127.0.0.1" : own_address();
    node.id = static_cast<std::uint16_t>(mn);
    node.secret = secret_;
    node.memory = memory_[mn];
    node.shape.members = config_.cns;
    node.shape.endpoints = endpoints_;
    node.shape.lease = config_.lease;
    if (mn > 0) node.coordinator = place_of(0);
    node.expose = [this](const std::string& host, std::span<std::byte> memory) {
      return net::open_exposure(config_.network, host, memory);
    };
    auto opened = memnode::MemoryNode::open(node);
    if (!opened) throw std::runtime_error(opened.error());
    std::strncpy(places_[mn].host.data(), node.listen.host.c_str(), places_[mn].host.size() - 1);
    places_[mn].port.store((*opened)->address().port);
    const Result<void, std::string> ran = (*opened)->run();
    if (!ran) throw std::runtime_error(ran.error());
  }

  MicroConfig config_;
  std::uint32_t endpoints_;
  wire::Secret secret_;
  SharedBytes shared_;
  Place* places_ = nullptr;
  std::vector<std::unique_ptr<SharedBytes>> memories_;
  std::vector<std::span<std::byte>> memory_;
  Children memory_nodes_;
};

}  // namespace

std::unique_ptr<RealCluster> make_real_cluster(const MicroConfig& config, std::uint32_t endpoints,
                                               std::uint64_t mn_bytes) {
  if (config.fabric == Fabric::shm) return std::make_unique<ShmCluster>(config, endpoints, mn_bytes);
  return std::make_unique<NetCluster>(config, endpoints, mn_bytes);
}

std::string own_address() {
  ifaddrs* all = nullptr;
  std::string found;
  if (getifaddrs(&all) != 0) throw std::runtime_error("no network addresses can be listed");
  for (const ifaddrs* i = all; i != nullptr && found.empty(); i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET ||
        (i->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text.data(),
              text.size());
    found = text.data();
  }
  freeifaddrs(all);
  if (found.empty())
    throw std::runtime_error("this network namespace has no address but the loopback's");
  return found;
}

void enter_namespace(const std::string& name) {
  const std::string path = "/run/netns/" + name;
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = descriptor >= 0 && setns(descriptor, CLONE_NEWNET) == 0;
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (!entered)
    throw std::runtime_error(fmt::format("--namespaces: {}: {}; `ip netns add {}` makes one, as root",
                                         path, std::strerror(error), name));
}

}  // namespace declock::bench
