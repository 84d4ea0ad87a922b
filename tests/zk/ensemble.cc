#include "zk/ensemble.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include "support/soon.h"

namespace declock::zk {
namespace {

constexpr const char* kJava = "/usr/bin/java";
constexpr const char* kJar = "/usr/share/java/zookeeper.jar";  // it names the others that it needs

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return at;
}

// All at once, so that they are different ones.
std::vector<std::uint16_t> free_ports(std::size_t count) {
  std::vector<std::uint16_t> ports;
  std::vector<int> sockets;
  for (std::size_t i = 0; i < count; ++i) {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at = loopback(0);
    socklen_t length = sizeof at;
    EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&at), length), 0);
    EXPECT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&at), &length), 0);
    ports.push_back(ntohs(at.sin_port));
    sockets.push_back(descriptor);
  }
  for (const int descriptor : sockets) close(descriptor);
  return ports;
}

}  // namespace

std::string Ensemble::missing() {
  for (const char* file : {kJava, kJar}) {
    if (access(file, R_OK) != 0)
      return fmt::format("there is no {} (Debian: the packages zookeeper and java)", file);
  }
  return {};
}

Ensemble::Ensemble() {
  std::string pattern = "/dev/shm/declock-zk-XXXXXX";  // nobody waits for a disk
  directory_ = mkdtemp(pattern.data());
  const std::vector<std::uint16_t> ports = free_ports(3 * kServers);
  std::string peers;
  for (std::size_t i = 0; i < kServers; ++i) {
    servers_[i] = {0, ports[3 * i], ports[3 * i + 1], ports[3 * i + 2]};
    peers += fmt::format("server.{}=127.0.0.1:{}:{}\n", i + 1, servers_[i].quorum_port,
                         servers_[i].election_port);
  }
  for (std::size_t i = 0; i < kServers; ++i) {
    std::filesystem::create_directory(directory(i));
    std::ofstream{directory(i) + "/myid"} << i + 1 << "\n";
    std::ofstream{directory(i) + "/zoo.cfg"} << fmt::format(
        "tickTime=100\ninitLimit=100\nsyncLimit=100\nmaxSessionTimeout=60000\ndataDir={}\n"
        "clientPort={}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        "4lw.commands.whitelist=*\n{}",
        directory(i), servers_[i].client_port, peers);
  }
  start_all();
}

Ensemble::~Ensemble() {
  for (std::size_t i = 0; i < kServers; ++i) kill(i);
  std::filesystem::remove_all(directory_);
}

std::string Ensemble::directory(std::size_t server) const {
  return fmt::format("{}/{}", directory_, server + 1);
}

std::string Ensemble::servers() const {
  std::string text;
  for (const Server& s : servers_)
    text += fmt::format("{}127.0.0.1:{}", text.empty() ? "" : ",", s.client_port);
  return text;
}

void Ensemble::start_all() {
  for (std::size_t i = 0; i < kServers; ++i) {
    if (servers_[i].process == 0) start(i);
  }
}

void Ensemble::start(std::size_t server) {
  const std::string configuration = directory(server) + "/zoo.cfg";
  const std::string output = directory(server) + "/output";
  const pid_t process = fork();
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(out, 1);
    dup2(out, 2);
    execl(kJava, kJava, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
          "-Dzookeeper.forceSync=no", "-cp", kJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain",
          configuration.c_str(), nullptr);
    _exit(1);
  }
  servers_[server].process = process;
}

void Ensemble::kill(std::size_t server) {
  pid_t& process = servers_[server].process;
  if (process == 0) return;
  ::kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  process = 0;
}

std::string Ensemble::mode(std::size_t server) const {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{10, 0};  // where nobody listens it is refused at once
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const sockaddr_in at = loopback(servers_[server].client_port);
  std::string answer;
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 &&
      write(descriptor, "srvr", 4) == 4) {
    std::array<char, 4096> part{};
    for (ssize_t got = 1; got > 0;) {
      got = read(descriptor, part.data(), part.size());
      if (got > 0) answer.append(part.data(), static_cast<std::size_t>(got));
    }
  }
  close(descriptor);
  constexpr std::string_view kMode = "Mode: ";
  const std::size_t from = answer.find(kMode);
  if (from == std::string::npos) return {};
  return answer.substr(from + kMode.size(), answer.find('\n', from) - from - kMode.size());
}

std::optional<std::size_t> Ensemble::leader() const {
  std::optional<std::size_t> found;
  (void)soon([&] {
    for (std::size_t i = 0; i < kServers && !found; ++i) {
      if (mode(i) == "leader") found = i;
    }
    return found.has_value();
  });
  return found;
}

Ensemble* Ensemble::shared() {
  if (!missing().empty()) return nullptr;
  static Ensemble ensemble;
  ensemble.start_all();
  return ensemble.wait_until_up() ? &ensemble : nullptr;
}

bool Ensemble::wait_until_up() const {
  for (int tries = 0; tries < 3000; ++tries) {
    std::size_t up = 0;
    for (std::size_t i = 0; i < kServers; ++i) up += mode(i).empty() ? 0 : 1;
    if (up == kServers) return true;
    usleep(50'000);
  }
  return false;
}

}  // namespace declock::zk
