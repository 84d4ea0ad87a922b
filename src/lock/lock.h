// What every lock here offers: DecLock's own and the ones it is compared with.
#pragma once

#include <cstdint>
#include <optional>

#include "declock/result.h"
#include "declock/task.h"
#include "fabric/fabric.h"
#include "layout/ids.h"
#include "layout/timestamp.h"

namespace declock {

// What a client keeps while it holds a lock, and gives back to release it.
struct Hold {
  RemoteAddr lock;
  Mode mode = Mode::shared;
  Epoch epoch{};
  Ticket ticket{};
  std::uint32_t mn_incarnation = 1;  // of the memory node: a hold from before a restart is void
  bool expect_waiters = false;       // there is reason to think that somebody waits for the release
  bool object_read = false;          // the READ that came along with the acquisition is valid
  bool object_open =
      false;  // what it says is not in memory yet, and will be before anybody hears that it was written
  std::uint32_t local_sequence = 0;  // hand-overs inside the compute node since it got this ticket
  // The token lock: shared with the readers of all compute nodes, until the node that has the token goes on; and of an
  // exclusive hold that came with the token: the token's base, and how many have had it since that.
  bool in_phase = false;
  std::optional<Ticket> base{};
  std::uint32_t sequence = 0;
  std::optional<RemoteWait> waiting_since{};  // the first of those behind, if a grant said so
};

// One client's access to locks of one kind. Belongs to one worker.
class LockClient {
 public:
  virtual ~LockClient() = default;

  // With `object`, a READ of what the lock protects rides along in the same doorbell. What it read is
  // good only if the hold says so; otherwise it must be read again. REQUIRES: this client does not hold
  // the lock, nor waits for it.
  virtual Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object = nullptr) = 0;

  // With `object`, a WRITE of what the lock protects goes ahead in the same doorbell, and nobody gets
  // the lock before it has completed. REQUIRES: `hold` came from acquire() of this client and was not
  // released.
  virtual Task<Result<void>> release(Hold hold, Op* object = nullptr) = 0;

  // Does an object travel with the lock, so that a READ along with an acquisition is likely to be valid where it waited?
  virtual bool carries_objects() const { return false; }

  // The client may go on, and acquire again, while a release without a WRITE is under way.
  virtual bool may_release_behind(Mode) const { return true; }
};

// A lock that mends itself after failures.
class MendingLockClient : public LockClient {
 public:
  // Watches over what this client waits for, for as long as it lives: needed where members can fail. Call once.
  virtual void start_patrol() = 0;
  // Starts a reset that nobody needs.
  virtual void reset_for_nothing(RemoteAddr lock) = 0;
  // As a process that is killed: it says nothing to anybody any more.
  virtual void stop() = 0;
  // Resets and the like that are under way.
  virtual std::size_t running() const = 0;
};

// A lock that need not be waited for to the end (DecLock's; design of try and time-outs: docs/HIERARCHY.md).
class TimedLockClient : public LockClient {
 public:
  // Errc::busy: somebody else has it.
  virtual Task<Result<Hold>> try_acquire(RemoteAddr lock, Mode mode) = 0;

  // Errc::timed_out at the deadline of this worker's clock, not before; Errc::cancelled after cancel().
  virtual Task<Result<Hold>> acquire_until(RemoteAddr lock, Mode mode, Time deadline) = 0;

  // Ends an acquire_until() or a try_acquire() of this client that is under way; otherwise nothing.
  virtual void cancel() = 0;

  // REQUIRES: `hold` is exclusive, and was not released.
  virtual Task<Result<Token>> token(Hold hold) = 0;
};

}  // namespace declock
