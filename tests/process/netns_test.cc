// Three hosts on this machine, in network namespaces that are joined by a bridge: cut off, and on a slow, lossy network.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "process/net_cluster.h"

namespace declock::process {
namespace {

// By its path: some shells have a smaller one of that name inside.
const std::string kIp = "/sbin/ip";

class Hosts {
 public:
  static constexpr int kCount = 3;

  Hosts() {
    (void)shell(kIp + " netns del " + bridge());
    up_ = shell(kIp + " netns add " + bridge()) && in(bridge(), kIp + " link add br0 type bridge") &&
          in(bridge(), kIp + " link set br0 up");
    for (int i = 0; i < kCount && up_; ++i) {
      (void)shell(kIp + " netns del " + name(i));
      up_ = shell(kIp + " netns add " + name(i)) &&
            shell(fmt::format("{} link add eth0 netns {} type veth peer name port{} netns {}", kIp,
                              name(i), i, bridge())) &&
            in(bridge(), fmt::format("{} link set port{} master br0", kIp, i)) && set_cable(i, true) &&
            in(name(i), fmt::format("{} address add {}/24 dev eth0", kIp, address(i))) &&
            in(name(i), kIp + " link set eth0 up") && in(name(i), kIp + " link set lo up");
    }
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
  ~Hosts() {
    for (int i = 0; i < kCount; ++i) (void)shell(kIp + " netns del " + name(i));
    (void)shell(kIp + " netns del " + bridge());
  }

  bool are_up() const { return up_; }
  // Tests may run beside each other.
  static std::string bridge() { return fmt::format("dl{}-net", getpid()); }
  static std::string name(int host) { return fmt::format("dl{}-{}", getpid(), host); }
  static std::string address(int host) { return fmt::format("10.78.0.{}", host + 1); }
  // The wire between a host and the others.
  bool set_cable(int host, bool plugged) const {
    return in(bridge(), fmt::format("{} link set port{} {}", kIp, host, plugged ? "up" : "down"));
  }
  // What one host sends to another vanishes, or does not. Connections stay as they are.
  bool set_reachable(int from, int to, bool reachable) const {
    return in(name(from),
              fmt::format("{} route {} blackhole {}", kIp, reachable ? "del" : "add", address(to)));
  }
  // The end of every connection to that host, here; the other end hears of it if it can be reached.
  bool kill_connections(int at, int to) const { return in(name(at), "/bin/ss -K dst " + address(to)); }
  bool set_quality(int host, const std::string& netem) const {
    return in(name(host), "/sbin/tc qdisc add dev eth0 root netem " + netem);
  }

 private:
  static bool shell(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  static bool in(const std::string& name_space, const std::string& command) {
    return shell(kIp + " netns exec " + name_space + " " + command);
  }
  bool up_ = false;
};

// A lease that a machine keeps on which others run, and whose kernel stands still for seconds.
constexpr Duration kNobodyDies = seconds(90);

class Namespaces : public testing::Test {
 protected:
  void SetUp() override {
    if (!hosts_.are_up())
      GTEST_SKIP()
          << "no network namespaces with veth and a bridge here; this needs root, and iproute2";
  }
  // The memory node on host 0, processes 0, 2, .. on host 1 and 1, 3, .. on host 2.
  NetCluster& start(std::size_t count, Duration lease, const std::string& work = "0") {
    cluster_ = std::make_unique<NetCluster>(lease);
    cluster_->set_reader_namespace(Hosts::name(0));
    cluster_->start_mn(0, Hosts::address(0) + ":0", {kIp, "netns", "exec", Hosts::name(0)});
    for (std::size_t i = 0; i < count; ++i)
      cluster_->start(i, 0, {kIp, "netns", "exec", Hosts::name(1 + static_cast<int>(i) % 2)}, work);
    cluster_->expect_progress();
    return *cluster_;
  }

  Hosts hosts_;
  std::unique_ptr<NetCluster> cluster_;
};

TEST_F(Namespaces, AHostThatIsCutOffIsEvictedAndToldSoWhenItIsBack) {
  NetCluster& cluster = start(2, seconds(3));
  // Four clients of that host want four locks, and hold some.
  ASSERT_TRUE(hosts_.set_cable(1, false));
  const std::uint64_t told = cluster.control().stations[0].evictions.load();
  EXPECT_TRUE(cluster.is_removed(0));
  cluster.expect_progress(0);
  ASSERT_TRUE(hosts_.set_cable(1, true));
  EXPECT_TRUE(cluster.is_told(0, told));
  cluster.expect_progress();
  cluster.stop_all();
  cluster.expect_updates(0, cluster.control().evictions() * kClients);
}

TEST_F(Namespaces, AShortInterruptionIsNothing) {
  NetCluster& cluster = start(2, kNobodyDies);
  for (int round = 0; round < 3 && !HasFatalFailure(); ++round) {
    ASSERT_TRUE(hosts_.set_cable(1, false));
    usleep(100'000);  // which is all that it is
    ASSERT_TRUE(hosts_.set_cable(1, true));
    cluster.expect_progress();
  }
  cluster.stop_all();
  EXPECT_EQ(cluster.control().evictions(), 0u);
  cluster.expect_updates(0, 0);
}

// A firewall that forgot the connection, a reset that only one end hears of: what was under way is lost, both live.
TEST_F(Namespaces, AConnectionBetweenComputeNodesThatBreaksAtOneEndCostsNoMessage) {
  // Nobody gets so many locks while somebody waits for a message that was lost: all would wait for one of the four.
  constexpr std::uint64_t kMany = 200;
  NetCluster& cluster = start(2, kNobodyDies, "patient");
  for (int host = 1; host <= 2 && !HasFatalFailure(); ++host) {
    ASSERT_TRUE(hosts_.set_reachable(host, 3 - host, false));
    ASSERT_TRUE(hosts_.kill_connections(host, 3 - host)) << "ss -K; this kernel cannot do it?";
    cluster.expect_progress(NetCluster::kNobody, 5);  // slowly, by way of the memory node
    ASSERT_TRUE(hosts_.set_reachable(host, 3 - host, true));
    cluster.expect_progress(NetCluster::kNobody, kMany);
  }
  cluster.stop_all();
  EXPECT_EQ(cluster.control().evictions(), 0u);
  cluster.expect_updates(0, 0);
}

TEST_F(Namespaces, DelayAndLossMakeItSlowerAndNotWrong) {
  for (int host = 0; host < Hosts::kCount; ++host) {
    if (!hosts_.set_quality(host, "delay 2ms 1ms loss 1%")) GTEST_SKIP() << "this kernel has no netem";
  }
  NetCluster& cluster = start(4, kNobodyDies);
  for (int round = 0; round < 10 && !HasFatalFailure(); ++round) cluster.expect_progress();
  cluster.stop_all();
  cluster.expect_updates(0, cluster.control().evictions() * kClients);
  fmt::print("{} updates acknowledged, {} evictions\n", cluster.updates(),
             cluster.control().evictions());
}

}  // namespace
}  // namespace declock::process
