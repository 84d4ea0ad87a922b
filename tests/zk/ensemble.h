// Three ZooKeeper servers, as processes of their own on this machine, for as long as this lives.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace declock::zk {

class Ensemble {
 public:
  static constexpr std::size_t kServers = 3;

  // Why there cannot be one here; empty: there can.
  static std::string missing();

  // REQUIRES: no other thread is alive. They end with the thread that made this, however that ends.
  Ensemble();
  Ensemble(const Ensemble&) = delete;
  Ensemble& operator=(const Ensemble&) = delete;
  ~Ensemble();

  // "host:port,host:port,host:port"
  std::string servers() const;
  // All three serve; false: they do not within minutes.
  bool wait_until_up() const;
  // Once there is one.
  std::optional<std::size_t> leader() const;

  // The one that all tests of this process share, all of it up. Null: there cannot be one here, or it does not come up.
  // REQUIRES: no other thread is alive.
  static Ensemble* shared();

  void kill(std::size_t server);
  // Those that were killed, again. REQUIRES: no other thread is alive.
  void start_all();

 private:
  struct Server {
    pid_t process = 0;
    std::uint16_t client_port = 0;
    std::uint16_t quorum_port = 0;
    std::uint16_t election_port = 0;
  };
  void start(std::size_t server);
  // "leader", "follower", or nothing.
  std::string mode(std::size_t server) const;
  std::string directory(std::size_t server) const;

  std::string directory_;
  std::array<Server, kServers> servers_;
};

}  // namespace declock::zk
