// A lock whose words lie in this process's memory, as SharedMutex uses it, without a worker: in one step where nobody is in the
// way (hier/at_once.h), otherwise from one thread of this process to the next, or, for as long as looking pays, from one
// process to the next. Whoever has to wait for longer does so as the client of a worker.
//
// Thread-safety: any. What it knows is under the mutex of the requests.
#pragma once

#include <array>
#include <mutex>
#include <optional>

#include "base/looking.h"
#include "client/recorder.h"
#include "hier/hier.h"

namespace declock::client {

class Core;

// What the near locks of a process share.
struct NearLocks {
  Core& core;
  hier::Node& locks;
  const LockShape& shape;
  const member::Membership& membership;
  // Under the mutex of the requests:
  Recorder recorder{};
  OpCounts operations{};
  Looking looking{};
};

class NearLock {
 public:
  // REQUIRES: the lock's words are these, in memory that does not restart.
  NearLock(NearLocks& shared, const LockRef& lock, std::uint64_t* words, std::uint32_t mn_incarnation);
  // The record that it has kept may go. Not called where the cluster was closed: the record is gone then.
  void forget();

  // Errc::busy: nothing was done, and it is to be done with a worker.
  Errc lock(Mode mode);
  // False, for all that follow: nothing was done; for try_lock() somebody is in the way.
  bool try_lock(Mode mode);
  bool unlock(Mode mode);
  // To be released with a worker.
  std::optional<Held> take(Mode mode);
  // Of whoever has it exclusively.
  std::optional<Hold> hold();

  // Tells the recorder what was done since the last time.
  void count();

  std::size_t place = 0;  // among all near locks; Core's

 private:
  using Guard = std::unique_lock<ShortLock>;
  using Place = cql::CqlLock::Place;
  struct Holds : cql::HoldCounts {
    std::uint32_t at_once = 0;   // not counted yet: acquired in one step,
    std::uint32_t joined = 0;    // beside other readers of this process,
    std::uint32_t granted = 0;   // from another process,
    std::uint32_t released = 0;  // to the memory node,
    std::uint32_t left = 0;      // to others of this process
    Held timed{};                // the one of them who is, if any
  };

  Holds& in(Mode mode) { return holds_[mode == Mode::exclusive ? 1 : 0]; }
  bool is_open() const;
  Guard guard_if_threads();
  Errc lock_here(Mode mode, bool timed, Guard guard);
  Asked asked_at(Time now) const;
  Errc lock_found(Mode mode, std::uint64_t word, Time called, bool timed, Guard guard);
  Errc queue(Mode mode, const Header& found, cql::Verdict verdict, Time called, bool timed,
             Guard guard);
  bool watch(cql::Waiting& waiting, Timestamp asked, Guard& guard);
  Errc wait_here(Mode mode, bool timed, Guard guard);
  std::optional<Timestamp> waiting_behind(const Hold& hold) const;
  void got(Mode mode, std::uint32_t Holds::*how, Time called);
  void time(Mode mode, Time called, std::uint32_t counts, bool waited);
  bool unlock_here(Mode mode, Guard guard);
  void end_unlock(const Header& found, Guard guard);
  void gone(Mode mode, std::uint32_t Holds::*how);
  Held take_locked(Mode mode);

  NearLocks& shared_;
  const LockShape& shape_;
  const LockRef lock_;
  cql::Record& record_;
  const cql::WordsHere words_;
  ShortLock& mutex_;           // of the requests
  std::uint32_t untimed_ = 0;  // so many acquisitions until the next one that is timed
  std::array<Holds, 2> holds_{};
};

}  // namespace declock::client
