// A client of a simulated compute node: takes locks at random, and tells the ledger what it sees.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "audit/ledger.h"
#include "hier/hier.h"
#include "torture/plan.h"

namespace declock::torture {

// What all clients of a run share.
struct Workload {
  const Plan& plan;
  const cql::Rules& protocol;
  audit::Ledger& ledger;
  bool rounds_wanted = false;  // everything is healed: each client takes every lock once, and is done

  static constexpr std::uint64_t kWordsPerLock = 16;
  RemoteAddr lock(std::uint32_t number) const {
    return {MnId{static_cast<std::uint16_t>(number % plan.mns)}, number * kWordsPerLock * 8};
  }
  RemoteAddr counter(std::uint32_t number) const { return lock(number) + (kWordsPerLock - 1) * 8; }
};

class Client {
 public:
  // `who` is its name for the ledger, `node` that of its compute node's incarnation. `leaving`: it begins nothing any more.
  Client(const Workload& work, std::uint64_t who, std::uint64_t node, const bool& leaving,
         Endpoint& endpoint, std::unique_ptr<TimedLockClient> lock)
      : work_(work),
        who_(who),
        node_(node),
        leaving_(leaving),
        endpoint_(endpoint),
        lock_(std::move(lock)),
        random_(work.plan.seed, 100 + who),
        served_(work.plan.locks) {}

  void start() {
    task_.emplace(run());
    task_->start();
  }
  void end() { task_.reset(); }
  bool done() const { return task_->done(); }
  std::uint64_t who() const { return who_; }
  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  Task<void> run();
  Task<Result<void>> section(std::uint32_t number, Mode mode);
  Task<Result<Hold>> acquire(RemoteAddr addr, Mode mode, Op* object);
  void outcome(std::uint32_t number, audit::Ledger::Update update, const Result<void>& written);
  std::uint32_t next_wanted();

  const Workload& work_;
  const std::uint64_t who_;
  const std::uint64_t node_;
  const bool& leaving_;
  Endpoint& endpoint_;
  std::unique_ptr<TimedLockClient> lock_;
  Prng random_;
  std::vector<bool> served_;  // since the healing
  std::optional<Task<void>> task_;
};

}  // namespace declock::torture
