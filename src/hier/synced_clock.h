// The clock of a compute node (CN), kept close to those of the others, so that the timestamps of their clients
// can be compared (paper section 5.3).
//
// All CNs meet at a counter on a memory node, once a second. Each adds one. Whoever completes the round writes its
// clock beside the counter; the others read both until they see that, and now know how far they are off, up to
// the time of one READ. Rounds are counted and never set back, so a fast CN cannot hide the end of a round from a
// slow one (H23). A clock is never set either, it runs a little faster or slower until it agrees (H26).
#pragma once

#include <cstdint>

#include "base/time.h"
#include "fabric/fabric.h"
#include "runtime/task.h"

namespace declock::hier {

class SyncedClock {
 public:
  SyncedClock(Endpoint& endpoint, std::uint32_t cns) : endpoint_(endpoint), cns_(cns) {}

  Time now() const { return corrected(endpoint_.worker().now()); }
  std::uint64_t rounds() const { return round_; }

  // Meets the others every second, for ever. The first correction is made at once, before anybody has used the
  // clock. REQUIRES: two words at `meeting`, zero at first, for these CNs alone.
  Task<void> keep_in_step(RemoteAddr meeting);

  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  Task<Result<void>> meet(RemoteAddr meeting);
  Time corrected(Time local) const;
  void correct_by(Duration error, Time local);

  Endpoint& endpoint_;
  std::uint32_t cns_;
  std::uint64_t round_ = 0;  // that were completed
  Duration quickest_read_ = seconds(1);
  // The correction moves from one value to the other while the local clock goes from `since_` on.
  Duration from_;
  Duration to_;
  Time since_;
};

}  // namespace declock::hier
