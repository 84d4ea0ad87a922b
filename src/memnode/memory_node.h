// A memory node: memory that compute nodes reach without its processor, and the little that needs one: who may reach it,
// names for parts of it, and the cluster's coordinator, if it is the first.
//
// One thread. It sleeps unless something arrives.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "member_net/coordinator_server.h"
#include "member_net/links.h"
#include "memnode/snapshot.h"
#include "net/transport.h"
#include "wire/hub.h"

namespace declock::memnode {

struct Config {
  wire::HostPort listen{"127.0.0.1", 0};
  std::uint16_t id = 0;
  std::uint64_t bytes = 0;
  wire::Secret secret;
  // Who decides who is a member: this node itself, another memory node, or somebody else.
  std::optional<wire::HostPort> coordinator;  // another memory node
  std::function<std::unique_ptr<member::MemoryLink>(wire::Hub&, member::MemoryLink::Events&)>
      other_coordinator;
  member::ClusterShape shape;   // of the cluster, if this node coordinates it
  std::string state_directory;  // what the coordinator remembers; empty: nothing
  // How the memory is reached, at `host`.
  std::function<Result<std::unique_ptr<net::Exposure>, std::string>(const std::string& host,
                                                                    std::span<std::byte>)>
      expose;
  std::span<std::byte> memory{};  // zeroed; empty: its own
  std::function<void(const std::string&)> log = [](const std::string&) {};
};

class MemoryNode final : private wire::Hub::Handler,
                         private wire::Hub::Side,
                         private member::MemoryLink::Events {
 public:
  static Result<std::unique_ptr<MemoryNode>, std::string> open(const Config& config);
  ~MemoryNode() override;

  // Where it listens.
  const wire::HostPort& address() const { return address_; }
  // Until stop(), which may be called from anywhere. An error: it cannot be part of the cluster.
  Result<void, std::string> run();
  void stop() { hub_.stop(); }
  // From any thread.
  Snapshot snapshot() const;

 private:
  struct Allocation {
    std::uint64_t offset;
    std::uint64_t bytes;
    std::string use;
  };
  struct PendingAttach {
    wire::LineId line;
    member::Attach attach;
    std::uint64_t ask;  // the number of the fetch that will tell whether it is a member
  };

  explicit MemoryNode(const Config& config);
  Result<void, std::string> prepare();

  void on_up(wire::LineId line) override;
  void on_frame(wire::LineId line, const std::string& frame) override;
  void on_down(wire::LineId line, const std::string& why, bool refused) override;
  void on_tick(Time now) override;
  void on_turn() override;
  bool progress() override { return exposure_->progress(); }
  int wait_descriptor() const override { return exposure_->wait_descriptor(); }
  bool may_wait() override { return exposure_->may_wait(); }
  void on_registered(std::uint32_t incarnation, const member::ClusterState& state) override;
  void on_state(std::uint64_t ask, const member::ClusterState& state) override;
  void on_fence(const member::MemberId& member) override;
  void on_refused(const std::string& why) override;

  void on(const member::Attach& attach, wire::LineId line);
  void on(const member::Relay& relay, wire::LineId line);
  void on(const member::Allocate& allocate, wire::LineId line);
  void try_attach(const PendingAttach& pending, std::uint64_t answered);
  member::Allocated find_or_make(const member::Allocate& allocate);
  void start_afresh();
  void take_snapshot();
  // About somebody from outside: a few lines a second, and then how many more there were. All are counted in refused_.
  void log_stranger(const std::string& line);
  void say_what_was_left_out(Time now);

  Config config_;
  wire::HostPort address_;
  std::span<std::byte> memory_;
  std::unique_ptr<net::Exposure> exposure_;
  wire::Hub hub_;
  std::unique_ptr<member::CoordinatorServer> coordinator_;
  std::unique_ptr<member::MemoryLink> link_;
  member::NetMemoryLink* net_link_ = nullptr;  // the same, if it is of this kind

  std::uint32_t incarnation_ = 0;
  bool is_registering_ = false;  // again, since the cluster has given it up
  member::ClusterState state_;
  std::uint64_t asks_ = 0;
  std::vector<std::pair<wire::LineId, member::Allocate>> early_;  // until it is registered
  std::vector<PendingAttach> pending_;  // until the state is known that is no older than they are
  std::map<Slot, member::Incarnation> fenced_;                       // and all before it
  std::map<member::MemberId, std::vector<std::uint16_t>> accesses_;  // workers
  int open_accesses_ = 0;                                            // all of them
  std::map<member::MemberId, wire::LineId> lines_;
  std::map<std::string, Allocation> allocations_;
  std::uint64_t allocated_bytes_ = 0;
  std::uint64_t fences_ = 0;
  std::uint64_t refused_ = 0;
  Time strangers_since_{};  // the second in which
  std::uint64_t strangers_logged_ = 0;
  std::uint64_t strangers_left_out_ = 0;
  std::string failure_;
  Time opened_{};
  mutable std::mutex snapshot_mutex_;
  Snapshot snapshot_;  // as it was when the loop's last call ended
};

}  // namespace declock::memnode
