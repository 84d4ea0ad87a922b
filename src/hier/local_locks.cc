#include "hier/local_locks.h"

#include <algorithm>

#include "base/check.h"

namespace declock::hier {
namespace {

// H25: a stream of local readers that overlap for ever would never see a remote writer. After so many of
// them, or so long, one looks at the queue before it joins.
constexpr std::uint32_t kJoinsBetweenLooks = 16;
constexpr Duration kTimeBetweenLooks = microseconds(50);

// Locks whose count of wraps is remembered; beyond that it is read again.
constexpr std::size_t kWrapsKept = 4096;

bool is_same(const Hold& a, const Hold& b) {
  return a.ticket == b.ticket && a.epoch == b.epoch && a.mn_incarnation == b.mn_incarnation;
}

}  // namespace

LocalLocks::LocalLocks(const Policy& policy, cql::Requests& requests, bool at_once,
                       HandOverObserver* observer)
    : policy_(policy), requests_(requests), at_once_(at_once), observer_(observer) {}

LocalLocks::Entry LocalLocks::enter(LocalWaiter& waiter, WorkerId worker, Time now) {
  const std::lock_guard guard{mutex_};
  const auto [lock, is_new] = find_or_make(waiter.addr, now);
  if (is_new || may_follow_release(*lock, worker)) {
    ask(*lock, waiter, waiter.mode);
    return Entry::acquire;
  }
  if (lock->state == LocalLock::State::acquiring && lock->asker == nullptr && lock->first == nullptr &&
      lock->asked_for == waiter.mode) {
    lock->asker = &waiter;  // takes over the request of a client that gave up
    waiter.waiting = true;
    requests_.set_unwanted(*lock->record, false);
    return Entry::wait;
  }
  const Entry entry = enter_held(*lock, waiter, now);
  if (entry == Entry::joined) return entry;
  // The request of a client that gave up is for this one now.
  const bool unwanted_so_far = lock->asker == nullptr || lock->asker->mode != lock->asked_for;
  if (lock->state == LocalLock::State::acquiring && unwanted_so_far && lock->asked_for == waiter.mode) {
    requests_.set_unwanted(*lock->record, false);
  }
  return entry;
}

// Among those who hold the lock or wait here.
LocalLocks::Entry LocalLocks::enter_held(LocalLock& lock, LocalWaiter& waiter, Time now) {
  const bool joins = may_join(lock, waiter);
  if (joins && (lock.looking || !time_to_look(lock, now))) {
    join(lock, waiter);
    return Entry::joined;
  }
  append(lock, waiter);
  const bool nothing_known = lock.state == LocalLock::State::held && !lock.remote && !lock.looking;
  if (!joins && !nothing_known) return Entry::wait;
  waiter.behind = lock.hold;
  lock.looking = true;
  return Entry::look_and_wait;
}

std::optional<LocalLocks::Entry> LocalLocks::enter_here(LocalWaiter& waiter, Time now) {
  const std::lock_guard guard{mutex_};
  const auto [lock, is_new] = find_or_make(waiter.addr, now);
  if (is_new) {
    erase(*lock);
    return {};
  }
  if (lock->state != LocalLock::State::held) return {};
  // A reader that waits looks again and again for remote writers that have given up, and for the dead: with a worker.
  const bool joins = may_join(*lock, waiter) && (lock->looking || !time_to_look(*lock, now));
  if (waiter.mode == Mode::shared && !joins) return {};
  return enter_held(*lock, waiter, now);
}

void LocalLocks::enter_queued(LocalWaiter& waiter, Time now) {
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find_or_make(waiter.addr, now).lock;
  if (lock.asker == nullptr) {
    ask(lock, waiter, waiter.mode);
    requests_.set_unwanted(*lock.record, false);
  } else {
    append(lock, waiter);  // somebody has taken the request over
  }
  requests_.change(*lock.record, [](cql::Record& r) { r.entered.reset(); });
}

// The entry. If there is none it is made: as a client that met nobody has it, if there is one (cql/at_once.cc), otherwise
// new. From then on no other can come that way: the record is in use.
LocalLocks::Found LocalLocks::find_or_make(RemoteAddr addr, Time now) {
  LocalLock* lock = find(addr);
  if (lock != nullptr) return {lock, false};
  lock = &insert(addr);
  const bool adopted = requests_.change(*lock->record, [&](cql::Record& r) {
    if (r.entered) lock->asked_for = *r.entered;
    if (!r.lone) return r.entered.has_value();
    lock->state = LocalLock::State::held;
    lock->hold = {.lock = addr,
                  .mode = r.lone->mode,
                  .epoch = r.era.epoch,
                  .ticket = *r.held,
                  .mn_incarnation = r.era.mn_incarnation,
                  .expect_waiters = r.lone->expect_waiters,
                  .waiting_since = r.lone->waiting_since};
    lock->held_as = r.lone->mode;
    lock->holders = 1;
    lock->remote = lock->hold.waiting_since;
    lock->since = now;
    lock->looked = now;
    if (r.reset_of) lock->reset = {r.reset_of->epoch, r.reset_of->mn_incarnation};  // H8
    r.lone.reset();
    return true;
  });
  return {lock, !adopted};
}

LocalLocks::Try LocalLocks::try_enter(LocalWaiter& waiter, bool asked, WorkerId worker, Time now) {
  const std::lock_guard guard{mutex_};
  const auto [lock, is_new] = find_or_make(waiter.addr, now);
  if (is_new || may_follow_release(*lock, worker)) {
    if (is_new && !asked) erase(*lock);
    if (!asked) return Try::ask_first;
    ask(*lock, waiter, waiter.mode);
    return Try::acquire;
  }
  if (!may_join(*lock, waiter)) return Try::busy;
  if (!lock->looking && time_to_look(*lock, now)) {
    waiter.behind = lock->hold;
    lock->looking = true;
    return Try::look_first;
  }
  join(*lock, waiter);
  return Try::joined;
}

bool LocalLocks::suspend(LocalWaiter& waiter, std::coroutine_handle<> coroutine) {
  const std::lock_guard guard{mutex_};
  waiter.coroutine = coroutine;
  return waiter.waiting;
}

// Behind a release, on the same endpoint, an acquisition takes effect after it (H34).
bool LocalLocks::may_follow_release(const LocalLock& lock, WorkerId worker) {
  return lock.state == LocalLock::State::releasing && lock.first == nullptr &&
         lock.releasing_worker == worker;
}

bool LocalLocks::time_to_look(const LocalLock& lock, Time now) {
  return lock.joins >= kJoinsBetweenLooks || now - lock.looked > kTimeBetweenLooks;
}

void LocalLocks::join(LocalLock& lock, LocalWaiter& waiter) {
  lock.joins += 1;
  lock.holders += 1;
  waiter.hold = lock.hold;
}

// Nobody here keeps it from joining.
bool LocalLocks::could_join(const LocalLock& lock, const LocalWaiter& waiter) {
  return lock.state == LocalLock::State::held && lock.may_be_passed_on() &&
         lock.hold.mode == Mode::shared && lock.held_as == Mode::shared &&
         waiter.mode == Mode::shared && first_of(lock, Mode::exclusive) == nullptr;
}

bool LocalLocks::may_join(const LocalLock& lock, const LocalWaiter& waiter) const {
  return could_join(lock, waiter) && policy_.in_time(waiter.asked, lock.remote);
}

void LocalLocks::reset_begins(RemoteAddr addr, Epoch epoch, std::uint32_t mn_incarnation) {
  const std::lock_guard guard{mutex_};
  LocalLock* lock = find(addr);
  if (lock != nullptr) lock->reset = {epoch, mn_incarnation};
  wraps_.erase(addr.packed());
}

bool LocalLocks::looks_again(LocalWaiter& waiter, Duration after, Time now) {
  const std::lock_guard guard{mutex_};
  if (!waiter.waiting) return false;
  LocalLock& lock = *find(waiter.addr);
  if (lock.looking || now - lock.looked < after || !could_join(lock, waiter)) return false;
  waiter.behind = lock.hold;
  lock.looking = true;
  return true;
}

void LocalLocks::looked(const Hold& behind, const Result<std::optional<Timestamp>>& seen, Time now) {
  const std::lock_guard guard{mutex_};
  LocalLock* lock = find(behind.lock);
  // Released meanwhile: what was seen is void.
  if (lock == nullptr || !lock->looking || !is_same(lock->hold, behind)) return;
  lock->looking = false;
  lock->joins = 0;
  lock->looked = now;
  const std::optional<Timestamp> remote = seen ? *seen : std::nullopt;
  if (seen && !remote) lock->remote.reset();  // whoever was known to wait has given up, or died
  if (remote && !lock->remote) lock->remote = {*remote, now};
  // One who asked earlier, but it has been known for as long that somebody waits.
  if (remote && is_earlier(*remote, lock->remote->asked)) lock->remote->asked = *remote;
  join_those_who_may(*lock);
}

void LocalLocks::join_those_who_may(LocalLock& lock) {
  for (LocalWaiter* waiter = lock.first; waiter != nullptr;) {
    LocalWaiter* next = waiter->next;
    if (may_join(lock, *waiter)) {
      unlink(lock, *waiter);
      lock.holders += 1;
      grant(*waiter, lock);
    }
    waiter = next;
  }
}

bool LocalLocks::acquired_alone(const Hold& hold) {
  if (!at_once_) return false;
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find(hold.lock);
  if (lock.asker == nullptr || lock.first != nullptr || lock.asker->mode != hold.mode) return false;
  requests_.change(*lock.record, [&](cql::Record& r) {
    r.lone = {hold.mode, hold.expect_waiters, hold.waiting_since};
  });
  lock.hold = hold;
  lock.in_a_row = 0;
  grant(*lock.asker, lock, hold.object_read);
  erase(lock);
  return true;
}

LocalLocks::Leave LocalLocks::acquired(const Hold& hold, WorkerId worker, Time now) {
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find(hold.lock);
  CHECK(lock.state == LocalLock::State::acquiring && lock.holders == 0);
  LocalWaiter* asker = lock.asker;
  lock.state = LocalLock::State::held;
  lock.asker = nullptr;
  lock.hold = hold;
  lock.hold.object_read = false;
  lock.holders = 1;
  lock.in_a_row = 0;
  lock.remote = hold.waiting_since;
  lock.joins = 0;
  lock.looked = now;
  lock.since = now;
  if (asker == nullptr || asker->mode != lock.asked_for) requests_.set_unwanted(*lock.record, false);
  if (asker == nullptr) {  // as if the client that gave up had come and gone
    lock.held_as = hold.mode;
    return leave_locked(lock, worker, false, now);
  }
  lock.held_as = asker->mode;
  grant(*asker, lock, hold.object_read);
  if (lock.held_as == Mode::shared) let_readers_in(lock);
  return {};
}

void LocalLocks::give_up(LocalWaiter& waiter, Errc why) {
  const std::lock_guard guard{mutex_};
  give_up_locked(waiter, why);
}

bool LocalLocks::time_out(LocalWaiter& waiter) {
  const std::lock_guard guard{mutex_};
  if (!waiter.waiting) return true;
  const LocalLock& lock = *find(waiter.addr);
  waiter.is_late = lock.asker == &waiter && lock.unanswered;
  if (!waiter.is_late) give_up_locked(waiter, Errc::timed_out);
  return !waiter.is_late;
}

void LocalLocks::must_wait(RemoteAddr addr) {
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find(addr);
  lock.unanswered = false;
  if (lock.asker != nullptr && lock.asker->is_late) give_up_locked(*lock.asker, Errc::timed_out);
}

void LocalLocks::give_up_locked(LocalWaiter& waiter, Errc why) {
  if (!waiter.may_give_up || !waiter.waiting) return;
  LocalLock& lock = *find(waiter.addr);
  if (lock.asker == &waiter) {
    lock.asker = nullptr;
  } else {
    unlink(lock, waiter);
    join_those_who_may(lock);  // readers that waited only behind this one
  }
  // A place for a writer keeps readers of other compute nodes out, and those here.
  const bool for_a_writer = (lock.asker != nullptr && lock.asker->mode == Mode::exclusive) ||
                            first_of(lock, Mode::exclusive) != nullptr;
  const bool unwanted =
      lock.state == LocalLock::State::acquiring && lock.asked_for == Mode::exclusive && !for_a_writer;
  if (unwanted) requests_.set_unwanted(*lock.record, true);
  refuse(waiter, why);
}

LocalLocks::Successor LocalLocks::left(RemoteAddr addr) {
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find(addr);
  requests_.set_unwanted(*lock.record, false);
  if (lock.asker != nullptr) return ask_for(lock, *lock.asker);
  if (lock.first != nullptr) return take_successor(lock, *lock.first);
  erase(lock);
  return {};
}

// Others share a shared lock: task-fair, those who came before the first writer and before whoever waits
// elsewhere; otherwise all of them.
void LocalLocks::let_readers_in(LocalLock& lock) {
  for (LocalWaiter* waiter = lock.first; waiter != nullptr;) {
    LocalWaiter* next = waiter->next;
    const bool in_time = policy_.in_time(waiter->asked, lock.remote);
    if (!policy_.phases() && (waiter->mode == Mode::exclusive || !in_time)) return;
    // H26: who is late comes along with the lock, and at no hand-over after that.
    const bool comes_along = lock.in_a_row == 0 && policy_.late_reader_comes_along(lock.hold.mode);
    if (waiter->mode == Mode::shared && (in_time || comes_along)) {
      unlink(lock, *waiter);
      lock.holders += 1;
      grant(*waiter, lock);
    }
    waiter = next;
  }
}

void LocalLocks::failed(RemoteAddr addr, Errc error) {
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find(addr);
  requests_.set_unwanted(*lock.record, false);
  if (lock.asker != nullptr) refuse(*lock.asker, error);
  while (lock.first != nullptr) {
    LocalWaiter& waiter = *lock.first;
    unlink(lock, waiter);
    refuse(waiter, error);
  }
  erase(lock);
}

LocalLocks::Choice LocalLocks::choose(const LocalLock& lock) const {
  Choice choice{lock.first, false};
  if (policy_.phases()) {
    const Mode turn = lock.held_as == Mode::exclusive ? Mode::shared : Mode::exclusive;
    if (LocalWaiter* other = first_of(lock, turn)) choice.candidate = other;
  }
  choice.stays = choice.candidate != nullptr && lock.may_be_passed_on() &&
                 policy_.covers(lock.hold.mode, choice.candidate->mode, section_) &&
                 policy_.hand_over_locally(choice.candidate->asked, lock.remote, lock.in_a_row);
  return choice;
}

LocalLocks::Leave LocalLocks::leave(RemoteAddr addr, WorkerId worker, bool unwritten, Time now) {
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find_or_make(addr, now).lock;
  note_section(lock.holders, lock.since, now);
  return leave_locked(lock, worker, unwritten, now);
}

LocalLocks::LeftHere LocalLocks::leave_here(RemoteAddr addr, Time now) {
  const std::lock_guard guard{mutex_};
  LocalLock* lock = find(addr);
  if (lock == nullptr) return LeftHere::not_done;
  const std::uint32_t holders = lock->holders;
  const Time since = lock->since;
  if (holders > 1 || choose(*lock).stays) {
    const Leave leave = leave_locked(*lock, WorkerId{}, false, now);
    CHECK(leave.kind == Leave::Kind::nothing);
    note_section(holders, since, now);  // afterwards: whom to choose depends on it
    return LeftHere::done;
  }
  if (lock->first != nullptr || lock->looking || !lock->may_be_passed_on()) return LeftHere::not_done;
  note_section(holders, since, now);
  requests_.change(*lock->record, [&](cql::Record& r) {
    r.lone = {lock->hold.mode, lock->hold.expect_waiters || lock->remote.has_value(), lock->remote};
  });
  erase(*lock);
  return LeftHere::alone;
}

void LocalLocks::note_section(std::uint32_t holders, Time since, Time now) {
  if (holders == 1) section_ = Duration{(15 * section_.ns + (now - since).ns) / 16};
}

LocalLocks::Leave LocalLocks::leave_locked(LocalLock& lock, WorkerId worker, bool unwritten, Time now) {
  const Choice choice = choose(lock);
  if (unwritten && (lock.holders > 1 || choice.stays)) return {.kind = Leave::Kind::write_first};
  lock.holders -= 1;
  if (lock.holders > 0) return {};
  if (choice.stays) {
    lock.in_a_row += 1;
    lock.since = now;
    unlink(lock, *choice.candidate);
    if (observer_ != nullptr) observer_->handed_over(choice.candidate->asked, lock.remote);
    lock.holders = 1;
    lock.held_as = choice.candidate->mode;
    grant(*choice.candidate, lock);
    if (lock.held_as == Mode::shared) let_readers_in(lock);
    return {};
  }
  Leave leave{Leave::Kind::release, lock.hold, {}};
  leave.hold.expect_waiters = leave.hold.expect_waiters || lock.remote || choice.candidate != nullptr;
  lock.remote.reset();
  lock.looking = false;
  if (choice.candidate != nullptr) {
    leave.successor = take_successor(lock, *choice.candidate);
  } else {
    lock.state = LocalLock::State::releasing;
    lock.releasing_worker = worker;
  }
  return leave;
}

LocalLocks::Successor LocalLocks::released(const Hold& hold) {
  const std::lock_guard guard{mutex_};
  LocalLock* lock = find(hold.lock);
  // Otherwise somebody has gone ahead behind the release, on its endpoint, and may be releasing again.
  if (lock == nullptr || lock->state != LocalLock::State::releasing || !is_same(lock->hold, hold))
    return {};
  if (lock->first != nullptr) return take_successor(*lock, *lock->first);
  erase(*lock);
  return {};
}

LocalLocks::Successor LocalLocks::take_successor(LocalLock& lock, LocalWaiter& waiter) {
  unlink(lock, waiter);
  return ask_for(lock, waiter);
}

// In the mode that suits everybody who waits here.
LocalLocks::Successor LocalLocks::ask_for(LocalLock& lock, LocalWaiter& waiter) {
  ask(lock, waiter,
      policy_.mode_to_ask(waiter.mode, first_of(lock, Mode::exclusive) != nullptr, section_));
  return {&waiter, lock.asked_for, waiter.asked.stamp, waiter.object};
}

void LocalLocks::ask(LocalLock& lock, LocalWaiter& waiter, Mode mode) {
  lock.state = LocalLock::State::acquiring;
  lock.asker = &waiter;
  lock.asked_for = mode;
  lock.unanswered = true;
  waiter.waiting = true;
}

// Another thread may resume the waiter, and then it is gone.
void LocalLocks::grant(LocalWaiter& waiter, const LocalLock& lock, bool object_read) {
  waiter.hold = lock.hold;
  waiter.hold.local_sequence = lock.in_a_row;
  waiter.hold.object_read = object_read;
  resume(waiter);
}

void LocalLocks::refuse(LocalWaiter& waiter, Errc why) {
  waiter.error = why;
  resume(waiter);
}

void LocalLocks::resume(LocalWaiter& waiter) {
  waiter.waiting = false;
  if (waiter.thread != nullptr) return waiter.thread->wake();
  if (waiter.coroutine) waiter.worker->make_ready(waiter.coroutine);
}

void LocalLocks::append(LocalLock& lock, LocalWaiter& waiter) {
  waiter.next = nullptr;
  waiter.waiting = true;
  (lock.last == nullptr ? lock.first : lock.last->next) = &waiter;
  lock.last = &waiter;
}

void LocalLocks::unlink(LocalLock& lock, LocalWaiter& waiter) {
  LocalWaiter* before = nullptr;
  for (LocalWaiter* at = lock.first; at != &waiter; at = at->next) before = at;
  (before == nullptr ? lock.first : before->next) = waiter.next;
  if (lock.last == &waiter) lock.last = before;
}

LocalWaiter* LocalLocks::first_of(const LocalLock& lock, Mode mode) {
  for (LocalWaiter* waiter = lock.first; waiter != nullptr; waiter = waiter->next) {
    if (waiter->mode == mode) return waiter;
  }
  return nullptr;
}

std::optional<std::uint64_t> LocalLocks::known_wraps(const Hold& hold) {
  const std::lock_guard guard{mutex_};
  const auto found = wraps_.find(hold.lock.packed());
  if (found == wraps_.end() || found->second.epoch != hold.epoch ||
      found->second.mn_incarnation != hold.mn_incarnation) {
    return {};
  }
  return found->second.count;
}

void LocalLocks::remember_wraps(const Hold& hold, std::uint64_t wraps) {
  const std::lock_guard guard{mutex_};
  if (wraps_.size() >= kWrapsKept) wraps_.clear();
  wraps_[hold.lock.packed()] = {hold.epoch, hold.mn_incarnation, wraps};
}

LocalLock& LocalLocks::insert(RemoteAddr addr) {
  LocalLock& lock = locks_.insert(addr.packed());
  lock.addr = addr;
  lock.record = &requests_.use(addr);
  bytes_max_ = std::max(bytes_max_, locks_.bytes());
  return lock;
}

void LocalLocks::erase(LocalLock& lock) {
  requests_.end_use(*lock.record);
  locks_.erase(lock.addr.packed());
}

}  // namespace declock::hier
