#include "client/near_lock.h"

#include "base/futex.h"
#include "client/core.h"

namespace declock::client {
namespace {

using Folded = cql::Record::Folded;
using hier::LocalLocks;
using hier::LocalWaiter;

constexpr cql::Rules kAllRules{};

constexpr Folded folded_as(Mode mode) {
  return mode == Mode::shared ? Folded::shared : Folded::exclusive;
}

}  // namespace

NearLock::NearLock(NearLocks& shared, const LockRef& lock, std::uint64_t* words,
                   std::uint32_t mn_incarnation)
    : shared_(shared),
      shape_(shared.shape),
      lock_(lock),
      record_(shared.locks.requests().keep({lock.at.mn, lock.at.offset}, shared.shape, mn_incarnation)),
      words_{words, &shared.operations},
      mutex_(shared.locks.requests().mutex()) {
  const std::lock_guard guard{mutex_};
  untimed_ = shared.recorder.until_timed();
}

void NearLock::forget() {
  count();
  shared_.locks.requests().keep_no_longer(record_);
}

// Once before the mutex is taken, which is gone if the cluster was closed; and once more when it is had: who is evicted gives its
// slot up only after it was.
bool NearLock::is_open() const {
  return shared_.core.standing() == Errc::ok;
}

Asked NearLock::asked_at(Time now) const {
  return {timestamp_of(shared_.locks.clock().corrected(now)), now};
}

// A forked child has one thread, and another of its parent may have had the mutex.
NearLock::Guard NearLock::guard_if_threads() {
  return shared_.core.is_closed() ? Guard{} : Guard{mutex_};
}

// ---------------------------------------------------------------- nobody is in the way

Errc NearLock::lock(Mode mode) {
  if (!is_open()) return Errc::busy;
  Guard guard{mutex_};
  if (!is_open()) return Errc::busy;
  const bool timed = --untimed_ == 0;
  // Who is likely to wait looks at the clock first: its entry should come soon after its fetch-and-add.
  const bool waits = !shape_.surely_gives(words_.load(0), mode);
  if (record_.folded != Folded::free || timed || waits) return lock_here(mode, timed, std::move(guard));
  const std::uint64_t word = words_.add(0, shape_.header.acquire_delta(mode));
  if (!shape_.surely_gives(word, mode)) {
    record_.folded = Folded::no;
    return lock_found(mode, word, monotonic_now(), false, std::move(guard));
  }
  record_.found = word;
  record_.folded = folded_as(mode);
  Holds& holds = in(mode);
  holds.now += 1;
  holds.at_once += 1;
  return Errc::ok;
}

bool NearLock::unlock(Mode mode) {
  if (!is_open()) return false;
  Guard guard{mutex_};
  Holds& holds = in(mode);
  if (holds.now == 0 || !is_open()) return false;
  if (record_.folded != folded_as(mode) || holds.timed.since_ns != 0)
    return unlock_here(mode, std::move(guard));
  const std::uint64_t word = words_.add(0, shape_.header.release_delta(mode));
  holds.now -= 1;
  holds.released += 1;
  if (shape_.header.requests_in(word) == shape_.header.acquire_delta(mode)) {  // nobody else's
    record_.folded = Folded::free;
  } else {
    record_.unfold();
    end_unlock(shape_.header.decode(word), std::move(guard));
  }
  return true;
}

bool NearLock::try_lock(Mode mode) {
  if (!is_open()) return false;
  const std::lock_guard guard{mutex_};
  if (!is_open()) return false;
  record_.unfold();
  if (!hier::acquire_at_once(record_, words_, shape_, kAllRules, record_.of_incarnation, mode))
    return false;
  got(mode, &Holds::joined, {});  // the swap is counted
  return true;
}

// ---------------------------------------------------------------- somebody may be

Errc NearLock::lock_here(Mode mode, bool timed, Guard guard) {
  if (timed) untimed_ = shared_.recorder.until_timed();
  record_.unfold();
  if (!hier::may_act_at_once(record_)) return wait_here(mode, timed, std::move(guard));
  const Time called = monotonic_now();
  const std::uint64_t word = words_.add(0, shape_.header.acquire_delta(mode));
  return lock_found(mode, word, called, timed, std::move(guard));
}

Errc NearLock::lock_found(Mode mode, std::uint64_t word, Time called, bool timed, Guard guard) {
  const Header found = shape_.header.decode(word);
  const cql::Verdict verdict =
      cql::verdict_on(found, mode, record_.of_incarnation, record_, shape_, kAllRules);
  if (verdict != cql::Verdict::held)
    return queue(mode, found, verdict, called, timed, std::move(guard));
  record_.hold_at_once(mode, found, record_.of_incarnation);
  got(mode, &Holds::at_once, timed ? called : Time{});
  return Errc::ok;
}

// It waits for another process: in the queue, and watching its entry as long as that pays.
Errc NearLock::queue(Mode mode, const Header& found, cql::Verdict verdict, Time called, bool timed,
                     Guard guard) {
  LocalWaiter me{.addr = record_.lock, .mode = mode, .asked = asked_at(called)};
  LocalLocks::ask_here(record_.local, me);
  shared_.recorder.begins();
  cql::Waiting waiting{.key = {record_.lock, {found.epoch, record_.of_incarnation}, found.end()},
                       .mode = mode};
  if (verdict == cql::Verdict::waits && watch(waiting, me.asked.stamp, guard)) {
    shared_.locks.locals().acquired_here(record_, cql::hold_of(waiting));
    got(mode, &Holds::granted, timed ? called : Time{});
    return Errc::ok;
  }
  guard.unlock();
  Result<Place> entered = Place{.found = found,
                                .held = {},
                                .aborted = verdict == cql::Verdict::aborted,
                                .mn_incarnation = record_.of_incarnation,
                                .watching = verdict == cql::Verdict::waits ? &waiting : nullptr};
  if (verdict == cql::Verdict::stuck) entered = Failure{Errc::stuck};
  const Result<Hold> hold = shared_.core.go_on(me, entered);
  guard.lock();
  if (hold) {
    got(mode, &Holds::granted, {});
    time(mode, called, 1, true);
    return Errc::ok;
  }
  shared_.operations.add(OpKind::fetch_add, Purpose::acquire);
  shared_.recorder.gave_up(lock_, hold.error());
  return hold.error();
}

// True: it is granted the lock. Otherwise it is still in the queue, or a reset has begun.
bool NearLock::watch(cql::Waiting& waiting, Timestamp asked, Guard& guard) {
  cql::note_waiting(record_, waiting);
  const member::Member& self = shared_.membership.self();
  const std::size_t mine = 1u + self.slot.value;
  const std::uint64_t entry = encode(cql::entry_of(self, waiting.key, waiting.mode, asked, kWatching));
  words_.store(mine, entry);
  shared_.operations.add(OpKind::write, Purpose::acquire);
  guard.unlock();
  const bool changed = shared_.looking.look([&] { return words_.load(mine) != entry; });
  guard.lock();
  if (changed) {
    const Entry granted = decode_entry(words_.load(mine));
    (void)cql::note_granted(waiting, granted, cql::behind_grant(granted) ? monotonic_now() : Time{});
  }
  if (waiting.state != cql::Waiting::State::granted) return false;
  cql::end_wait(record_, waiting);
  return true;
}

// Another thread of this process has it, or waits for it.
Errc NearLock::wait_here(Mode mode, bool timed, Guard guard) {
  if (shared_.membership.evicted()) return Errc::busy;
  const Time now = monotonic_now();
  ThreadWait wait;
  LocalWaiter me{
      .addr = record_.lock, .mode = mode, .asked = asked_at(now), .thread = &wait, .counts = &in(mode)};
  LocalLocks& locals = shared_.locks.locals();
  using Entry = LocalLocks::Entry;
  const std::optional<Entry> entry = locals.enter_here(record_, me, now);
  if (!entry) return Errc::busy;
  if (*entry == Entry::joined) {
    got(mode, &Holds::joined, timed ? now : Time{});
    return Errc::ok;
  }
  shared_.recorder.begins();
  if (*entry == Entry::look_and_wait) locals.looked_here(record_, waiting_behind(me.behind), now);
  guard.unlock();
  const bool slept = wait.wait(shared_.looking);  // until those ahead release it, or it is refused
  if (me.error == Errc::ok && !slept && !timed) return Errc::ok;
  guard.lock();
  if (me.error != Errc::ok) {
    shared_.recorder.gave_up(lock_, me.error);
  } else {
    time(mode, now, slept ? 1 : Recorder::kOneIn, true);
  }
  return me.error;
}

// When the first of those elsewhere who wait behind this hold asked.
std::optional<Timestamp> NearLock::waiting_behind(const Hold& hold) const {
  if (shape_.header.decode(words_.load(0)).qsize <= 1) return {};
  std::array<std::uint64_t, 1 + HeaderLayout::kMembersMax> queue;
  const std::span words{queue.data(), shape_.queue_words()};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = words_.load(i);
  shared_.operations.add(OpKind::read, Purpose::prefetch);
  return cql::waiting_behind(hold, kAllRules, shape_, words);
}

bool NearLock::unlock_here(Mode mode, Guard guard) {
  record_.unfold();
  if (hier::is_alone(record_, kAllRules)) {
    const std::uint64_t word = words_.add(0, shape_.header.release_delta(record_.local.hold.mode));
    gone(mode, &Holds::released);
    end_unlock(shape_.header.decode(word), std::move(guard));
    return true;
  }
  const cql::LocalLock& local = record_.local;
  const bool looks = local.since != Time{} || local.in_a_row % Recorder::kOneIn == 0;
  if (shared_.locks.locals().leave_here(record_, looks ? monotonic_now() : Time{})) {
    gone(mode, &Holds::left);
    return true;
  }
  const Held held = take_locked(mode);
  guard.unlock();
  shared_.core.release_behind({record_.lock, lock_.table}, held);
  return true;
}

// Its release has found this.
void NearLock::end_unlock(const Header& found, Guard guard) {
  cql::Owing owing{found, {}};
  const hier::Released released = hier::end_release(record_, words_, shape_, kAllRules, true, owing);
  if (released == hier::Released::yes) {
    if (hier::may_act_at_once(record_)) record_.folded = Folded::free;
    return;
  }
  const Hold hold = record_.local.hold;
  Core& core = shared_.core;
  guard.unlock();  // whoever has the lock next may end this object
  core.hand_over_behind(hold, owing);
}

std::optional<Held> NearLock::take(Mode mode) {
  const Guard guard = guard_if_threads();
  if (in(mode).now == 0) return {};
  record_.unfold();
  return take_locked(mode);
}

Held NearLock::take_locked(Mode mode) {
  Holds& holds = in(mode);
  holds.now -= 1;
  Held held = std::exchange(holds.timed, {});
  held.hold = record_.local.hold_now();
  return held;
}

std::optional<Hold> NearLock::hold() {
  const Guard guard = guard_if_threads();
  if (in(Mode::exclusive).now == 0) return {};
  record_.unfold();
  return record_.local.hold_now();
}

// ---------------------------------------------------------------- counting

// `called`: when, if that is timed.
void NearLock::got(Mode mode, std::uint32_t Holds::*how, Time called) {
  in(mode).now += 1;
  in(mode).*how += 1;
  if (called != Time{}) time(mode, called, Recorder::kOneIn, how == &Holds::granted);
}

void NearLock::time(Mode mode, Time called, std::uint32_t counts, bool waited) {
  shared_.recorder.time(lock_, in(mode).timed, called.ns, monotonic_now().ns, counts, waited);
}

void NearLock::gone(Mode mode, std::uint32_t Holds::*how) {
  Holds& holds = in(mode);
  holds.now -= 1;
  holds.*how += 1;
  const Held timed = std::exchange(holds.timed, {});
  if (timed.since_ns != 0)
    shared_.recorder.held_for(lock_, monotonic_now().ns - timed.since_ns, timed.counts);
}

void NearLock::count() {
  const std::lock_guard guard{mutex_};
  for (const Mode mode : {Mode::shared, Mode::exclusive}) {
    Holds& holds = in(mode);
    shared_.recorder.acquired_often(lock_, mode, holds.at_once + holds.joined, holds.handed,
                                    holds.granted);
    shared_.recorder.released_often(holds.released + holds.left);
    shared_.operations.add(OpKind::fetch_add, Purpose::acquire, holds.at_once + holds.granted);
    shared_.operations.add(OpKind::fetch_add, Purpose::release, holds.released);
    holds.at_once = holds.joined = holds.handed = holds.granted = holds.released = holds.left = 0;
  }
}

}  // namespace declock::client
