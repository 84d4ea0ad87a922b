// The hierarchical lock (paper section 5): clients of one compute node (CN) queue in a local lock, and the CN
// queues once in the CQL lock on the memory node. Timestamps tell whether the next holder is a local or a
// remote client.
//
//   lock     free: acquire the CQL lock. Held shared and all agree: join. Otherwise queue locally, and where
//            nobody knows of remote waiters look at the queue on the MN meanwhile.
//   unlock   others hold it too: leave. A local waiter is next: hand over, with no MN operation. Otherwise
//            release the CQL lock, and if local clients wait acquire it again for the next of them.
//
// Read local_locks.h for the decisions and policy.h for the policies.
#pragma once

#include "cql/cql.h"
#include "hier/local_locks.h"
#include "hier/synced_clock.h"
#include "lock/lock.h"
#include "runtime/task_group.h"

namespace declock::hier {

// What the clients of one worker share: its endpoint and its CQL lock. All workers of a CN share the table.
class HierWorker {
 public:
  HierWorker(Endpoint& endpoint, const LockShape& shape, cql::Membership self, cql::Options options,
             LocalLocks& locals, const SyncedClock& clock)
      : endpoint_(endpoint),
        self_(self),
        cql_(endpoint, shape, self, options),
        locals_(locals),
        clock_(clock),
        behind_(frames()) {}

  FramePool& frames() { return endpoint_.worker().frames(); }
  // Releases and acquisitions on behalf of waiters that are under way.
  std::size_t running() const { return behind_.running(); }

  Task<Result<Hold>> lock(RemoteAddr addr, Mode mode, Op* object);
  Task<Result<void>> unlock(Hold hold, Op* object);

 private:
  struct Completion;

  Timestamp now() const { return timestamp_of(clock_.now()); }
  Task<Result<Hold>> acquire(RemoteAddr addr, Mode mode, Mode as, Timestamp asked, Op* object);
  void acquire_for(RemoteAddr addr, LocalLocks::Successor successor);
  Task<void> acquire_and_grant(RemoteAddr addr, LocalWaiter& waiter, Mode mode);
  Task<void> release_cql(Hold hold, Op* object, bool last, Completion& done);
  Task<void> look(Hold hold);

  Endpoint& endpoint_;
  cql::Membership self_;
  cql::CqlLock<> cql_;
  LocalLocks& locals_;
  const SyncedClock& clock_;
  TaskGroup behind_;
};

class HierLock final : public LockClient {
 public:
  explicit HierLock(HierWorker& worker) : worker_(worker) {}

  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object = nullptr) override {
    return worker_.lock(lock, mode, object);
  }
  Task<Result<void>> release(Hold hold, Op* object = nullptr) override {
    return worker_.unlock(hold, object);
  }

 private:
  HierWorker& worker_;
};

}  // namespace declock::hier
