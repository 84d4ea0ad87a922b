// The lock that costs nothing: an upper bound for every other. It excludes like a reader-writer lock,
// phase-fair over all clients of the cluster, in zero time, with no MN operation and no message. It can
// exist only where all clients live in one process, in the simulator.
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
  struct Waiter {
    Worker* worker;
    std::coroutine_handle<> coroutine;
  };

  // False: the lock is busy; call wait().
  bool try_enter(RemoteAddr lock, Mode mode);
  void wait(RemoteAddr lock, Mode mode, Waiter waiter);
  // Hands over: after a writer to all waiting readers, if there are any; otherwise to one writer.
  void leave(RemoteAddr lock, Mode mode);

 private:
  struct State {
    std::uint32_t readers = 0;
    bool writer = false;
    std::deque<Waiter> waiting_readers;
    std::deque<Waiter> waiting_writers;
  };
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
