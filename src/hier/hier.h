// The hierarchical lock (paper section 5): clients of one compute node (CN) queue in a local lock, and the CN
// queues once in the CQL lock on the memory node. Timestamps tell whether the next holder is a local or a
// remote client.
//
//   lock     free: acquire the CQL lock. Held shared and all agree: join. Otherwise queue locally, and where
//            nobody knows of remote waiters look at the queue on the MN meanwhile.
//   try      busy here: no, with no MN operation. Otherwise look at the header, and ask only if it looks free.
//   unlock   others hold it too: leave. A local waiter is next: hand over, with no MN operation. Otherwise
//            release the CQL lock, and if local clients wait acquire it again for the next of them.
//
// Read local_locks.h for the decisions and policy.h for the policies.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cql/cql.h"
#include "hier/at_once.h"
#include "hier/local_locks.h"
#include "hier/synced_clock.h"
#include "lock/lock.h"
#include "runtime/task_group.h"

namespace declock::hier {

// What the clients of one worker share: its endpoint and its CQL lock. All workers of a CN share the table, and as
// whom they take part.
class HierWorker {
 public:
  HierWorker(Endpoint& endpoint, const LockShape& shape, cql::Party self, cql::Options options,
             LocalLocks& locals, const SyncedClock& clock)
      : endpoint_(endpoint),
        self_(self),
        is_at_once_(endpoint.completes_at_once()),
        cql_(endpoint, shape, self, options),
        locals_(locals),
        clock_(clock),
        behind_(frames()) {}

  cql::CqlLock& cql() { return cql_; }
  FramePool& frames() { return endpoint_.worker().frames(); }
  // Releases and acquisitions on behalf of waiters that are under way.
  std::size_t running() const { return behind_.running() + cql_.running(); }

  // `me` is the client's request, for as long as it takes.
  Task<Result<Hold>> lock(LocalWaiter& me, RemoteAddr addr, Mode mode, Op* object);
  Task<Result<Hold>> lock_until(LocalWaiter& me, RemoteAddr addr, Mode mode, Time deadline);
  // For a thread that has entered the queue itself, as the one who asks here.
  Task<Result<Hold>> lock_entered(LocalWaiter& me, Result<cql::CqlLock::Place> entered);
  Task<Result<Hold>> try_lock(LocalWaiter& me, RemoteAddr addr, Mode mode);
  void cancel(LocalWaiter& me) { locals_.give_up(me, Errc::cancelled); }
  Task<Result<void>> unlock(Hold hold, Op* object);
  // REQUIRES: hold.mode is exclusive. A READ the first time, then nothing.
  Task<Result<Token>> token(Hold hold);

 private:
  struct Completion;
  struct Granted;
  struct Landed;
  using Place = cql::CqlLock::Place;
  using Entry = LocalLocks::Entry;

  bool acquire_at_once(RemoteAddr addr, Mode mode, Hold& hold);
  Released release_at_once(const Hold& hold, cql::Owing& owing);
  LocalWaiter request(RemoteAddr addr, Mode mode, Time now) const;
  Task<Result<Hold>> wait(LocalWaiter& me);
  Task<void> acquire(RemoteAddr addr, Mode mode, Timestamp asked, Op* object,
                     std::optional<Result<Place>> entered = {});
  void acquire_for(RemoteAddr addr, LocalLocks::Successor successor,
                   std::optional<Result<Place>> entered = {});
  Task<void> expire(LocalWaiter& waiter, Time deadline);
  Task<Result<void>> give_back(LocalLocks::Leave leave, Op* object);
  Task<void> release_cql(Hold hold, Op* object, bool last, Completion& done);
  Task<void> look(Hold hold);
  Task<void> watch(LocalWaiter& me, Entry entry);
  Task<void> look_now_and_then(LocalWaiter& me);
  Task<void> look_past_the_dead(Hold hold);

  Endpoint& endpoint_;
  cql::Party self_;
  const bool is_at_once_;  // its operations take no time
  cql::CqlLock cql_;
  LocalLocks& locals_;
  const SyncedClock& clock_;
  TaskGroup behind_;
};

// One client. It waits for one lock at a time.
class HierLock final : public TimedLockClient {
 public:
  explicit HierLock(HierWorker& worker) : worker_(worker) {}

  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object = nullptr) override {
    return worker_.lock(request_, lock, mode, object);
  }
  Task<Result<void>> release(Hold hold, Op* object = nullptr) override {
    return worker_.unlock(hold, object);
  }
  Task<Result<Hold>> try_acquire(RemoteAddr lock, Mode mode) override {
    return worker_.try_lock(request_, lock, mode);
  }
  Task<Result<Hold>> acquire_until(RemoteAddr lock, Mode mode, Time deadline) override {
    return worker_.lock_until(request_, lock, mode, deadline);
  }
  void cancel() override { worker_.cancel(request_); }
  bool carries_objects() const override { return worker_.cql().has_tokens(); }
  Task<Result<Token>> token(Hold hold) override { return worker_.token(hold); }

 private:
  HierWorker& worker_;
  LocalWaiter request_;
};

// A worker's way into the cluster: its endpoint, and what it knows of the members.
struct Station {
  Endpoint* endpoint;
  member::Membership* membership;
};
// Workers of one thread can share what they know.
inline std::vector<Station> stations_sharing(member::Membership& membership,
                                             std::span<Endpoint* const> endpoints) {
  std::vector<Station> stations;
  for (Endpoint* endpoint : endpoints) stations.push_back({endpoint, &membership});
  return stations;
}

// A compute node: DecLock as its clients see it. With a worker per station.
class Node final {
 public:
  Node(const LockShape& shape, const Policy& policy, cql::Options options,
       std::span<const Station> stations, HandOverObserver* observer = nullptr)
      : locals_(policy, requests_, observer), clock_(*stations[0].endpoint, *stations[0].membership) {
    options.token = policy.kind == PolicyKind::token;
    for (std::size_t i = 0; i < stations.size(); ++i) {
      const cql::Party self{*stations[i].membership, requests_, WorkerId{static_cast<std::uint8_t>(i)}};
      workers_.push_back(
          std::make_unique<HierWorker>(*stations[i].endpoint, shape, self, options, locals_, clock_));
    }
  }

  // As a process that is killed: it says nothing to anybody any more. REQUIRES: its clients are gone.
  ~Node() { stop(); }
  void stop() { requests_.close(); }

  cql::Requests& requests() { return requests_; }
  LocalLocks& locals() { return locals_; }
  HierWorker& worker(std::size_t i) { return *workers_[i]; }
  std::size_t workers() const { return workers_.size(); }
  std::unique_ptr<TimedLockClient> client(std::size_t i) {
    return std::make_unique<HierLock>(*workers_[i]);
  }
  SyncedClock& clock() { return clock_; }
  std::size_t running() const {
    std::size_t sum = 0;
    for (const auto& worker : workers_) sum += worker->running();
    return sum;
  }
  // Does anybody have a mutex of this node? Whoever waits has none (H22). For checkers.
  bool is_locked() { return requests_.mutex().is_taken(); }
  // Locks of which this node remembers something. From any thread.
  std::size_t records() {
    std::size_t count = 0;
    requests_.for_each([&](const cql::Record&) { count += 1; });
    return count;
  }
  // Has anybody here to do with a lock of this memory node? From any thread.
  bool is_busy_on(MnId mn) {
    bool busy = false;
    requests_.for_each([&](const cql::Record& r) { busy = busy || (r.lock.mn == mn && r.is_used()); });
    return busy;
  }

 private:
  cql::Requests requests_;
  LocalLocks locals_;
  SyncedClock clock_;
  std::vector<std::unique_ptr<HierWorker>> workers_;
};

}  // namespace declock::hier
