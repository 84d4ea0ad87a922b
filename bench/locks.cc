#include "bench/locks.h"

#include <algorithm>
#include <deque>

#include "peers/caslock.h"
#include "peers/dslr.h"
#include "peers/ideal.h"
#include "peers/shiftlock.h"

namespace declock::bench {
namespace {

LockShape shape_for(std::uint32_t members, std::uint32_t slots) {
  return {members, slots == 0 ? members : slots, QueueLayout::owner};
}

// The flat CQL lock: a slot per client.
class CqlFamily final : public LockFamily {
 public:
  explicit CqlFamily(const FamilyConfig& config)
      : shape_(shape_for(config.cns * config.clients, config.slots)),
        release_read_(config.release_read) {}
  std::uint64_t stride() const override { return shape_.bytes(); }
  std::unique_ptr<LockClient> client(const Seat& seat) override {
    // Endpoints are numbered in the order of the clients.
    const cql::Membership self{.slot = Slot{static_cast<std::uint16_t>(seat.endpoint.id().value)}};
    return std::make_unique<cql::CqlLock<>>(seat.endpoint, shape_, self,
                                            cql::Options{.release_read = release_read_});
  }

 private:
  LockShape shape_;
  cql::ReleaseRead release_read_;
};

// Locks of one word. They lie as far apart as DecLock's with a slot per CN: the NIC's conflicts depend
// on addresses, and so does nobody's figure on the other's layout.
class PeerFamily final : public LockFamily {
 public:
  explicit PeerFamily(const FamilyConfig& config)
      : name_(config.lock), stride_(8 * (std::uint64_t{config.cns} + 2)) {
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
  static const std::vector<std::string> kNames{
      "cql", "caslock", "caslock-takeback", "dslr", "dslr+", "shiftlock", "ideal"};
  return kNames;
}

std::uint32_t members_of(const FamilyConfig& config) {
  return config.lock == "cql" ? config.cns * config.clients : 0;
}

std::unique_ptr<LockFamily> make_family(const FamilyConfig& config) {
  if (config.lock == "cql") return std::make_unique<CqlFamily>(config);
  return std::make_unique<PeerFamily>(config);
}

}  // namespace declock::bench
