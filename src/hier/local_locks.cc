#include "hier/local_locks.h"

#include <algorithm>

#include "base/check.h"
#include "layout/entry.h"

namespace declock::hier {
namespace {

// H25: a stream of local readers that overlap for ever would never see a remote writer. After so many of
// them, or so long, one looks at the queue before it joins.
constexpr std::uint32_t kJoinsBetweenLooks = 16;
constexpr Duration kTimeBetweenLooks = microseconds(50);

bool is_same(const Hold& a, const Hold& b) {
  return a.ticket == b.ticket && a.epoch == b.epoch && a.mn_incarnation == b.mn_incarnation;
}

}  // namespace

LocalLocks::LocalLocks(const Policy& policy, cql::Requests& requests, HandOverObserver* observer)
    : policy_(policy), requests_(requests), observer_(observer) {}

LocalLocks::Entry LocalLocks::enter(LocalWaiter& waiter, WorkerId worker, Time now) {
  const std::lock_guard guard{requests_.mutex()};
  return enter_locked(met(waiter.addr, now), waiter, worker, now);
}

LocalLocks::Entry LocalLocks::enter_locked(cql::Record& record, LocalWaiter& waiter, WorkerId worker,
                                           Time now) {
  LocalLock& lock = record.local;
  if (lock.state == LocalLock::State::absent || may_follow_release(lock, worker)) {
    ask(lock, waiter, waiter.mode);
    return Entry::acquire;
  }
  if (lock.state == LocalLock::State::acquiring && lock.asker == nullptr && lock.first == nullptr &&
      lock.asked_for == waiter.mode) {
    lock.asker = &waiter;  // takes over the request of a client that gave up
    waiter.waiting = true;
    requests_.note_unwanted(record, false);
    return Entry::wait;
  }
  const Entry entry = enter_held(lock, waiter, now);
  if (entry == Entry::joined) return entry;
  // The request of a client that gave up is for this one now.
  const bool unwanted_so_far = lock.asker == nullptr || lock.asker->mode != lock.asked_for;
  if (lock.state == LocalLock::State::acquiring && unwanted_so_far && lock.asked_for == waiter.mode) {
    requests_.note_unwanted(record, false);
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
  // A look at the queue may come a little late: it bounds how long a remote writer waits, and nothing depends on it.
  if (joins && policy_.kind == PolicyKind::token) {
    join(lock, waiter);
    waiter.behind = lock.hold;
    lock.looking = true;
    return Entry::look_and_go;
  }
  append(lock, waiter);
  const bool nothing_known = lock.state == LocalLock::State::held && !lock.remote && !lock.looking &&
                             policy_.kind != PolicyKind::token;
  if (!joins && !nothing_known) return Entry::wait;
  waiter.behind = lock.hold;
  lock.looking = true;
  return Entry::look_and_wait;
}

std::optional<LocalLocks::Entry> LocalLocks::enter_here(cql::Record& record, LocalWaiter& waiter,
                                                        Time now) {
  LocalLock& lock = record.local;
  if (lock.looked == Time{}) lock.looked = now;
  if (lock.state == LocalLock::State::absent) return {};
  // A reader that waits looks again and again for remote writers that have given up, and for the dead: with a worker.
  const bool joins = may_join(lock, waiter) && (lock.looking || !time_to_look(lock, now));
  if (waiter.mode == Mode::shared && !joins) return {};
  return enter_locked(record, waiter, kNobody, now);
}

void LocalLocks::ask_here(LocalLock& lock, LocalWaiter& waiter) {
  ask(lock, waiter, waiter.mode);
  lock.unanswered = false;
}

void LocalLocks::acquired_here(cql::Record& record, const Hold& hold) {
  const Leave leave = acquired_locked(record, hold, kNobody, Time{});
  CHECK(leave.kind == Leave::Kind::nothing);  // who asked has not given up
}

// Whoever holds the lock since it was acquired at once has not looked at the time.
cql::Record& LocalLocks::met(RemoteAddr addr, Time now) {
  cql::Record& record = requests_.find_or_insert(addr);
  LocalLock& lock = record.local;
  if (lock.state == LocalLock::State::held && lock.since == Time{}) lock.since = lock.looked = now;
  return record;
}

// Nobody here has to do with the lock any more.
void LocalLocks::forget(cql::Record& record) {
  record.local = {};
  requests_.reclaim(record);
}

LocalLocks::Try LocalLocks::try_enter(LocalWaiter& waiter, bool asked, WorkerId worker, Time now) {
  const std::lock_guard guard{requests_.mutex()};
  cql::Record& record = met(waiter.addr, now);
  LocalLock& lock = record.local;
  if (lock.state == LocalLock::State::absent || may_follow_release(lock, worker)) {
    if (!asked) requests_.reclaim(record);
    if (!asked) return Try::ask_first;
    ask(lock, waiter, waiter.mode);
    return Try::acquire;
  }
  if (!may_join(lock, waiter)) return Try::busy;
  if (!lock.looking && time_to_look(lock, now)) {
    waiter.behind = lock.hold;
    lock.looking = true;
    return Try::look_first;
  }
  join(lock, waiter);
  return Try::joined;
}

bool LocalLocks::suspend(LocalWaiter& waiter, std::coroutine_handle<> coroutine) {
  const std::lock_guard guard{requests_.mutex()};
  waiter.coroutine = coroutine;
  return waiter.waiting;
}

// Behind a release, on the same endpoint, an acquisition takes effect after it (H34).
bool LocalLocks::may_follow_release(const LocalLock& lock, WorkerId worker) {
  return lock.state == LocalLock::State::releasing && lock.first == nullptr &&
         lock.releasing_worker == worker && !lock.passing;
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
         lock.hold.mode == Mode::shared && !lock.hold.in_phase && lock.held_as == Mode::shared &&
         waiter.mode == Mode::shared && first_of(lock, Mode::exclusive) == nullptr;
}

bool LocalLocks::may_join(const LocalLock& lock, const LocalWaiter& waiter) const {
  return could_join(lock, waiter) && policy_.in_time(waiter.asked, lock.remote);
}

bool LocalLocks::looks_again(LocalWaiter& waiter, Duration after, Time now) {
  const std::lock_guard guard{requests_.mutex()};
  if (!waiter.waiting) return false;
  LocalLock& lock = record_of(waiter.addr).local;
  if (lock.looking || now - lock.looked < after || !could_join(lock, waiter)) return false;
  waiter.behind = lock.hold;
  lock.looking = true;
  return true;
}

void LocalLocks::looked(const Hold& behind, const Result<std::optional<Timestamp>>& seen, Time now) {
  const std::lock_guard guard{requests_.mutex()};
  cql::Record* record = requests_.find(behind.lock);
  // Released meanwhile: what was seen is void.
  if (record == nullptr || !record->local.looking || !is_same(record->local.hold, behind)) return;
  if (seen) return looked_here(*record, *seen, now);
  end_look(record->local, now);
  join_those_who_may(record->local);
}

void LocalLocks::end_look(LocalLock& lock, Time now) {
  lock.looking = false;
  lock.joins = 0;
  lock.looked = now;
}

void LocalLocks::looked_here(cql::Record& record, const std::optional<Timestamp>& remote, Time now) {
  LocalLock& lock = record.local;
  end_look(lock, now);
  if (!remote) lock.remote.reset();  // whoever was known to wait has given up, or died
  if (remote && !lock.remote) lock.remote = {*remote, now};
  // One who asked earlier, but it has been known for as long that somebody waits.
  if (remote && is_earlier(*remote, lock.remote->asked)) lock.remote->asked = *remote;
  join_those_who_may(lock);
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

LocalLocks::Leave LocalLocks::acquired(const Hold& hold, WorkerId worker, Time now,
                                       const member::Membership* member) {
  const std::lock_guard guard{requests_.mutex()};
  // Whoever is among those who wait has called by now. If this node is a member now, what came along is no older.
  if (member == nullptr || !member->is_certainly_member(now))
    record_of(hold.lock).local.object.forget();
  return acquired_locked(record_of(hold.lock), hold, worker, now);
}

LocalLocks::Leave LocalLocks::acquired_locked(cql::Record& record, const Hold& hold, WorkerId worker,
                                              Time now) {
  LocalLock& lock = record.local;
  CHECK(lock.state == LocalLock::State::acquiring && lock.holders == 0);
  LocalWaiter* asker = lock.asker;
  if (asker == nullptr || asker->mode != lock.asked_for) requests_.note_unwanted(record, false);
  if (policy_.kind == PolicyKind::token) return begin_turn(record, hold, worker, now);
  lock.begin(hold, asker == nullptr ? hold.mode : asker->mode, now);
  // As if the client that gave up had come and gone.
  if (asker == nullptr) return leave_locked(record, worker, false, now);
  grant(*asker, lock, hold.object_read);
  if (lock.held_as == Mode::shared) let_readers_in(lock);
  return {};
}

// Whoever asked has no precedence: with the token writers go first, in a phase readers do.
LocalLocks::Leave LocalLocks::begin_turn(cql::Record& record, const Hold& hold, WorkerId worker,
                                         Time now) {
  LocalLock& lock = record.local;
  const LocalWaiter* asker = lock.asker;
  if (asker != nullptr) prepend(lock, *lock.asker);
  const bool visit = hold.mode == Mode::exclusive && first_of(lock, Mode::exclusive) != nullptr;
  lock.begin(hold, visit ? Mode::exclusive : Mode::shared, now);
  lock.holders = 0;
  for (LocalWaiter* waiter = lock.first; waiter != nullptr;) {
    LocalWaiter* next = waiter->next;
    const bool wanted = waiter->mode == lock.held_as;
    if (wanted && visit && lock.holders > 0) {
      lock.gate =
          std::min(lock.gate + 1, policy_.gate - 1);  // those who wait now, and not who come later
    } else if (wanted) {
      unlink(lock, *waiter);
      lock.holders += 1;
      const bool read = hold.object_read && waiter == asker;
      if (read && waiter->object != nullptr)
        lock.object.note(waiter->object->addr, waiter->object->into);
      grant(*waiter, lock, read || give_object(*waiter, lock));
    }
    waiter = next;
  }
  if (lock.holders > 0) return {};
  lock.holders = 1;  // as if a client that gave up had come and gone
  return leave_locked(record, worker, false, now);
}

void LocalLocks::give_up(LocalWaiter& waiter, Errc why) {
  const std::lock_guard guard{requests_.mutex()};
  give_up_locked(waiter, why);
}

bool LocalLocks::time_out(LocalWaiter& waiter) {
  const std::lock_guard guard{requests_.mutex()};
  if (!waiter.waiting) return true;
  const LocalLock& lock = record_of(waiter.addr).local;
  waiter.is_late = lock.asker == &waiter && lock.unanswered;
  if (!waiter.is_late) give_up_locked(waiter, Errc::timed_out);
  return !waiter.is_late;
}

void LocalLocks::must_wait(RemoteAddr addr) {
  const std::lock_guard guard{requests_.mutex()};
  LocalLock& lock = record_of(addr).local;
  lock.unanswered = false;
  if (lock.asker != nullptr && lock.asker->is_late) give_up_locked(*lock.asker, Errc::timed_out);
}

void LocalLocks::give_up_locked(LocalWaiter& waiter, Errc why) {
  if (!waiter.may_give_up || !waiter.waiting) return;
  cql::Record& record = record_of(waiter.addr);
  LocalLock& lock = record.local;
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
  if (unwanted) requests_.note_unwanted(record, true);
  refuse(waiter, why);
}

LocalLocks::Successor LocalLocks::left(RemoteAddr addr) {
  const std::lock_guard guard{requests_.mutex()};
  cql::Record& record = record_of(addr);
  LocalLock& lock = record.local;
  requests_.note_unwanted(record, false);
  if (lock.asker != nullptr) return ask_for(lock, *lock.asker);
  if (lock.first != nullptr) return take_successor(lock, *lock.first);
  forget(record);
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
  const std::lock_guard guard{requests_.mutex()};
  cql::Record& record = record_of(addr);
  LocalLock& lock = record.local;
  requests_.note_unwanted(record, false);
  if (lock.asker != nullptr) refuse(*lock.asker, error);
  while (lock.first != nullptr) {
    LocalWaiter& waiter = *lock.first;
    unlink(lock, waiter);
    refuse(waiter, error);
  }
  forget(record);
}

LocalLocks::Choice LocalLocks::choose(const LocalLock& lock) const {
  if (policy_.kind == PolicyKind::token) {
    LocalWaiter* writer = first_of(lock, Mode::exclusive);
    const bool stays = writer != nullptr && lock.held_as == Mode::exclusive && lock.gate > 0 &&
                       lock.may_be_passed_on();
    return {writer != nullptr ? writer : lock.first, stays};
  }
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

Carried LocalLocks::left_to_write(RemoteAddr addr) {
  const std::lock_guard guard{requests_.mutex()};
  const cql::Record* record = requests_.find(addr);
  return record != nullptr && record->local.unlanded != nullptr ? record->local.object : Carried{};
}

bool LocalLocks::suspend(Landing& landing, std::coroutine_handle<> coroutine) {
  const std::lock_guard guard{requests_.mutex()};
  landing.coroutine = coroutine;
  return !landing.landed;
}

void LocalLocks::landed(Landing* all, const Result<void>& result) {
  const std::lock_guard guard{requests_.mutex()};
  for (Landing* one = all; one != nullptr;) {
    Landing* next = one->next;  // it may be gone as soon as it goes on
    one->landed = true;
    one->result = result;
    if (one->coroutine) one->worker->make_ready(one->coroutine);
    one = next;
  }
}

// An exclusive client leaves: the object is what it writes, or nobody knows.
void LocalLocks::note_object(LocalLock& lock, const Op* written) {
  if (lock.held_as == Mode::shared) return;
  if (written != nullptr) {
    lock.object.note(written->addr, written->from);
  } else {
    lock.object.forget();
  }
}

// The next client reads the object with the lock and writes it with its release: so its WRITE may stand for this one. Not where
// sections are long, since this client is told only then.
bool LocalLocks::may_combine(const LocalLock& lock, const LocalWaiter& next, const Op* object) const {
  if (policy_.kind != PolicyKind::token || object == nullptr || !object->whole ||
      next.object == nullptr || !next.object->whole) {
    return false;
  }
  const bool same = next.object->addr == object->addr &&
                    next.object->into.size() == object->from.size() &&
                    object->from.size() <= Carried::kWordsMax;
  const bool stands = lock.unlanded == nullptr || lock.object.may_stand_for(*object);
  return same && stands && section_ <= policy_.short_section;
}

LocalLocks::Leave LocalLocks::leave(RemoteAddr addr, WorkerId worker, bool unwritten, Time now,
                                    const Op* object, Landing* mine) {
  const std::lock_guard guard{requests_.mutex()};
  cql::Record& record = met(addr, now);
  note_section(record.local.holders, record.local.since, now);
  return leave_locked(record, worker, unwritten, now, object, mine);
}

bool LocalLocks::leave_here(cql::Record& record, Time now) {
  const LocalLock& lock = record.local;
  const std::uint32_t holders = lock.holders;
  const Time since = lock.since;
  if (holders <= 1 && !choose(lock).stays) return false;
  const Leave leave = leave_locked(record, kNobody, false, since == Time{} ? now : Time{});
  CHECK(leave.kind == Leave::Kind::nothing);
  note_section(holders, since, now);  // afterwards: whom to choose depends on it
  return true;
}

void LocalLocks::note_section(std::uint32_t holders, Time since, Time now) {
  if (holders == 1 && since != Time{}) section_ = Duration{(15 * section_.ns + (now - since).ns) / 16};
}

LocalLocks::Leave LocalLocks::leave_locked(cql::Record& record, WorkerId worker, bool unwritten,
                                           Time now, const Op* object, Landing* mine) {
  LocalLock& lock = record.local;
  const Choice choice = choose(lock);
  const bool combined = mine != nullptr && choice.stays && may_combine(lock, *choice.candidate, object);
  if (policy_.kind == PolicyKind::token && (unwritten || object == nullptr)) note_object(lock, object);
  Landing* others = combined ? nullptr : std::exchange(lock.unlanded, nullptr);
  if (unwritten && !combined && (lock.holders > 1 || choice.stays)) {
    return {.kind = Leave::Kind::write_first, .others = others};
  }
  if (combined) {
    mine->next = lock.unlanded;
    lock.unlanded = mine;
  }
  lock.holders -= 1;
  if (lock.holders > 0) return {};
  if (choice.stays) {
    lock.in_a_row += 1;
    if (lock.gate > 0) lock.gate -= 1;
    lock.since = now;
    unlink(lock, *choice.candidate);
    if (observer_ != nullptr) observer_->handed_over(choice.candidate->asked, lock.remote);
    lock.holders = 1;
    lock.held_as = choice.candidate->mode;
    grant(*choice.candidate, lock, give_object(*choice.candidate, lock));
    if (lock.held_as == Mode::shared) let_readers_in(lock);
    return {.kind = combined ? Leave::Kind::combined : Leave::Kind::nothing};
  }
  Leave leave{Leave::Kind::release, others, lock.hold, {}};
  const bool token = policy_.kind == PolicyKind::token;
  leave.hold.expect_waiters =
      leave.hold.expect_waiters || lock.remote || (choice.candidate != nullptr && !token);
  leave.hold.local_sequence = lock.in_a_row;
  // A token is passed on when the object is written; the next request must not come before.
  lock.passing = record.turns.token.has_value() || lock.hold.in_phase;
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
  const std::lock_guard guard{requests_.mutex()};
  cql::Record* record = requests_.find(hold.lock);
  // Otherwise somebody has gone ahead behind the release, on its endpoint, and may be releasing again.
  if (record == nullptr || record->local.state != LocalLock::State::releasing ||
      !is_same(record->local.hold, hold))
    return {};
  if (record->local.first != nullptr) return take_successor(record->local, *record->local.first);
  forget(*record);
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

// To those who have called before the node got the lock, or before the last WRITE: what is known of the object is no older.
bool LocalLocks::give_object(const LocalWaiter& waiter, const LocalLock& lock) {
  if (!lock.object.is(waiter.object)) return false;
  lock.object.fill(*waiter.object);
  return true;
}

// Another thread may resume the waiter, and then it is gone.
void LocalLocks::grant(LocalWaiter& waiter, const LocalLock& lock, bool object_read) {
  waiter.hold = lock.hold;
  waiter.hold.local_sequence = lock.in_a_row;
  waiter.hold.object_read = object_read;
  waiter.hold.object_open = object_read && lock.unlanded != nullptr;
  if (waiter.counts != nullptr) {
    waiter.counts->now += 1;
    waiter.counts->handed += 1;
  }
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

void LocalLocks::prepend(LocalLock& lock, LocalWaiter& waiter) {
  waiter.next = lock.first;
  lock.first = &waiter;
  if (lock.last == nullptr) lock.last = &waiter;
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

}  // namespace declock::hier
