// Leaving the queue before one's turn (ours; the paper has nobody who gives up).
//
// A writer in the queue keeps out every reader that comes after it. If it has given up, or has died, it must not do so for as
// long as the readers ahead of it hold the lock. Readers are interchangeable: the header counts how many have left, not
// which. So a writer with nobody but readers ahead of it leaves as if it were one of them: with the fetch-and-add of its
// release, and it hands over to the readers behind it, up to the next writer. That writer is granted by the last of the
// readers ahead, as ever.
//
//   H35  Only if no writer is ahead. That is known if all writers that the header counts are in sight behind the place; and
//        as nobody can come ahead of it, it stays true.
//
// Not where locks have tokens: the header does not tell whether one lives, nor an entry whether the token has accounted for it.
//
// The entry stays and is marked before the fetch-and-add takes effect. Whoever looks for the end of a group of
// readers still sees a writer there; nobody leaves from this place twice; and nobody sends it a grant.
#include <algorithm>

#include "base/check.h"
#include "cql/cql.h"
#include "cql/successor.h"

namespace declock::cql {

bool CqlLock::only_readers_ahead(std::span<const std::uint64_t> queue, Epoch epoch,
                                 Ticket place) const {
  if (shape_.queue == QueueLayout::ring) return false;
  const Header seen = shape_.header.decode(queue[0]);
  if (seen.reset_id != ResetId{0} || seen.epoch != epoch) return false;
  const QueueView behind{options_.rules,
                         shape_,
                         queue,
                         epoch,
                         Ticket{place.value + 1},
                         std::max(Ticket{place.value + 1}, seen.end())};
  std::uint32_t writers_behind = 0;
  behind.for_each([&](const Waiter& w) {
    if (w.mode == Mode::exclusive && !w.has_left()) writers_behind += 1;
  });
  return seen.wcnt == writers_behind + 1 || !options_.rules.leave_behind_readers_only;
}

// False: it cannot leave now, or somebody wants the lock again, or the wait is over.
Task<Result<bool>> CqlLock::leave_early(Record& record, Waiting& waiting, Mode mode, Timestamp asked) {
  CHECK(mode == Mode::exclusive || options_.token);
  const GrantKey& key = waiting.key;
  std::optional<Outstanding> busy{std::in_place, *this, record};
  Result<bool> may_leave = false;
  if (!options_.token) may_leave = co_await sees_only_readers_ahead(key);
  bool leaves = false;
  self_.requests.change(record, [&](const Record& r) {
    leaves = may_leave && *may_leave && r.unwanted && waiting.state == Waiting::State::leaves;
    if (leaves) waiting.state = Waiting::State::left;
    if (waiting.state == Waiting::State::leaves) waiting.state = Waiting::State::waits;
    if (!may_leave) waiting.state = Waiting::State::aborted;
    waiting.coroutine = {};
  });
  if (!may_leave) co_return may_leave;
  if (!leaves) co_return false;
  Entry left = entry_for(key, mode, asked);
  left.worker = kNobody;
  const std::uint64_t word = encode(left);
  Op mark = Op::write(shape_.slot_addr(key.lock, slot_for(key.ticket)), {&word, 1}, Purpose::release);
  const Hold place{.lock = key.lock,
                   .mode = mode,
                   .epoch = key.era.epoch,
                   .ticket = key.ticket,
                   .mn_incarnation = key.era.mn_incarnation};
  const Result<void> done = co_await leave_for(record, place, &mark, busy);
  if (!done) co_return Failure{done.error()};
  co_return true;
}

Task<Result<bool>> CqlLock::sees_only_readers_ahead(const GrantKey& key) {
  ScratchWords queue{frames(), shape_.queue_words()};
  const Result<void> seen = co_await look_at_queue(key, queue.words());
  if (seen) co_return only_readers_ahead(queue.words(), key.era.epoch, key.ticket);
  if (seen.error() == Errc::outcome_unknown) co_return false;  // of a READ: no harm was done
  co_return Failure{seen.error()};
}

// The queue of the era of this wait.
Task<Result<void>> CqlLock::look_at_queue(const GrantKey& wait, std::span<std::uint64_t> queue) {
  Op look = Op::read(wait.lock, queue, Purpose::release);
  look.incarnation = wait.era.mn_incarnation;
  const Result<void> posted = co_await endpoint_.post(look);
  if (posted) co_return posted;
  co_return co_await settle(wait.lock, posted.error());
}

// Ends the place of a writer. `mark`: its entry is to be marked; without one it has been. `busy` ends with the FAA: until
// then no reset begins another epoch (H3).
Task<Result<void>> CqlLock::leave_for(Record& record, Hold place, Op* mark,
                                      std::optional<Outstanding>& busy) {
  ScratchWords queue{frames(), shape_.queue_words()};
  Op leave = Op::fetch_add(place.lock, shape_.header.release_delta(Mode::exclusive), Purpose::release);
  Op look = Op::read(place.lock, queue.words(), Purpose::release);
  leave.incarnation = place.mn_incarnation;
  const Result<void> posted = co_await endpoint_.post(mark, leave, look);
  if (!posted) co_return co_await settle(place.lock, posted.error());
  busy.reset();
  const Header found = shape_.header.decode(leave.old);
  if (owes_nothing(place, found)) co_return Result<void>{};
  const HandingOver under_way{*this, record};
  co_return co_await hand_over(record, place, {found, {}}, queue.words());
}

// Behind a hold that is shared: readers of this member wait for them, with no place in the queue.
Task<void> CqlLock::pass_over_the_dead_behind(Hold hold) {
  if (!somebody_failed() || options_.token) co_return;
  const Ticket behind_all{hold.ticket.value + 1 + shape_.slots};
  co_await pass_over_the_dead({hold.lock, {hold.epoch, hold.mn_incarnation}, behind_all});
}

// Places of writers that have died waiting, ahead of this one. Each is marked by a swap, so that one member alone ends it.
Task<void> CqlLock::pass_over_the_dead(GrantKey mine) {
  const RecordUse record{self_.requests, mine.lock};
  for (;;) {  // ends: every time there is one fewer
    std::optional<Outstanding> busy{std::in_place, *this, *record};
    const Result<std::optional<Hold>> place = co_await mark_one_of_the_dead(mine);
    if (!place && place.error() == Errc::outcome_unknown) continue;  // of a READ: no harm was done
    if (!place || !*place) co_return;
    const Result<void> left = co_await leave_for(*record, **place, nullptr, busy);
    if (!left) {
      reset_if_unknown(mine, left.error());
      co_return;
    }
  }
}

// Its entry may say that a place was left that was not, or it was left and the lock handed to nobody.
void CqlLock::reset_if_unknown(const GrantKey& mine, Errc error) {
  if (error == Errc::outcome_unknown) behind_.spawn(reset_now(mine.lock, mine.era.epoch));
}

// The place of the one that is marked now; nothing: there is none that could be passed over.
Task<Result<std::optional<Hold>>> CqlLock::mark_one_of_the_dead(const GrantKey& mine) {
  ScratchWords before{frames(), shape_.queue_words()};
  const Result<void> seen = co_await look_at_queue(mine, before.words());
  if (!seen) co_return Failure{seen.error()};
  if (!dead_ahead(mine, before.words())) co_return std::nullopt;
  // After the READ: whoever had written an entry by then was in the view before, and is not there now only if it was removed.
  const Result<void> refreshed = co_await self_.membership.refresh(endpoint_.worker());
  if (!refreshed) co_return Failure{refreshed.error()};
  // An entry outlives its request. Nothing that the removed do takes effect any more, so another READ shows what they did last:
  // a place ahead of this wait, and behind the head, has not been left.
  ScratchWords queue{frames(), shape_.queue_words()};
  const Result<void> seen_again = co_await look_at_queue(mine, queue.words());
  if (!seen_again) co_return Failure{seen_again.error()};
  const std::optional<Waiter> dead = dead_ahead(mine, queue.words());
  if (!dead) co_return std::nullopt;
  const std::size_t entry = 1u + dead->owner.value;
  const std::uint64_t word = queue.words()[entry];
  if (word != before.words()[entry]) co_return std::nullopt;
  Entry left = decode_entry(word);
  left.worker = kNobody;
  Op mark = Op::compare_swap(shape_.slot_addr(mine.lock, dead->owner.value), word, encode(left),
                             Purpose::refetch);
  mark.incarnation = mine.era.mn_incarnation;
  const Result<void> marked = co_await endpoint_.post(mark);
  if (!marked) {
    const Result<void> settled = co_await settle(mine.lock, marked.error());
    reset_if_unknown(mine, settled.error());
    co_return std::nullopt;
  }
  if (mark.old != mark.expected) co_return std::nullopt;  // somebody else has, and goes on
  co_return Hold{.lock = mine.lock,
                 .mode = Mode::exclusive,
                 .epoch = mine.era.epoch,
                 .ticket = dead->ticket,
                 .mn_incarnation = mine.era.mn_incarnation};
}

// A writer ahead of this place, of no member that is known, with nobody but readers ahead of it.
std::optional<Waiter> CqlLock::dead_ahead(const GrantKey& mine,
                                          std::span<const std::uint64_t> queue) const {
  const Ticket head{shape_.header.decode(queue[0]).ticket.value + 1};
  const QueueView ahead{options_.rules, shape_, queue,
                        mine.era.epoch, head,   std::max(head, mine.ticket)};
  std::optional<Waiter> dead;
  ahead.for_each([&](const Waiter& w) {
    if (w.mode == Mode::shared || w.has_left() || owner_of(w) != nullptr) return;
    if (only_readers_ahead(queue, mine.era.epoch, w.ticket)) dead = w;
  });
  return dead;
}

}  // namespace declock::cql
