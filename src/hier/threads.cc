// Threads of a process that share a hold of it, where operations take no time: one hands the lock over to the next without a
// worker. Whoever has to do more than that comes as a client of a worker.
#include "hier/hier.h"
#include "runtime/thread_wait.h"

namespace declock::hier {

std::optional<Result<Hold>> Node::lock_here(const cql::NearLock& near, Mode mode, Time now) {
  ThreadWait wait;
  LocalWaiter me{.addr = near.lock(),
                 .mode = mode,
                 .asked = {timestamp_of(clock_.corrected(now)), now},
                 .thread = &wait};
  const std::optional<LocalLocks::Entry> entry = locals_.enter_here(me, now);
  if (!entry) return {};
  if (*entry == LocalLocks::Entry::joined) return me.hold;
  if (*entry == LocalLocks::Entry::look_and_wait) {
    locals_.looked(me.behind, near.waiting_behind(me.behind), now);
  }
  wait.wait();  // those ahead release it, and then it is granted or refused
  if (me.error != Errc::ok) return Failure{me.error};
  return me.hold;
}

}  // namespace declock::hier
