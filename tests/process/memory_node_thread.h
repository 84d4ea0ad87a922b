// A memory node inside the test, over TCP, and how a compute node joins it.
#pragma once

#include <poll.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "member_net/net_node.h"
#include "memnode/memory_node.h"
#include "networks/networks.h"
#include "support/soon.h"

namespace declock::process {

inline wire::Secret secret_of(std::uint8_t byte) {
  wire::Secret secret;
  secret.key.fill(byte);
  return secret;
}

// A memory node on a thread of the test's, with memory that the test sees.
class MemoryNodeThread {
 public:
  // With a lease for those who do not die, on a busy machine.
  explicit MemoryNodeThread(std::size_t bytes, Duration lease = seconds(20), std::uint32_t members = 4)
      : memory_(bytes) {
    memnode::Config config;
    config.secret = secret_of(1);
    config.memory = memory_;
    config.shape.members = members;
    config.shape.lease = lease;
    config.expose = [](const std::string& host, std::span<std::byte> memory) {
      return net::open_exposure({Fabric::tcp}, host, memory);
    };
    config.log = [this](const std::string& line) {
      const std::lock_guard guard{mutex_};
      log_ += line + "\n";
    };
    auto node = memnode::MemoryNode::open(config);
    CHECK(node);
    node_ = std::move(*node);
    thread_ = std::jthread{[this] { (void)node_->run(); }};
  }
  ~MemoryNodeThread() { node_->stop(); }

  const wire::HostPort& address() const { return node_->address(); }
  std::span<const std::byte> memory() const { return memory_; }
  memnode::Snapshot snapshot() const { return node_->snapshot(); }
  std::string log() {
    const std::lock_guard guard{mutex_};
    return log_;
  }
  bool logs(std::string_view text) {
    return soon([&] { return log().find(text) != std::string::npos; });
  }

 private:
  std::vector<std::byte> memory_;
  std::mutex mutex_;
  std::string log_;
  std::unique_ptr<memnode::MemoryNode> node_;
  std::jthread thread_;
};

inline member::NetNodeConfig config_for(const MemoryNodeThread& mn) {
  member::NetNodeConfig config;
  config.coordinator = mn.address();
  config.secret = secret_of(1);
  config.transport = [](const std::string& host) { return net::open_transport({Fabric::tcp}, host); };
  return config;
}

// Somebody who has the secret, and says what it likes.
class Insider {
 public:
  explicit Insider(const wire::HostPort& at)
      : connection_(*wire::connect_to(at), wire::Session{wire::Role::client, secret_of(1)}, "mn") {
    CHECK(soon([&] {
      turn();
      return connection_.established();
    }));
  }
  void send(std::string_view frame) { connection_.send(frame); }
  // The next frame; empty: the connection is over, or hangs.
  std::string next() {
    std::optional<std::string> frame;
    (void)soon([&] {
      frame = connection_.next_frame();
      if (frame || is_over_) return true;  // what came last may come with the end
      turn();
      return false;
    });
    return frame.value_or("");
  }
  bool is_over() const { return is_over_; }

 private:
  void turn() {
    pollfd ready{connection_.descriptor(), connection_.wanted_events(), 0};
    (void)::poll(&ready, 1, 1);
    if (ready.revents != 0) is_over_ = !connection_.handle(ready.revents);
  }
  wire::Connection connection_;
  bool is_over_ = false;
};

}  // namespace declock::process
