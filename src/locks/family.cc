#include "locks/family.h"

#include <algorithm>
#include <array>
#include <deque>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "locks/cql_family.h"
#include "peers/caslock.h"
#include "peers/dslr.h"
#include "peers/ideal.h"
#include "peers/shiftlock.h"

namespace declock::locks {
namespace {

constexpr std::string_view kDecLock = "declock-";

LockShape shape_for(std::uint32_t members, std::uint32_t slots) {
  return {members, slots == 0 ? members : slots, QueueLayout::owner};
}

// DecLock: a slot per CN, clients queue locally.
class HierFamily final : public LockFamily {
 public:
  HierFamily(const FamilyConfig& config, const hier::Policy& policy)
      : config_(config),
        policy_(policy),
        shape_(shape_for(config.cns, config.slots)),
        nodes_(config.cns) {
    CHECK(config.workers <= kWorkersMax);
    for (std::uint32_t cn = 0; cn < config.cns && !config.join; ++cn) {
      memberships_.emplace_back(Slot{static_cast<std::uint16_t>(cn)}, config.cns, config.workers);
    }
  }
  std::uint64_t stride() const override { return shape_.bytes(); }
  bool endpoint_per_worker() const override { return true; }
  std::unique_ptr<LockClient> client(const Seat& seat) override {
    // The first to come brings the CN's endpoints, which are numbered by CN, then by worker.
    if (nodes_[seat.cn] == nullptr) nodes_[seat.cn] = make_node(seat);
    return nodes_[seat.cn]->client(seat.worker);
  }
  void start(RemoteAddr spare) override {
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      syncing_.push_back(std::make_unique<TaskGroup>(node->clock().frames()));
      syncing_.back()->spawn(node->clock().keep_in_step(spare));
    }
  }
  std::vector<Time> clocks() const override {
    std::vector<Time> readings;
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      if (node->clock().rounds() == 0) return {};
      readings.push_back(node->clock().now());
    }
    return readings;
  }
  std::size_t local_table_bytes_max() const override {
    std::size_t most = 0;
    for (const auto& node : nodes_) {
      if (node != nullptr) most = std::max(most, node->requests().bytes_max());
    }
    return most;
  }
  std::size_t running() const override {
    std::size_t sum = 0;
    for (const auto& node : nodes_) sum += node == nullptr ? 0 : node->running();
    return sum;
  }
  cql::ResetCounts resets() const override {
    cql::ResetCounts sum;
    for (const auto& node : nodes_) {
      for (std::size_t w = 0; node != nullptr && w < node->workers(); ++w) {
        const cql::ResetCounts& resets = node->worker(w).cql().resets();
        sum.done += resets.done;
        sum.aborted += resets.aborted;
        sum.took.insert(sum.took.end(), resets.took.begin(), resets.took.end());
      }
    }
    return sum;
  }
  MendingLockClient* mending(std::uint32_t cn) override { return &nodes_[cn]->worker(0).cql(); }
  void kill(std::uint32_t cn) override {
    nodes_[cn]->stop();
    if (cn < syncing_.size()) syncing_[cn]->clear();
    nodes_[cn].reset();
  }

 private:
  std::unique_ptr<hier::Node> make_node(const Seat& seat) {
    const std::vector<hier::Station> stations =
        config_.join ? config_.join(seat.cn, seat.endpoints)
                     : hier::stations_sharing(memberships_[seat.cn], seat.endpoints);
    const cql::Options options{
        .release_read = config_.release_read, .patience = config_.patience, .rules = config_.rules};
    auto node = std::make_unique<hier::Node>(shape_, policy_, options, stations, config_.hand_overs);
    for (std::size_t w = 0; config_.join && w < stations.size(); ++w) {
      node->worker(w).cql().start_patrol();
    }
    return node;
  }

  FamilyConfig config_;
  hier::Policy policy_;
  LockShape shape_;
  std::deque<member::FixedMembership> memberships_;  // by CN, as are the nodes
  std::vector<std::unique_ptr<hier::Node>> nodes_;
  std::vector<std::unique_ptr<TaskGroup>> syncing_;
};

// Locks of one word. They lie as far apart as DecLock's with a slot per CN: the NIC's conflicts depend
// on addresses, and so does nobody's figure on the other's layout.
class PeerFamily final : public LockFamily {
 public:
  explicit PeerFamily(const FamilyConfig& config)
      : name_(config.lock),
        stride_(8 * (std::uint64_t{config.cns} + 2)),
        ideal_locks_(name_ == "ideal-group" ? peers::IdealLocks::kWritersInGroup : 1) {
    for (std::uint32_t cn = 0; cn < config.cns; ++cn) backoffs_.emplace_back(config.workers);
  }
  std::uint64_t stride() const override { return stride_; }
  std::unique_ptr<LockClient> client(const Seat& seat) override {
    const std::uint32_t me = seat.endpoint.id().value + 1;
    if (name_ == "caslock") {
      return std::make_unique<peers::CasLock>(seat.endpoint, me, peers::CasReaders::keep);
    }
    if (name_ == "caslock-takeback") {
      return std::make_unique<peers::CasLock>(seat.endpoint, me, peers::CasReaders::take_back);
    }
    if (name_ == "dslr") return std::make_unique<peers::DslrLock>(seat.endpoint);
    if (name_ == "dslr+") {
      return std::make_unique<peers::DslrLock>(seat.endpoint, &backoffs_[seat.cn], seat.worker);
    }
    if (name_ == "shiftlock") return std::make_unique<peers::ShiftLock>(seat.endpoint);
    CHECK(costs_nothing(name_));
    return std::make_unique<peers::IdealLock>(ideal_locks_, seat.endpoint);
  }

 private:
  std::string name_;
  std::uint64_t stride_;
  std::deque<peers::AdaptiveBackoff> backoffs_;  // of DSLR+, by CN
  peers::IdealLocks ideal_locks_;
};

}  // namespace

const std::vector<std::string>& lock_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names{"cql",       "caslock", "caslock-takeback", "dslr", "dslr+",
                                   "shiftlock", "ideal",   "ideal-group"};
    for (auto policy = hier::kPolicyNames.rbegin(); policy != hier::kPolicyNames.rend(); ++policy) {
      names.insert(names.begin(), std::string{kDecLock} + std::string{policy->first});
    }
    return names;
  }();
  return kNames;
}

bool costs_nothing(std::string_view lock) {
  return lock == "ideal" || lock == "ideal-group";
}

std::uint32_t members_of(const FamilyConfig& config) {
  if (config.lock == "cql") return config.cns * config.clients;
  return config.lock.starts_with(kDecLock) ? config.cns : 0;
}

std::unique_ptr<LockFamily> make_family(const FamilyConfig& config) {
  if (config.lock == "cql") {
    const std::uint32_t members = config.cns * config.clients;
    return std::make_unique<CqlFamily>(members, shape_for(members, config.slots),
                                       cql::Options{.release_read = config.release_read});
  }
  for (const auto& [name, kind] : hier::kPolicyNames) {
    if (config.lock != std::string{kDecLock} + std::string{name}) continue;
    return std::make_unique<HierFamily>(config,
                                        hier::Policy{kind, config.slack, config.bound, config.gate});
  }
  return std::make_unique<PeerFamily>(config);
}

}  // namespace declock::locks
