// Locks that are at hand (cql/near_lock.h), as SharedMutex uses them, without a worker; what it did is counted under the mutex
// of the requests.
#include "base/futex.h"
#include "client/core.h"

namespace declock::client {

std::optional<cql::NearLock> Core::near(const LockRef& lock) {
  const RemoteAddr at{lock.at.mn, lock.at.offset};
  if (check(lock) != Errc::ok || !is_current(lock.at) || is_tracing()) return {};
  Endpoint& endpoint = lanes_[0]->endpoint;
  std::uint64_t* word = endpoint.word_at(at);
  if (word == nullptr) return {};
  return std::optional<cql::NearLock>{
      std::in_place, locks_->requests(), node_->lock_shape(), at, *word, endpoint.incarnation(at.mn)};
}

bool Core::acquire_near(cql::NearLock& near, const LockRef& lock, Mode mode, Held& held) {
  if (standing() != Errc::ok || lanes_[0]->membership.evicted()) return false;
  const std::lock_guard guard{locks_->requests().mutex()};
  const bool timed = near_recorder_.times_this_one();
  const std::int64_t called_ns = timed ? monotonic_now().ns : 0;
  if (!near.acquire(mode, held.hold)) return false;
  near_operations_.add(OpKind::fetch_add, Purpose::acquire);
  near_recorder_.begins();
  near_recorder_.acquired(lock, held, called_ns, timed ? monotonic_now().ns : 0, Recorder::kOneIn,
                          false);
  return true;
}

std::optional<Result<Held>> Core::wait_near(const cql::NearLock& near, const LockRef& lock, Mode mode) {
  if (standing() != Errc::ok || lanes_[0]->membership.evicted()) return {};
  {
    const std::lock_guard guard{locks_->requests().mutex()};
    near_recorder_.begins();
  }
  const Time called = monotonic_now();
  const std::optional<Result<Hold>> hold = locks_->lock_here(near, mode, called);
  const std::lock_guard guard{locks_->requests().mutex()};
  if (!hold) {
    near_recorder_.never_mind();
    return {};
  }
  if (!*hold) {
    near_recorder_.gave_up(lock, hold->error());
    return Failure{hold->error()};
  }
  Held held{**hold};
  near_recorder_.acquired(lock, held, called.ns, monotonic_now().ns, 1, true);
  return held;
}

bool Core::release_near(cql::NearLock& near, const LockRef& lock, const Held& held) {
  if (standing() != Errc::ok || lanes_[0]->membership.evicted()) return false;
  const auto release = [&] {
    const std::lock_guard guard{locks_->requests().mutex()};
    if (!near.release(held.hold)) return false;
    near_operations_.add(OpKind::fetch_add, Purpose::release);
    near_recorder_.release_begins(lock, held, held.since_ns != 0 ? monotonic_now().ns : 0);
    return true;
  };
  if (release()) return true;
  const Time now = monotonic_now();
  switch (locks_->unlock_here(held.hold, now)) {
    case hier::LocalLocks::LeftHere::not_done:
      return false;
    case hier::LocalLocks::LeftHere::alone:
      return release();
    case hier::LocalLocks::LeftHere::done:
      break;
  }
  const std::lock_guard guard{locks_->requests().mutex()};
  near_recorder_.release_begins(lock, held, now.ns);
  return true;
}

}  // namespace declock::client
