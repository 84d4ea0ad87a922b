// The locks that cost nothing: bounds for every other. They exclude like a reader-writer lock, phase-fair
// over all clients of the cluster, in zero time, with no MN operation and no message. They can exist only
// where all clients live in one process, in the simulator.
//
// They differ in how long the phases are. After the writers all readers that wait are let in together.
//
//   ideal        one writer, and no reader joins those inside while a writer waits: strictly by turns. Every
//                phase of readers costs a section, so a lock that groups writers can pass it.
//   ideal-group  the writers that waited when their phase began, up to kWritersInGroup. Readers join those
//                inside, though a writer waits, until as many have left as were inside when it came. The
//                bound of a lock that groups readers over the whole cluster, and writers as one gate of the
//                token lock does.
//
// Other variants come within 5 % of this one: without joining it is a little faster at 90 % reads, with groups of 16
// slower, and with groups without a bound faster at long sections.
#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "lock/lock.h"

namespace declock::peers {

// The state of all locks, shared by all clients.
class IdealLocks {
 public:
  static constexpr std::uint32_t kWritersInGroup = 64;

  explicit IdealLocks(std::uint32_t writers_in_a_row_max = 1)
      : writers_in_a_row_max_(writers_in_a_row_max) {}

  struct Waiter {
    Worker* worker;
    std::coroutine_handle<> coroutine;
  };

  // False: the lock is busy; call wait().
  bool try_enter(RemoteAddr lock, Mode mode);
  void wait(RemoteAddr lock, Mode mode, Waiter waiter);
  // Hands over: after the writers of a phase to all waiting readers, if there are any; otherwise to a writer.
  void leave(RemoteAddr lock, Mode mode);

 private:
  struct State {
    std::uint32_t readers = 0;
    bool writer = false;
    std::uint32_t turns_left = 0;    // of the phase of writers that goes on, behind who holds
    std::uint32_t joined_until = 0;  // so many have left; 0: no reader joins while a writer waits
    std::deque<Waiter> waiting_readers;
    std::deque<Waiter> waiting_writers;
  };
  bool readers_join() const { return writers_in_a_row_max_ > 1; }
  void let_readers_in(State& state) const;
  // REQUIRES: one waits.
  static void let_a_writer_in(State& state);

  std::uint32_t writers_in_a_row_max_;
  std::unordered_map<std::uint64_t, State> states_;  // by packed address; only locks in use
};

class IdealLock final : public LockClient {
 public:
  IdealLock(IdealLocks& locks, Endpoint& endpoint) : locks_(locks), endpoint_(endpoint) {}

  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object = nullptr) override;
  Task<Result<void>> release(Hold hold, Op* object = nullptr) override;

  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  IdealLocks& locks_;
  Endpoint& endpoint_;
};

}  // namespace declock::peers
