// The clock of a compute node (CN), kept close to those of the others, so that the timestamps of their clients
// can be compared (paper section 5.3).
//
// Once a second all CNs look at one word on a memory node, and one of them, the first in the view, writes its clock
// there, with a count of how often that was done. Whoever sees the count change knows how far it is off, up to the
// time of one READ. Nobody waits for anybody for long: a CN that failed holds up no round, and if it was the first
// the next one in the view takes its place (H23). A clock is never set, it runs a little faster or slower until it
// agrees (H26).
#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.h"
#include "declock/task.h"
#include "fabric/fabric.h"
#include "member/membership.h"

namespace declock::hier {

class SyncedClock {
 public:
  SyncedClock(Endpoint& endpoint, const member::Membership& membership)
      : endpoint_(endpoint), membership_(membership) {}

  Time now() const { return corrected(endpoint_.worker().now()); }
  // What it reads when the worker's own clock reads that. From any worker of the CN.
  Time corrected(Time local) const;
  // In which this clock was right, or was corrected.
  std::uint64_t rounds() const { return rounds_; }

  // Every second, for ever. The first correction is made at once, before anybody has used the clock. REQUIRES: a word
  // at `meeting`, zero at first, for these CNs alone; of this incarnation of its memory node, if not 0: ends with it.
  Task<void> keep_in_step(RemoteAddr meeting, std::uint32_t mn_incarnation = 0);

  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  Task<Result<void>> tell(RemoteAddr meeting);
  Task<Result<void>> listen(RemoteAddr meeting);
  Task<Result<std::uint64_t>> read(RemoteAddr meeting);
  bool leads() const;
  void correct_by(Duration error, Time local);

  Endpoint& endpoint_;
  const member::Membership& membership_;
  std::uint32_t mn_incarnation_ = 0;
  std::uint64_t rounds_ = 0;
  Duration quickest_read_ = seconds(1);
  // The correction moves from one value to the other while the local clock goes from `since_` on. Other workers read them
  // at any time, relaxed: what they find of two corrections at once is between the two, and blurs one timestamp.
  std::atomic<std::int64_t> from_ns_{0};
  std::atomic<std::int64_t> to_ns_{0};
  std::atomic<std::int64_t> since_ns_{0};
};

}  // namespace declock::hier
