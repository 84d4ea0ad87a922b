// Where operations take no time (shared memory), and no other client of this member has to do with a lock, acquiring it
// is one step under the mutex of the requests, and so is releasing it: no coroutine, and nobody can come between.
//
// Such a lone hold is known to its record alone, not to the local locks of the hierarchy. If another client of the member
// comes, the hold is made known to them first (LocalLocks), and is released as any other.
#pragma once

#include "cql/cql.h"

namespace declock::cql {

template <Rules kRules>
std::optional<Result<typename CqlLock<kRules>::Place>> CqlLock<kRules>::enter_at_once(RemoteAddr lock,
                                                                                      Mode mode,
                                                                                      Op* object) {
  if (!at_once_) return {};
  const std::lock_guard guard{self_.requests.mutex()};
  Record& record = self_.requests.find_or_insert(lock);
  if (!record.untouched()) return {};
  Op count_me = Op::fetch_add(lock, shape_.header.acquire_delta(mode), Purpose::acquire);
  CHECK(endpoint_.post(count_me, object).await_ready());
  Result<Place> place = place_in(record, mode, shape_.header.decode(count_me.old),
                                 endpoint_.incarnation(lock.mn), object != nullptr);
  if (place && place->held) {
    record.lone = place->held;
  } else {
    record.entered = mode;  // a second request of this member must not follow (I4)
  }
  return place;
}

template <Rules kRules>
void CqlLock<kRules>::told_of_entry(Record& record) {
  self_.requests.change(record, [](Record& r) { r.entered.reset(); });
}

template <Rules kRules>
std::optional<Task<Result<void>>> CqlLock<kRules>::release_at_once(const Hold& hold, Op* object) {
  if (!at_once_) return {};
  const bool look_now = hold.expect_waiters || options_.release_read == ReleaseRead::always;
  ScratchWords queue{frames(), shape_.queue_words()};
  Op leave = Op::fetch_add(hold.lock, shape_.header.release_delta(hold.mode), Purpose::release);
  Op look = Op::read(hold.lock, queue.words(), Purpose::release);
  bool owes_answers = false;
  {
    const std::lock_guard guard{self_.requests.mutex()};
    Record* record = self_.requests.find(hold.lock);
    if (record == nullptr || !record->lone || record->lone->ticket != hold.ticket) return {};
    CHECK(endpoint_.post(object, leave, look_now ? &look : nullptr).await_ready());
    record->lone.reset();
    record->held.reset();
    owes_answers = !record->unanswered.empty();
    if (!owes_answers) self_.requests.reclaim(*record);
  }
  if (owes_answers) answer_if_quiet(*RecordUse{self_.requests, hold.lock});
  const Header found = shape_.header.decode(leave.old);
  if (owes_nothing(hold, found)) return Task<Result<void>>::ready(Result<void>{});
  if (!look_now) CHECK(endpoint_.post(look).await_ready());
  Ticket owed{found.ticket.value + 1};
  if (try_hand_over(hold, found, queue.words(), owed, false) == HandOver::done) {
    return Task<Result<void>>::ready(Result<void>{});
  }
  return look_again_and_hand_over(hold, found);
}

template <Rules kRules>
Task<Result<void>> CqlLock<kRules>::look_again_and_hand_over(Hold hold, Header found) {
  const RecordUse record{self_.requests, hold.lock};
  ScratchWords queue{frames(), shape_.queue_words()};
  Op look = Op::read(hold.lock, queue.words(), Purpose::refetch);
  CHECK(endpoint_.post(look).await_ready());
  co_return co_await hand_over(*record, hold, found, queue.words());
}

}  // namespace declock::cql
