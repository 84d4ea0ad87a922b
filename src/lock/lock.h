// What every lock here offers: DecLock's own and the ones it is compared with.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "fabric/fabric.h"
#include "layout/ids.h"
#include "runtime/task.h"

namespace declock {

// What a client keeps while it holds a lock, and gives back to release it.
struct Hold {
  RemoteAddr lock;
  Mode mode = Mode::shared;
  Epoch epoch{};
  Ticket ticket{};
  bool expect_waiters = false;  // there is reason to think that somebody waits for the release
  bool object_read = false;     // the READ that came along with the acquisition is valid
  std::optional<Timestamp> waiting_since{};  // when the first of those behind asked, if a grant said so
};

// Grows strictly over the exclusive holders of a lock, resets and restarts of the memory node included.
// A resource that remembers the largest token it has seen can refuse a holder that lost the lock
// without knowing it.
struct Token {
  std::uint32_t mn_incarnation = 0;
  std::uint64_t wraps = 0;
  Ticket ticket{};

  constexpr auto operator<=>(const Token&) const = default;
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

  // The client may go on, and acquire again, while a release without a WRITE is under way.
  virtual bool may_release_behind(Mode) const { return true; }
};

}  // namespace declock
