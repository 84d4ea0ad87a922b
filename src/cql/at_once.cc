// Where operations take no time (shared memory), and no other client of this member has to do with a lock, acquiring it
// is one step under the mutex of the requests, and so is releasing it: no coroutine, and nobody can come between.
//
// Such a lone hold is known to its record alone, not to the local locks of the hierarchy. If another client of the member
// comes, the hold is made known to them first (LocalLocks), and is released as any other.
#include "base/check.h"
#include "cql/cql.h"
#include "cql/successor.h"

namespace declock::cql {

CqlLock::AtOnce CqlLock::enter_at_once(RemoteAddr lock, Mode mode, Hold& hold, Waiting& waiting) {
  const std::uint32_t incarnation =
      endpoint_.incarnation(lock.mn);  // the only one: there is no network
  if (!at_once_ || self_.membership.evicted()) return {};
  std::uint64_t word = 0;
  {
    const std::lock_guard guard{self_.requests.mutex()};
    Record& record = self_.requests.find_or_insert(lock);
    if (!record.untouched()) return {};
    last_at_once_ = &record;
    word = endpoint_.fetch_add_at_once(lock, shape_.header.acquire_delta(mode), Purpose::acquire);
    const Header found = shape_.header.decode(word);
    const Verdict verdict = verdict_on(record, mode, found, incarnation);
    if (verdict == Verdict::held) {
      record.lone.emplace(mode);
      fill(hold, lock, mode, found, incarnation);
      return {verdict, word};
    }
    record.entered = mode;  // a second request of this member must not follow (I4)
    if (verdict != Verdict::waits) return {verdict, word};
    record.era = {found.epoch, incarnation};
    waiting = {.key = {lock, record.era, found.end()}, .mode = mode, .worker = &endpoint_.worker()};
    record.waiting = &waiting;
    // Before anybody can see that it waits, and answer a reset for it (H6).
    const Timestamp asked = timestamp_of(endpoint_.worker().now());
    const std::uint64_t entry = encode(entry_for(found.end(), found.epoch, mode, asked));
    Op announce =
        Op::write(shape_.slot_addr(lock, slot_for(found.end())), {&entry, 1}, Purpose::acquire);
    CHECK(endpoint_.post(announce).await_ready());
  }
  const bool soon = endpoint_.worker().look_until([&] { return self_.requests.is_over(waiting); });
  const Header found = shape_.header.decode(word);
  if (soon && granted_alone(lock, mode, found, waiting, hold)) return {Verdict::held, word};
  return {Verdict::waits, word};
}

// The grant has come. If no other client of this member has come as well, it is a lone hold.
bool CqlLock::granted_alone(RemoteAddr lock, Mode mode, const Header& found, const Waiting& waiting,
                            Hold& hold) {
  const std::lock_guard guard{self_.requests.mutex()};
  Record& record = *self_.requests.find(lock);
  if (waiting.state != Waiting::State::granted || record.users > 0) return false;
  record.waiting = nullptr;
  record.entered.reset();
  record.held = waiting.key.ticket;
  record.lone = {mode, true, waiting.waiting_since};
  fill(hold, lock, mode, found, waiting.key.era.mn_incarnation);
  hold.expect_waiters = true;
  hold.waiting_since = waiting.waiting_since;
  return true;
}

Result<CqlLock::Place> CqlLock::place_of(RemoteAddr lock, AtOnce entered, Waiting& waiting) const {
  if (entered.verdict == Verdict::stuck) return Failure{Errc::stuck};
  const bool waits = entered.verdict == Verdict::waits;
  return Place{shape_.header.decode(entered.found),
               {},
               entered.verdict == Verdict::aborted,
               endpoint_.incarnation(lock.mn),
               waits ? &waiting : nullptr};
}

Task<Result<Hold>> CqlLock::acquire_entered(RemoteAddr lock, Mode mode, AtOnce entered) {
  const RecordUse record{self_.requests, lock};
  self_.requests.change(*record, [](Record& r) { r.entered.reset(); });
  co_return co_await acquire_since(lock, mode, timestamp_of(endpoint_.worker().now()), nullptr,
                                   place_of(lock, entered, waiting_));
}

bool CqlLock::done_at_once(Op& first, Op* second) {
  const Doorbell posted = endpoint_.post(first, second);
  CHECK(posted.await_ready());
  return posted.await_resume().has_value();
}

bool CqlLock::release_at_once(const Hold& hold) {
  if (!at_once_ || self_.membership.evicted()) return false;
  const bool look_now = hold.expect_waiters || options_.release_read == ReleaseRead::always;
  std::optional<ScratchWords> queue;
  const auto look_at_queue = [&] {
    return Op::read(hold.lock, queue.emplace(frames(), shape_.queue_words()).words(), Purpose::release);
  };
  const std::uint64_t delta = shape_.header.release_delta(hold.mode);
  Header found;
  bool owes_answers = false;
  {
    const std::lock_guard guard{self_.requests.mutex()};
    // The last one is likely. If its record was given up since, it says so, or names another lock: records do not move.
    Record* record = last_at_once_;
    if (record == nullptr || record->lock != hold.lock) record = self_.requests.find(hold.lock);
    if (record == nullptr || !record->lone || record->held != hold.ticket) return false;
    if (look_now) {
      Op leave = Op::fetch_add(hold.lock, delta, Purpose::release);
      Op look = look_at_queue();
      if (!done_at_once(leave, &look)) return false;  // evicted meanwhile
      found = shape_.header.decode(leave.old);
    } else {
      found = shape_.header.decode(endpoint_.fetch_add_at_once(hold.lock, delta, Purpose::release));
    }
    record->lone.reset();
    record->held.reset();
    owes_answers = !record->unanswered.empty();
    if (!owes_answers) self_.requests.reclaim(*record);
  }
  if (owes_answers) answer_if_quiet(*RecordUse{self_.requests, hold.lock});
  if (owes_nothing(hold, found)) return true;
  if (!look_now) {
    Op look = look_at_queue();
    if (!done_at_once(look)) return true;  // evicted meanwhile: others mend it
  }
  Ticket owed = first_owed(hold, found);
  const HandOver handed = try_hand_over(hold, found, queue->words(), owed, false);
  if (handed != HandOver::done) behind_.spawn(hand_over_behind(hold, found));
  return true;
}

Task<void> CqlLock::hand_over_behind(Hold hold, Header found) {
  const RecordUse record{self_.requests, hold.lock};
  const HandingOver under_way{*this, *record};
  ScratchWords queue{frames(), shape_.queue_words()};
  Op look = Op::read(hold.lock, queue.words(), Purpose::refetch);
  if (!done_at_once(look)) co_return;
  // Evicted: nobody waits for it any more.
  (void)co_await hand_over(*record, hold, found, queue.words());
}

}  // namespace declock::cql
