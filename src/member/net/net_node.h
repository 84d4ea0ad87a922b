// A compute node over a network: this process, as a member of a cluster that a coordinator looks after.
//
// Two threads of its own, which sleep unless they are needed: one talks to the coordinator and the memory nodes, the
// other, the dispatcher, runs workers whose own threads are busy elsewhere.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "layout/lock_shape.h"
#include "member/node.h"
#include "member_net/links.h"
#include "net/worker.h"
#include "wire/hub.h"

namespace declock::member {

class NetNode;

// What one worker knows of the cluster. Used from its thread alone.
class NetMembership final : public Membership {
 public:
  NetMembership(NetNode& node, std::uint32_t worker, const Member& self, const View& view)
      : node_(node), worker_(worker), self_(self), view_(view) {}

  const Member& self() const override { return self_; }
  const View& known() const override { return view_; }
  Task<Result<void>> refresh(Worker& worker) override { return ask(worker, *this); }
  bool evicted() const override { return evicted_; }
  void listen(ViewListener* listener) override { listeners_.push_back(listener); }
  void unlisten(ViewListener* listener) override { std::erase(listeners_, listener); }

  void hear(const View& view, bool evicted);
  void answered(std::uint64_t ask);

 private:
  struct Answer;
  static Task<Result<void>> ask(Worker& worker, NetMembership& self);  // frames are the worker's

  NetNode& node_;
  std::uint32_t worker_;
  Member self_;
  View view_;
  std::atomic<bool> evicted_ = false;  // read from any thread
  std::uint64_t asks_ = 0;
  std::map<std::uint64_t, Timer*> asking_;
  std::vector<ViewListener*> listeners_;
};

struct NetNodeConfig {
  // Who decides who is a member: a memory node, or somebody else.
  wire::HostPort coordinator;
  std::function<std::unique_ptr<ComputeLink>(wire::Hub&, ComputeLink::Events&)> other_coordinator;
  wire::Secret secret;
  std::uint32_t workers = 1;
  std::uint32_t endpoints = 1;  // number i belongs to worker i mod workers
  std::optional<Slot> slot;     // this one, or any
  std::uint64_t seed = 1;
  std::string
      host;  // of this machine, where others reach it; empty: the one from which the coordinator is reached
  std::function<Result<std::unique_ptr<net::Transport>, std::string>(const std::string& host)>
      transport;
  Duration patience = seconds(10);  // with joining
};

class NetNode final : public Node,
                      private wire::Hub::Handler,
                      private ComputeLink::Events,
                      private net::Switchboard {
 public:
  static Result<std::unique_ptr<NetNode>, std::string> join(const NetNodeConfig& config);
  // As if the process had been killed, unless it has left: the others find out, and mend its locks.
  ~NetNode() override;

  void start() override;
  void stop() override;
  void leave() override;

  const Member& self() const override { return self_; }
  net::NetWorker& worker(std::uint32_t i) override { return *workers_[i]; }
  NetMembership& membership(std::uint32_t worker) override { return *memberships_[worker]; }
  net::NetEndpoint& endpoint(std::uint32_t i) override { return *endpoints_[i]; }
  net::Transport& transport(std::uint32_t worker) { return ports_[worker]->transport(); }
  const ClusterShape& shape() const { return shape_; }

  // Renews no more, as if it were cut off from the coordinator alone. For tests.
  void fall_silent() {
    hub_.post([this] { link_->give_up(); });
  }

  Result<Memory, std::string> allocate(MnId mn, const std::string& name, std::uint64_t bytes,
                                       const std::string& use) override;
  Result<Memory, std::string> find(MnId mn, const std::string& name) override;
  void mean_only(MnId mn, std::uint32_t incarnation) override { meant_[mn.value].store(incarnation); }
  std::uint32_t meant(MnId mn) const override { return meant_[mn.value].load(); }
  std::uint32_t heard_of(MnId mn) const override { return incarnations_[mn.value].load(); }
  std::uint32_t members() const override { return shape_.members; }
  std::uint32_t workers() const override { return config_.workers; }
  bool reaches(RemoteAddr addr, std::uint64_t words) const override {
    if (addr.mn.value >= kMnsMax) return false;
    const std::uint64_t bytes = bytes_[addr.mn.value].load();
    if (bytes == 0) return incarnations_[addr.mn.value].load() != 0;  // it came later: nobody knows yet
    return addr.offset <= bytes && words <= (bytes - addr.offset) / 8;
  }

 private:
  friend class NetMembership;
  struct MnLine {
    wire::LineId line = 0;
    std::string address;
    std::uint32_t incarnation = 0;
    // By worker: what is to be attached, and since when.
    std::map<std::uint16_t, std::pair<net::Blob, Time>> attaching;
    std::map<std::uint64_t, Allocate> allocating;  // by ask
    bool is_full = false;                          // it had no descriptors left
  };

  explicit NetNode(const NetNodeConfig& config);
  Result<void, std::string> open();
  Result<void, std::string> build(const MemberId& self, const ClusterState& state);
  Result<void, std::string> attach_all();

  // From the hub's loop:
  void on_up(wire::LineId line) override;
  void on_frame(wire::LineId line, const std::string& frame) override;
  void on_down(wire::LineId line, const std::string& why, bool refused) override;
  void on_tick(Time now) override;
  void on_joined(const MemberId& self, const ClusterState& state) override;
  void on_state(std::uint64_t ask, const ClusterState& state) override;
  void on_evicted() override;
  void on_left() override;
  void on_refused(const std::string& why, bool final) override;
  void take(const ClusterState& state);
  void end_membership();
  void ask_again(MnLine& mn);  // what it has not answered
  void is_refused_by(MnId mn, const std::string& why);
  void on(const Attached& attached, MnId mn);
  void on(const Relay& relay, MnId mn);
  void on(const Allocated& allocated, MnId mn);
  void finish(const Allocated& allocated);  // whoever asked goes on
  Result<Memory, std::string> ask_for(MnId mn, Allocate message);
  void on(const Refused& refused, MnId mn);

  // From any thread:
  void attach(std::uint16_t worker, MnId mn, const net::Blob& offer) override;
  void ask(std::uint16_t worker, const net::PeerId& peer, const net::Blob& blob) override;
  std::uint32_t incarnation(MnId mn) const override { return incarnations_[mn.value].load(); }
  void fetch(std::uint32_t worker, std::uint64_t ask);
  template <class Job>
  void on_workers(Job job);
  void relay(const Relay& relay);
  void took_over(std::uint32_t worker, std::uint64_t state);
  void dispatch_loop();

  NetNodeConfig config_;
  wire::Hub hub_;
  std::thread hub_thread_;
  std::unique_ptr<ComputeLink> link_;
  NetComputeLink* net_link_ = nullptr;  // the same, if it is of this kind

  Member self_{};
  MemberId id_{};
  ClusterShape shape_;
  std::vector<std::unique_ptr<net::Transport>> transports_;  // until they are the ports'
  std::vector<WorkerAddress> addresses_;
  std::vector<std::unique_ptr<net::NetWorker>> workers_;
  std::vector<std::unique_ptr<NetMembership>> memberships_;  // by worker
  std::vector<std::unique_ptr<net::Port>> ports_;            // by worker
  std::vector<std::unique_ptr<net::NetEndpoint>> endpoints_;
  std::array<std::atomic<std::uint32_t>, kMnsMax> incarnations_{};
  std::array<std::atomic<std::uint32_t>, kMnsMax> meant_{};
  std::array<std::atomic<std::uint64_t>, kMnsMax>
      bytes_{};  // 0: this node has never been connected with it

  // Of the hub's thread:
  ClusterState state_;
  std::vector<MnLine> mns_;
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint64_t>>
      fetches_;  // by number: worker, and its own number
  std::uint64_t asked_ = 0;
  bool is_built_ = false;
  bool is_evicted_ = false;

  // For whoever waits outside.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::pair<MemberId, ClusterState>> joined_;
  std::string refused_;
  bool is_refused_ = false;
  std::atomic<bool> no_access_{false};    // a memory node refuses it while it joins
  std::atomic<bool> is_attached_{false};  // it has had access to every memory node
  std::size_t relays_ = 0;                // in the hub's loop
  bool has_left_ = false;
  std::map<std::uint64_t, Allocated> allocated_;

  // The number of the state that a worker goes by, and the least of them.
  std::unique_ptr<std::atomic<std::uint64_t>[]> goes_by_;
  std::atomic<std::uint64_t> all_go_by_{0};

  std::thread dispatcher_;
  int dispatcher_rung_ = -1;
  std::unique_ptr<std::atomic<bool>[]> watched_;  // by worker: the dispatcher waits for its transport
  std::atomic<bool> stopping_{false};
};

}  // namespace declock::member
