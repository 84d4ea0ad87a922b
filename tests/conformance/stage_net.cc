// The memory node is a process, and so is a victim. Every other node is a thread with a slot of its own.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <thread>

#include "conformance/stages.h"
#include "member_net/net_node.h"
#include "memnode/memory_node.h"
#include "networks/networks.h"
#include "support/soon.h"

namespace declock::conformance {
namespace {

constexpr std::size_t kBytes = 1 << 16;

std::uint16_t port_of(int (*name)(int, sockaddr*, socklen_t*), int socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  const bool known = name(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return known && address.sin_family == AF_INET ? ntohs(address.sin_port) : 0;
}

// A connection of this process, which is several compute nodes.
struct Connection {
  std::uint16_t peer;    // the port
  bool between_workers;  // of compute nodes: one end is where one of them listens
};

// As a firewall does that has forgotten them: what is under way is lost, and both ends find out. How many there were.
std::size_t reset_connections(const std::function<bool(const Connection&)>& which) {
  std::vector<int> sockets;
  std::set<std::uint16_t> listening;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    const int descriptor = std::stoi(entry.path().filename());
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) continue;
    if (listens != 0) {
      listening.insert(port_of(getsockname, descriptor));
    } else {
      sockets.push_back(descriptor);
    }
  }
  // The kernel tells both ends, as it does when a reset arrives.
  std::string ports;
  std::size_t count = 0;
  for (const int socket : sockets) {
    const std::uint16_t peer = port_of(getpeername, socket);
    const std::uint16_t own = port_of(getsockname, socket);
    const bool between = listening.contains(peer) || listening.contains(own);
    if (peer == 0 || listening.contains(own) || !which({peer, between})) continue;
    ports += fmt::format("{}sport = :{}", count == 0 ? "" : " or ", own);
    count += 1;
  }
  const std::string command = fmt::format("ss -K '{}' >/dev/null 2>&1", ports);
  return count > 0 && std::system(command.c_str()) == 0 ? count : 0;
}

class NetStage final : public Stage {
 public:
  NetStage(const net::NetworkOptions& network, std::uint32_t nodes) : network_(network), nodes_(nodes) {
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    config_.patience = kHangs;
    config_.transport = [network](const std::string& host) {
      return net::open_transport(network, host);
    };
  }
  ~NetStage() override {
    end_memory_node();
    munmap(memory_, kBytes);
  }

  void run(std::vector<Script> scripts) override {
    start_memory_node();
    const bool kills = victim_ && !victim_->lives;
    const pid_t killed = kills ? start_process(scripts[victim_->node]) : 0;
    std::vector<std::unique_ptr<member::NetNode>> joined;  // all are there before the first begins
    for (std::size_t i = 0; i < scripts.size(); ++i)
      joined.push_back(kills && victim_->node == i ? nullptr : join(i));
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < scripts.size(); ++i) {
        if (joined[i] == nullptr) continue;
        threads.emplace_back([&, i] { play(*joined[i], scripts[i]); });
      }
      while (victim_ && !victim_->when()) usleep(100);  // bounded by the test's own time
      if (killed != 0) {
        kill(killed, SIGKILL);
        waitpid(killed, nullptr, 0);
      } else if (victim_) {
        joined[victim_->node]->fall_silent();
      }
    }
    for (auto& node : joined) {
      if (node == nullptr) continue;
      node->stop();
      node->leave();
    }
    victim_.reset();
  }
  std::uint64_t look(std::uint64_t offset) override {
    return std::atomic_ref{reinterpret_cast<std::uint64_t*>(memory_)[offset / 8]}.load();
  }
  void set_victim(Victim victim) override { victim_ = std::move(victim); }

  bool can(Can what) const override {
    const bool tcp = network_.network == Fabric::tcp && geteuid() == 0;  // who may break connections
    return what == Can::remove_the_living || tcp;
  }
  void break_memory() override {
    (void)reset_connections([this](const Connection& c) {
      return !c.between_workers && c.peer != config_.coordinator.port;
    });
  }
  std::size_t break_peers() override {
    return reset_connections([](const Connection& c) { return c.between_workers; });
  }

 private:
  // For one run: its lease is another if there is a victim.
  void start_memory_node() {
    end_memory_node();
    int port[2];
    EXPECT_EQ(pipe(port), 0);
    memory_node_ = fork();
    if (memory_node_ == 0) be_memory_node(port[1]);
    close(port[1]);
    config_.coordinator.host = "127.0.0.1";
    EXPECT_EQ(read(port[0], &config_.coordinator.port, 2), 2) << "the memory node did not start";
    close(port[0]);
  }
  void end_memory_node() {
    if (memory_node_ == 0) return;
    kill(memory_node_, SIGKILL);
    waitpid(std::exchange(memory_node_, 0), nullptr, 0);
  }

  [[noreturn]] void be_memory_node(int tell) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that ends in a CHECK must not leave it behind
    memnode::Config config;
    config.shape.members = nodes_;
    config.shape.endpoints = 1;
    // Longer than a busy machine keeps anybody waiting; the end of a victim's is waited for.
    config.shape.lease = victim_ ? seconds(5) : seconds(30);
    config.memory = {memory_, kBytes};
    config.expose = [&](const std::string& host, std::span<std::byte> memory) {
      return net::open_exposure(network_, host, memory);
    };
    auto node = memnode::MemoryNode::open(config);
    if (!node) {
      fmt::print(stderr, "memory node: {}\n", node.error());
      _exit(2);
    }
    const std::uint16_t port = (*node)->address().port;
    (void)!write(tell, &port, 2);
    (void)(*node)->run();
    _exit(0);
  }

  std::unique_ptr<member::NetNode> join(std::size_t i) const {
    member::NetNodeConfig config = config_;
    config.slot = Slot{static_cast<std::uint16_t>(i)};
    auto node = member::NetNode::join(config);
    EXPECT_TRUE(node) << node.error();
    return std::move(*node);
  }

  static void play(member::NetNode& node, const Script& script) {
    node.start();
    node.worker(0).run([&] { return script(node.endpoint(0), node.membership(0)); });
  }

  // Returns when it is a member. No other thread is alive here, so a fork is safe.
  pid_t start_process(const Script& script) const {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      const std::unique_ptr<member::NetNode> node = join(victim_->node);
      (void)!write(ready[1], "x", 1);
      play(*node, script);
      for (;;) pause();  // until it is killed
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
  }

  const net::NetworkOptions network_;
  const std::uint32_t nodes_;
  std::byte* memory_ = nullptr;
  pid_t memory_node_ = 0;
  member::NetNodeConfig config_;
  std::optional<Victim> victim_;
};

}  // namespace

std::unique_ptr<Stage> make_tcp_stage(std::uint32_t nodes) {
  return std::make_unique<NetStage>(net::NetworkOptions{Fabric::tcp}, nodes);
}

std::unique_ptr<Stage> make_verbs_stage(std::uint32_t nodes) {
  return std::make_unique<NetStage>(net::NetworkOptions{Fabric::verbs}, nodes);
}

std::unique_ptr<Stage> make_stage(const std::string& fabric, std::uint32_t nodes) {
  if (fabric == "sim") return make_sim_stage(nodes);
  if (fabric == "shm") return make_shm_stage(nodes);
  return fabric == "tcp" ? make_tcp_stage(nodes) : make_verbs_stage(nodes);
}

std::string why_not(const std::string& fabric) {
  if (fabric != "verbs") return {};
  const auto transport = net::open_transport({Fabric::verbs}, "127.0.0.1");
  return transport ? "" : transport.error();
}

}  // namespace declock::conformance
