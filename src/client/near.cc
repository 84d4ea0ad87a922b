// Near locks, as SharedMutex uses them, without a worker: at once if nobody is in the way (hier/at_once.h), otherwise from one
// thread of this process to the next. What that did is counted under the mutex of the requests.
#include "base/futex.h"
#include "client/core.h"

namespace declock::client {

std::optional<NearLock> Core::near(const LockRef& lock) {
  const RemoteAddr at{lock.at.mn, lock.at.offset};
  if (check(lock) != Errc::ok || !is_current(lock.at) || is_tracing()) return {};
  Endpoint& endpoint = lanes_[0]->endpoint;
  std::uint64_t* words = endpoint.word_at(at);
  if (words == nullptr) return {};
  return NearLock{locks_->requests().keep(at), *words, endpoint.incarnation(at.mn)};
}

bool Core::acquire_near(NearLock& near, const LockRef& lock, Mode mode, std::optional<Held>& held) {
  if (standing() != Errc::ok) return false;
  const std::lock_guard guard{locks_->requests().mutex()};
  const bool timed = near_recorder_.times_this_one();
  const std::int64_t called_ns = timed ? monotonic_now().ns : 0;
  if (!hier::acquire_at_once(near.record, near.word(), lock_shape_, {}, near.mn_incarnation, mode)) {
    return false;
  }
  near_operations_.add(OpKind::fetch_add, Purpose::acquire);
  if (!timed) {
    near_recorder_.acquired_at_once(lock, mode);
    near.plain_in(mode) += 1;
    return true;
  }
  held.emplace(near.record.local.hold);
  near_recorder_.begins();
  near_recorder_.acquired(lock, *held, called_ns, monotonic_now().ns, Recorder::kOneIn, false);
  return true;
}

// When the first of those elsewhere who wait behind this hold asked.
std::optional<Timestamp> Core::waiting_behind(const NearLock& near, const Hold& hold) const {
  if (lock_shape_.header.decode(near.word().load()).qsize <= 1) return {};
  std::array<std::uint64_t, 1 + HeaderLayout::kMembersMax> queue;
  const std::span words{queue.data(), lock_shape_.queue_words()};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::atomic_ref{(&near.words)[i]}.load();
  return cql::waiting_behind(hold, {}, lock_shape_, words);
}

std::optional<Result<Held>> Core::wait_near(const NearLock& near, const LockRef& lock, Mode mode) {
  if (standing() != Errc::ok || lanes_[0]->membership.evicted()) return {};
  const Time called = monotonic_now();
  hier::LocalLocks& locals = locks_->locals();
  ThreadWait wait;
  hier::LocalWaiter me{.addr = near.record.lock,
                       .mode = mode,
                       .asked = {timestamp_of(locks_->clock().corrected(called)), called},
                       .thread = &wait};
  using Entry = hier::LocalLocks::Entry;
  const std::optional<Entry> entry = locals.enter_here(me, called);
  if (!entry) return {};
  if (*entry == Entry::look_and_wait) locals.looked(me.behind, waiting_behind(near, me.behind), called);
  {
    const std::lock_guard guard{locks_->requests().mutex()};
    near_recorder_.begins();
  }
  // Those ahead release it, and then it is granted or refused.
  if (*entry != Entry::joined) wait.wait();
  const std::lock_guard guard{locks_->requests().mutex()};
  if (me.error != Errc::ok) {
    near_recorder_.gave_up(lock, me.error);
    return Failure{me.error};
  }
  Held held{me.hold};
  near_recorder_.acquired(lock, held, called.ns, monotonic_now().ns, 1, true);
  return held;
}

bool Core::release_near(const NearLock& near, const LockRef& lock, const Held& held) {
  if (standing() != Errc::ok) return false;
  {
    const std::lock_guard guard{locks_->requests().mutex()};
    if (hier::release_at_once(near.record, near.word(), lock_shape_)) {
      near_operations_.add(OpKind::fetch_add, Purpose::release);
      near_recorder_.release_begins(lock, held, held.since_ns != 0 ? monotonic_now().ns : 0);
      return true;
    }
  }
  const Time now = monotonic_now();
  if (!locks_->locals().leave_here(held.hold.lock, now)) return false;
  const std::lock_guard guard{locks_->requests().mutex()};
  near_recorder_.release_begins(lock, held, now.ns);
  return true;
}

bool Core::release_plain(NearLock& near, Mode mode) {
  if (standing() != Errc::ok) return false;
  const std::lock_guard guard{locks_->requests().mutex()};
  if (near.plain_in(mode) == 0 || !hier::release_at_once(near.record, near.word(), lock_shape_))
    return false;
  near.plain_in(mode) -= 1;
  near_operations_.add(OpKind::fetch_add, Purpose::release);
  near_recorder_.released_at_once();
  return true;
}

std::optional<Held> Core::take_plain(NearLock& near, Mode mode) {
  const std::lock_guard guard{locks_->requests().mutex()};
  if (near.plain_in(mode) == 0) return {};
  near.plain_in(mode) -= 1;
  return Held{near.record.local.hold};
}

std::optional<Hold> Core::plain_hold(NearLock& near, Mode mode) {
  const std::lock_guard guard{locks_->requests().mutex()};
  if (near.plain_in(mode) == 0) return {};
  return near.record.local.hold;
}

}  // namespace declock::client
