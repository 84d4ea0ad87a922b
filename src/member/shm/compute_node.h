// A compute node on this machine: this process, as a member of a cluster in shared memory. No daemon and no
// coordinator: who is alive is in the cluster's file and in the kernel's locks on it (slot_lock.h).
//
// Two threads of its own, which sleep unless they are needed: the watcher sees other members die, and removes them;
// the dispatcher runs workers whose own threads are busy elsewhere.
//
// The watcher also looks whether this process still is what it takes itself for: its files may have been unlinked, and its
// descriptors closed. Then nobody else counts on it any more, and it evicts itself: from that moment its endpoints change
// nothing, and when each of its workers has heard of it, so that nothing is under way, its slot is given up.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "member/node.h"
#include "member_shm/slot_lock.h"
#include "shm/cluster.h"
#include "shm/endpoint.h"
#include "shm/names.h"

namespace declock::member {

// What one worker knows of the cluster. Used from its thread alone.
class ShmMembership final : public Membership {
 public:
  // `evicted`: of the whole member.
  ShmMembership(const shm::Cluster& cluster, const Member& self, std::atomic<bool>& evicted);

  const Member& self() const override { return self_; }
  const View& known() const override { return view_; }
  Task<Result<void>> refresh(Worker& worker) override { return look_now(worker, *this); }
  // Relaxed: whoever is told later finds out with its next call.
  bool evicted() const override { return evicted_.load(std::memory_order_relaxed); }
  bool is_certainly_member(Time) const override {
    return cluster_.is_alive({self_.slot, 0, self_.incarnation.value});
  }
  // Its worker has heard of that, and does nothing for this member any more. From any thread.
  bool has_ended() const { return ended_; }
  void listen(ViewListener* listener) override { listeners_.push_back(listener); }
  void unlisten(ViewListener* listener) override { std::erase(listeners_, listener); }

  // Reads the view; whoever listens is told if it is another one, or if this member is evicted.
  void look();

 private:
  static Task<Result<void>> look_now(Worker& worker, ShmMembership& self);  // frames are the worker's

  const shm::Cluster& cluster_;
  Member self_;
  View view_;
  std::atomic<bool>& evicted_;
  std::atomic<bool> ended_ = false;
  std::vector<ViewListener*> listeners_;
};

// The members at one moment, from their words.
View view_of(const shm::Cluster& cluster);

class ComputeNode final : public Node {
 public:
  struct Config {
    shm::ClusterConfig cluster;
    std::uint64_t seed = 1;  // of its workers' random numbers
    bool remove_when_last =
        false;                  // the cluster's files, if nobody else is a member when this one leaves
    bool names_may_go = false;  // all who will ever be members have joined, and its files are unlinked
  };

  // Opens or makes the cluster and takes a slot of it: this one if it is given, which must be free.
  static Result<std::unique_ptr<ComputeNode>, std::string> join(const Config& config,
                                                                std::optional<Slot> slot = {});
  ComputeNode(const ComputeNode&) = delete;
  ComputeNode& operator=(const ComputeNode&) = delete;
  // As if the process had been killed, unless it has left: the others find out, and mend its locks.
  ~ComputeNode() override;

  void start() override;
  void stop() override;
  void leave() override;

  const shm::Cluster& cluster() const { return cluster_; }
  const Member& self() const override { return self_; }
  std::uint32_t workers() const override { return cluster_.shape().workers; }
  bool reaches(RemoteAddr addr, std::uint64_t words) const override {
    return cluster_.holds(addr, words);
  }
  shm::ShmWorker& worker(std::uint32_t i) override { return *workers_[i]; }
  Membership& membership(std::uint32_t worker) override { return *memberships_[worker]; }
  shm::ShmEndpoint& endpoint(std::uint32_t i) override { return *endpoints_[i]; }
  std::uint32_t members() const override { return cluster_.shape().members; }
  Result<Memory, std::string> allocate(MnId mn, const std::string& name, std::uint64_t bytes,
                                       const std::string& use) override;
  Result<Memory, std::string> find(MnId mn, const std::string& name) override;
  std::uint32_t meant(MnId) const override { return cluster_.incarnation(); }

 private:
  ComputeNode(shm::Cluster cluster, SlotLock lock, const Member& self, const Config& config);
  Result<Memory, std::string> as_memory(MnId mn, const Result<shm::Named, std::string>& named) const;
  struct Watched;
  void watch();
  bool look_at(std::uint32_t slot, Watched& member, bool look_at_lock);
  bool has_its_descriptors() const;
  std::string what_is_lost() const;
  void evict(const std::string& why);
  void give_up_slot();
  void wake_others() const;
  bool is_mine(std::uint64_t member) const;
  void dispatch();

  shm::Cluster cluster_;
  SlotLock lock_;
  Member self_;
  Config config_;
  const std::uint64_t pid_space_;  // in which this process has its number; 0: not known
  std::atomic<bool> evicted_{false};
  bool has_left_ = false;
  std::vector<std::unique_ptr<shm::ShmWorker>> workers_;
  std::vector<std::unique_ptr<ShmMembership>> memberships_;  // by worker
  std::vector<std::unique_ptr<shm::ShmEndpoint>> endpoints_;
  // In shared memory as long as this is a member, then its own.
  std::atomic<BellWord*> dispatcher_bell_;
  BellWord own_dispatcher_bell_{0};
  std::atomic<std::int64_t> dispatcher_until_ns_{ThreadWorker::kNever.ns};
  std::atomic<bool> stopping_{false};
  // A pipe: what is written wakes the watcher.
  Descriptor stop_;
  Descriptor stopped_;
  std::thread watcher_;
  std::thread dispatcher_;
};

}  // namespace declock::member
