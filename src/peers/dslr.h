// DSLR: a ticket lock on one word of four 16-bit counters (Yoon et al., "Distributed lock management
// with RDMA", 2018), and DSLR+, the same with the adaptive back-off that the DecLock paper gives it.
//
//   63      48 47      32 31      16 15       0
//   +---------+----------+----------+----------+
//   | done X  | done S   | next X   | next S   |
//   +---------+----------+----------+----------+
//
// A request takes a ticket with one fetch-and-add on `next` of its mode and waits, reading the word,
// until all conflicting tickets before it are done. Counters cannot be left to overflow into each
// other: when one reaches kMax the word is frozen, late requests give their ticket back, and whoever
// drew the last ticket sets the word to 0 once nothing is outstanding.
#pragma once

#include <cstdint>
#include <vector>

#include "lock/lock.h"
#include "runtime/task_group.h"

namespace declock::peers {

// DSLR+'s back-off: truncated exponential, the cap adapted to the share of polls among all requests and
// polls so far. One per process, shared by its clients; the cap is per core.
class AdaptiveBackoff {
 public:
  explicit AdaptiveBackoff(std::uint32_t cores) : cap_ns_(cores, kCapNs) {}

  void count_acquire() { acquires_ += 1; }
  // After a poll that found the lock busy; `polls` is the number of this request's polls so far.
  Duration pause(std::uint32_t core, std::uint32_t polls, Worker& worker);

 private:
  static constexpr std::int64_t kBaseNs = 100;
  static constexpr std::int64_t kCapNs = 32 * kBaseNs;

  std::vector<std::int64_t> cap_ns_;
  std::uint64_t polls_ = 0;
  std::uint64_t acquires_ = 0;
  Time last_change_;
};

class DslrLock final : public LockClient {
 public:
  // DSLR sleeps this long for each conflicting ticket ahead. Public implementations use 20, 5 and 1.9
  // us.
  static constexpr Duration kPausePerTicket{1862};

  // Without `adaptive`: DSLR. With it: DSLR+, on this core.
  explicit DslrLock(Endpoint& endpoint, AdaptiveBackoff* adaptive = nullptr, std::uint32_t core = 0)
      : endpoint_(endpoint), adaptive_(adaptive), core_(core), resets_(frames()) {}

  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object = nullptr) override;
  Task<Result<void>> release(Hold hold, Op* object = nullptr) override;

  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  Task<Result<void>> await_thaw(RemoteAddr lock);
  Task<void> reset(RemoteAddr lock, std::uint64_t from);

  Endpoint& endpoint_;
  AdaptiveBackoff* adaptive_;
  std::uint32_t core_;
  TaskGroup resets_;  // a reset waits for other holders: not at its client's expense
};

}  // namespace declock::peers
