// What every lock here offers: DecLock's own and the ones it is compared with.
#pragma once

#include <compare>
#include <cstdint>

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

  // REQUIRES: this client does not hold the lock, nor waits for it.
  virtual Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode) = 0;
  // REQUIRES: `hold` came from acquire() of this client and was not released.
  virtual Task<Result<void>> release(Hold hold) = 0;
};

}  // namespace declock
