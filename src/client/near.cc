// Near locks, as SharedMutex uses them, without a worker: in one step if nobody is in the way (hier/at_once.h), otherwise from one
// thread of this process to the next, or, as long as that is worth looking for, from one process to the next. Whoever has to
// wait for longer does so as the client of a worker.
//
// What that did is counted under the mutex of the requests.
#include "base/futex.h"
#include "client/core.h"

namespace declock::client {
namespace {

constexpr cql::Rules kAllRules{};

}  // namespace

std::unique_ptr<NearLock> Core::near(const LockRef& lock) {
  const RemoteAddr at{lock.at.mn, lock.at.offset};
  if (check(lock) != Errc::ok || !is_current(lock.at) || is_tracing()) return {};
  Endpoint& endpoint = lanes_[0]->endpoint;
  std::uint64_t* words = endpoint.word_at(at);
  if (words == nullptr) return {};
  cql::Requests& requests = locks_->requests();
  cql::Record& record = requests.keep(at, lock_shape_, endpoint.incarnation(at.mn));
  auto near = std::make_unique<NearLock>(NearLock{lock, record, {words}, requests.mutex()});
  const std::lock_guard guard{mutex_};
  near_.push_back(near.get());
  return near;
}

void Core::forget(NearLock& near) {
  if (is_closed()) return;
  count_near();
  locks_->requests().keep_no_longer(near.record);
  const std::lock_guard guard{mutex_};
  std::erase(near_, &near);
}

// Whoever reads what was counted wants all of it.
void Core::count_near() {
  const std::lock_guard guard{mutex_};
  const std::lock_guard requests{locks_->requests().mutex()};
  for (NearLock* near : near_) {
    for (const Mode mode : {Mode::shared, Mode::exclusive}) {
      NearLock::Holds& holds = near->in(mode);
      if (holds.acquired > 0) near_recorder_.acquired_at_once(near->lock, mode, holds.acquired);
      near_recorder_.released_at_once(holds.released);
      near_operations_.add(OpKind::fetch_add, Purpose::acquire, holds.acquired);
      near_operations_.add(OpKind::fetch_add, Purpose::release, holds.released);
      holds.acquired = holds.released = 0;
    }
  }
}

// Somebody here has it now, and that is not counted beside it. `called`: when, if that is timed. REQUIRES, for these three: the
// mutex of the requests is held.
void Core::note_locked(NearLock& near, Mode mode, Time called, bool waited) {
  near.in(mode).now += 1;
  Held held{near.record.local.hold_now()};
  held.hold.mode = mode;
  near_recorder_.acquired(near.lock, held, called.ns, called == Time{} ? 0 : monotonic_now().ns,
                          Recorder::kOneIn, waited);
  near.in(mode).since_ns = held.since_ns;
}

void Core::note_unlocked(NearLock& near, Mode mode) {
  const Held held = take_near_locked(near, mode);
  near_recorder_.release_begins(near.lock, held, held.since_ns == 0 ? 0 : monotonic_now().ns);
}

// Somebody has it no longer, or somebody else is to release it.
Held Core::take_near_locked(NearLock& near, Mode mode) {
  NearLock::Holds& holds = near.in(mode);
  holds.now -= 1;
  return {near.record.local.hold_now(), std::exchange(holds.since_ns, 0), Recorder::kOneIn};
}

namespace {

constexpr cql::Record::Folded folded_as(Mode mode) {
  return mode == Mode::shared ? cql::Record::Folded::shared : cql::Record::Folded::exclusive;
}

}  // namespace

Errc Core::lock_near(NearLock& near, Mode mode) {
  using Folded = cql::Record::Folded;
  if (standing() != Errc::ok) return Errc::busy;
  std::unique_lock guard{near.mutex};
  cql::Record& record = near.record;
  if (record.folded != Folded::free || --near.untimed == 0) return lock_here(near, mode, std::move(guard));
  const std::uint64_t word = near.words.add(0, lock_shape_.header.acquire_delta(mode));
  if (!lock_shape_.surely_gives(word, mode)) {
    record.folded = Folded::no;
    return lock_found(near, mode, word, {}, std::move(guard));
  }
  record.found = word;
  record.folded = folded_as(mode);
  NearLock::Holds& holds = near.in(mode);
  holds.now += 1;
  holds.acquired += 1;
  return Errc::ok;
}

bool Core::unlock_near(NearLock& near, Mode mode) {
  if (standing() != Errc::ok) return false;
  std::unique_lock guard{near.mutex};
  NearLock::Holds& holds = near.in(mode);
  if (holds.now == 0) return false;
  cql::Record& record = near.record;
  if (record.folded != folded_as(mode) || holds.since_ns != 0)
    return unlock_here(near, mode, std::move(guard));
  const std::uint64_t word = near.words.add(0, lock_shape_.header.release_delta(mode));
  holds.now -= 1;
  holds.released += 1;
  if (lock_shape_.header.requests_in(word) == lock_shape_.header.acquire_delta(mode)) {
    record.folded = cql::Record::Folded::free;
  } else {
    record.unfold();
    end_unlock(near, lock_shape_.header.decode(word), std::move(guard));
  }
  return true;
}

// It is not as simple, or is to be timed.
Errc Core::lock_here(NearLock& near, Mode mode, std::unique_lock<ShortLock> guard) {
  near.record.unfold();
  if (!hier::may_act_at_once(near.record)) {
    guard.unlock();
    return wait_here(near, mode);
  }
  Time called{};
  if (near_recorder_.times_this_one()) called = monotonic_now();
  near.untimed = Recorder::kOneIn;
  const std::uint64_t word = near.words.add(0, lock_shape_.header.acquire_delta(mode));
  return lock_found(near, mode, word, called, std::move(guard));
}

Errc Core::lock_found(NearLock& near, Mode mode, std::uint64_t word, Time called,
                      std::unique_lock<ShortLock> guard) {
  near_operations_.add(OpKind::fetch_add, Purpose::acquire);
  const Header found = lock_shape_.header.decode(word);
  const cql::Verdict verdict =
      cql::verdict_on(found, mode, near.record.of_incarnation, near.record, lock_shape_, kAllRules);
  if (verdict != cql::Verdict::held) return queue_near(near, mode, found, verdict, std::move(guard));
  near.record.hold_at_once(mode, found, near.record.of_incarnation);
  near_recorder_.begins();
  note_locked(near, mode, called, false);
  return Errc::ok;
}

bool Core::try_near(NearLock& near, Mode mode) {
  if (standing() != Errc::ok) return false;
  const std::lock_guard guard{near.mutex};
  near.record.unfold();
  if (!hier::acquire_at_once(near.record, near.words, lock_shape_, kAllRules,
                             near.record.of_incarnation, mode))
    return false;
  near_operations_.add(OpKind::fetch_add, Purpose::acquire);
  near_recorder_.begins();
  note_locked(near, mode, {}, false);
  return true;
}

// Others of this process hold it too, or wait for it; or it is not as simple.
bool Core::unlock_here(NearLock& near, Mode mode, std::unique_lock<ShortLock> guard) {
  cql::Record& record = near.record;
  record.unfold();
  if (hier::is_alone(record)) {
    const std::uint64_t word =
        near.words.add(0, lock_shape_.header.release_delta(record.local.hold.mode));
    near_operations_.add(OpKind::fetch_add, Purpose::release);
    note_unlocked(near, mode);
    end_unlock(near, lock_shape_.header.decode(word), std::move(guard));
    return true;
  }
  const Held held = take_near_locked(near, mode);
  guard.unlock();
  const Time now = monotonic_now();
  if (!locks_->locals().leave_here(record.lock, now)) {
    release_behind({record.lock, near.lock.table}, held);
    return true;
  }
  guard.lock();
  near_recorder_.release_begins(near.lock, held, now.ns);
  return true;
}

// Its release has found this.
void Core::end_unlock(NearLock& near, const Header& found, std::unique_lock<ShortLock> guard) {
  const hier::Released released =
      hier::end_release(near.record, near.words, lock_shape_, kAllRules, true, found);
  if (released == hier::Released::yes) {
    if (hier::may_act_at_once(near.record)) near.record.folded = cql::Record::Folded::free;
    return;
  }
  const Hold hold = near.record.local.hold;
  guard.unlock();
  hand_over_behind(hold, found);
}

// The fetch-and-add did not give it the lock. It enters the queue, and watches its entry for as long as that pays.
Errc Core::queue_near(NearLock& near, Mode mode, const Header& found,
                                     cql::Verdict verdict, std::unique_lock<ShortLock> guard) {
  const Time called = monotonic_now();
  cql::Record& record = near.record;
  hier::LocalWaiter me{
      .addr = record.lock,
      .mode = mode,
      .asked = {timestamp_of(locks_->clock().corrected(called)), called}};
  cql::CqlLock::Place place{.found = found,
                            .held = {},
                            .aborted = verdict == cql::Verdict::aborted,
                            .mn_incarnation = record.of_incarnation};
  hier::LocalLocks& locals = locks_->locals();
  locals.ask_here(record.local, me);
  near_recorder_.begins();
  const Time timed = near_recorder_.times_this_one() ? called : Time{};
  cql::Waiting waiting{
      .key = {record.lock, {found.epoch, record.of_incarnation}, found.end()}, .mode = mode};
  if (verdict == cql::Verdict::waits) {
    place.watching = &waiting;
    cql::note_waiting(record, waiting);
    const member::Member& self = lanes_[0]->membership.self();
    const std::size_t mine = 1u + self.slot.value;
    const std::uint64_t entry =
        encode(cql::entry_of(self, waiting.key, mode, me.asked.stamp, kWatching));
    near.words.store(mine, entry);
    near_operations_.add(OpKind::write, Purpose::acquire);
    guard.unlock();
    const bool granted = looking_.look([&] { return near.words.load(mine) != entry; });
    guard.lock();
    if (granted) cql::note_granted(waiting, decode_entry(near.words.load(mine)), called);
    if (waiting.state == cql::Waiting::State::granted) {
      cql::end_wait(record, waiting);
      locals.acquired_here(record, cql::hold_of(waiting));
      note_locked(near, mode, timed, true);
      return Errc::ok;
    }
  }
  guard.unlock();
  Result<cql::CqlLock::Place> entered = place;
  if (verdict == cql::Verdict::stuck) entered = Failure{Errc::stuck};
  const Result<Hold> hold = go_on(me, entered);
  guard.lock();
  if (hold) {
    note_locked(near, mode, timed, true);
    return Errc::ok;
  }
  near_recorder_.gave_up(near.lock, hold.error());
  return hold.error();
}

// When the first of those elsewhere who wait behind this hold asked.
std::optional<Timestamp> Core::waiting_behind(const NearLock& near, const Hold& hold) const {
  if (lock_shape_.header.decode(near.words.load(0)).qsize <= 1) return {};
  std::array<std::uint64_t, 1 + HeaderLayout::kMembersMax> queue;
  const std::span words{queue.data(), lock_shape_.queue_words()};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = near.words.load(i);
  return cql::waiting_behind(hold, kAllRules, lock_shape_, words);
}

// Another thread of this process has it, or waits for it.
Errc Core::wait_here(NearLock& near, Mode mode) {
  if (lanes_[0]->membership.evicted()) return Errc::busy;
  const Time called = monotonic_now();
  hier::LocalLocks& locals = locks_->locals();
  ThreadWait wait;
  hier::LocalWaiter me{.addr = near.record.lock,
                       .mode = mode,
                       .asked = {timestamp_of(locks_->clock().corrected(called)), called},
                       .thread = &wait};
  using Entry = hier::LocalLocks::Entry;
  const std::optional<Entry> entry = locals.enter_here(me, called);
  if (!entry) return Errc::busy;
  if (*entry == Entry::look_and_wait) locals.looked(me.behind, waiting_behind(near, me.behind), called);
  {
    const std::lock_guard guard{near.mutex};
    near_recorder_.begins();
  }
  // Those ahead release it, and then it is granted or refused.
  if (*entry != Entry::joined) wait.wait(looking_);
  const std::lock_guard guard{near.mutex};
  if (me.error != Errc::ok) {
    near_recorder_.gave_up(near.lock, me.error);
    return me.error;
  }
  note_locked(near, mode, near_recorder_.times_this_one() ? called : Time{}, true);
  return Errc::ok;
}

std::optional<Held> Core::take_near(NearLock& near, Mode mode) {
  const std::lock_guard guard{near.mutex};
  if (near.in(mode).now == 0) return {};
  near.record.unfold();
  return take_near_locked(near, mode);
}

std::optional<Hold> Core::near_hold(NearLock& near) {
  const std::lock_guard guard{near.mutex};
  if (near.in(Mode::exclusive).now == 0) return {};
  near.record.unfold();
  return near.record.local.hold_now();
}

}  // namespace declock::client
