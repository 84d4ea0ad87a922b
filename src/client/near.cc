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
  auto near = std::make_unique<NearLock>(
      NearLock{lock, locks_->requests().keep(at), {words}, endpoint.incarnation(at.mn)});
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
      holds.acquired = holds.released = 0;
    }
  }
}

// Somebody here has it now. `called`: when, if that is timed. REQUIRES, for these three: the mutex of the requests is held.
void Core::note_near(NearLock& near, Mode mode, Time called, bool waited) {
  NearLock::Holds& holds = near.in(mode);
  holds.now += 1;
  if (called == Time{} && !waited) {
    holds.acquired += 1;
    return;
  }
  Held held{near.record.local.hold_now()};
  held.hold.mode = mode;
  near_recorder_.acquired(near.lock, held, called.ns, called == Time{} ? 0 : monotonic_now().ns,
                          Recorder::kOneIn, waited);
  holds.since_ns = held.since_ns;
}

void Core::note_unlocked(NearLock& near, Mode mode) {
  NearLock::Holds& holds = near.in(mode);
  if (holds.since_ns == 0) {
    holds.now -= 1;
    holds.released += 1;
  } else {
    near_recorder_.release_begins(near.lock, take_near_locked(near, mode), monotonic_now().ns);
  }
}

// Somebody has it no longer, or somebody else is to release it.
Held Core::take_near_locked(NearLock& near, Mode mode) {
  NearLock::Holds& holds = near.in(mode);
  holds.now -= 1;
  return {near.record.local.hold_now(), std::exchange(holds.since_ns, 0), Recorder::kOneIn};
}

Errc Core::lock_near(NearLock& near, Mode mode) {
  if (standing() != Errc::ok) return Errc::busy;
  std::unique_lock guard{locks_->requests().mutex()};
  cql::Record& record = near.record;
  if (!hier::may_act_at_once(record)) {
    guard.unlock();
    return wait_here(near, mode);
  }
  const std::uint64_t word =
      *near.words.fetch_add(0, lock_shape_.header.acquire_delta(mode), Purpose::acquire);
  near_operations_.add(OpKind::fetch_add, Purpose::acquire);
  const Header found = lock_shape_.header.decode(word);
  const cql::Verdict verdict =
      cql::verdict_on(found, mode, near.mn_incarnation, record, lock_shape_, kAllRules);
  if (verdict != cql::Verdict::held) return queue_near(near, mode, found, verdict, std::move(guard));
  record.local.begin(cql::note_held(record, mode, found, near.mn_incarnation), mode, Time{});
  note_near(near, mode, near_recorder_.times_this_one() ? monotonic_now() : Time{}, false);
  return Errc::ok;
}

bool Core::try_near(NearLock& near, Mode mode) {
  if (standing() != Errc::ok) return false;
  const std::lock_guard guard{locks_->requests().mutex()};
  if (!hier::acquire_at_once(near.record, near.words, lock_shape_, kAllRules, near.mn_incarnation, mode))
    return false;
  near_operations_.add(OpKind::fetch_add, Purpose::acquire);
  note_near(near, mode, {}, false);
  return true;
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
                            .mn_incarnation = near.mn_incarnation};
  hier::LocalLocks& locals = locks_->locals();
  locals.ask_here(record.local, me);
  near_recorder_.begins();
  const bool timed = near_recorder_.times_this_one();
  cql::Waiting waiting{
      .key = {record.lock, {found.epoch, near.mn_incarnation}, found.end()}, .mode = mode};
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
      note_near(near, mode, timed ? called : Time{}, true);
      return Errc::ok;
    }
  }
  guard.unlock();
  Result<cql::CqlLock::Place> entered = place;
  if (verdict == cql::Verdict::stuck) entered = Failure{Errc::stuck};
  const Result<Hold> hold = go_on(me, entered);
  guard.lock();
  if (hold) {
    note_near(near, mode, timed ? called : Time{}, true);
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
    const std::lock_guard guard{locks_->requests().mutex()};
    near_recorder_.begins();
  }
  // Those ahead release it, and then it is granted or refused.
  if (*entry != Entry::joined) wait.wait(looking_);
  const std::lock_guard guard{locks_->requests().mutex()};
  if (me.error != Errc::ok) {
    near_recorder_.gave_up(near.lock, me.error);
    return me.error;
  }
  note_near(near, mode, near_recorder_.times_this_one() ? called : Time{}, true);
  return Errc::ok;
}

bool Core::unlock_near(NearLock& near, Mode mode) {
  if (standing() != Errc::ok) return false;
  std::unique_lock guard{locks_->requests().mutex()};
  NearLock::Holds& holds = near.in(mode);
  if (holds.now == 0) return false;
  Header found;
  const hier::Released released =
      hier::release_at_once(near.record, near.words, lock_shape_, kAllRules, true, found);
  if (released == hier::Released::no) return unlock_here(near, mode, std::move(guard));
  near_operations_.add(OpKind::fetch_add, Purpose::release);
  const Hold hold = near.record.local.hold;
  note_unlocked(near, mode);
  guard.unlock();
  if (released == hier::Released::owing) hand_over_behind(hold, found);
  return true;
}

// Others of this process hold it too, or wait for it.
bool Core::unlock_here(NearLock& near, Mode mode, std::unique_lock<ShortLock> guard) {
  const Held held = take_near_locked(near, mode);
  guard.unlock();
  const Time now = monotonic_now();
  if (!locks_->locals().leave_here(near.record.lock, now)) {
    release_behind({near.record.lock, near.lock.table}, held);
    return true;
  }
  guard.lock();
  near_recorder_.release_begins(near.lock, held, now.ns);
  return true;
}

std::optional<Held> Core::take_near(NearLock& near, Mode mode) {
  const std::lock_guard guard{locks_->requests().mutex()};
  if (near.in(mode).now == 0) return {};
  return take_near_locked(near, mode);
}

std::optional<Hold> Core::near_hold(NearLock& near) {
  const std::lock_guard guard{locks_->requests().mutex()};
  if (near.in(Mode::exclusive).now == 0) return {};
  return near.record.local.hold_now();
}

}  // namespace declock::client
