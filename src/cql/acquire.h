// Acquiring a CQL lock (paper section 4.2, "Lock acquisition workflow").
#pragma once

#include <algorithm>

#include "cql/cql.h"

namespace declock::cql {

template <Rules kRules>
CqlLock<kRules>::CqlLock(Endpoint& endpoint, const LockShape& shape, Membership self, Options options)
    : endpoint_(endpoint), shape_(shape), self_(self), options_(options) {
  endpoint.set_receiver(&inbox_);
}

template <Rules kRules>
Task<Result<Hold>> CqlLock<kRules>::acquire_since(RemoteAddr lock, Mode mode, Timestamp asked,
                                                  Op* object, std::optional<Place> entered) {
  for (;;) {  // once more after each reset that came between, and those are rare and bounded in time
    const Result<Place> place = entered ? *entered : co_await enter(lock, mode, object);
    entered.reset();
    if (!place) co_return Failure{place.error()};
    if (place->held) co_return *place->held;
    if (place->found.reset_id == ResetId{0}) {
      co_return co_await enqueue_and_wait(lock, mode, asked, place->found);
    }
    // Aborted. The counts that the FAA changed are the reset's to clean up, never ours (H14).
    const Result<void> over = co_await await_end_of_reset(lock);
    if (!over) co_return Failure{over.error()};
  }
}

template <Rules kRules>
Task<Result<typename CqlLock<kRules>::Place>> CqlLock<kRules>::enter(RemoteAddr lock, Mode mode,
                                                                     Op* object) {
  Op count_me = Op::fetch_add(lock, shape_.header.acquire_delta(mode), Purpose::acquire);
  const Result<void> posted = co_await endpoint_.post(count_me, object);
  if (!posted) co_return Failure{posted.error()};
  Place place{shape_.header.decode(count_me.old), {}};
  const Header& found = place.found;
  if (found.reset_id != ResetId{0}) co_return place;
  // H24: the ticket is about to repeat. H10: more requests than members: an entry would hit another's.
  if (found.end() >= shape_.ticket_limit() || found.qsize >= shape_.slots) {
    co_return Failure{Errc::stuck};
  }
  if (is_free(found, mode)) {
    // The object was read behind the FAA that made this client a holder: nobody writes it any more.
    place.held = Hold{.lock = lock,
                      .mode = mode,
                      .epoch = found.epoch,
                      .ticket = found.end(),
                      .object_read = object != nullptr};
  }
  co_return place;
}

template <Rules kRules>
Task<Result<bool>> CqlLock<kRules>::looks_free(RemoteAddr lock, Mode mode) {
  std::uint64_t word = 0;
  Op look = Op::read(lock, {&word, 1}, Purpose::acquire);
  const Result<void> posted = co_await endpoint_.post(look);
  if (!posted) co_return Failure{posted.error()};
  const Header found = shape_.header.decode(word);
  co_return found.reset_id == ResetId{0} && is_free(found, mode);
}

template <Rules kRules>
Task<Result<Hold>> CqlLock<kRules>::enqueue_and_wait(RemoteAddr lock, Mode mode, Timestamp asked,
                                                     Header found) {
  const Ticket ticket = found.end();
  Wait grant{inbox_, GrantKey{lock, found.epoch, ticket}};

  const std::uint64_t entry = encode(entry_for(ticket, found.epoch, mode, asked));
  Op announce = Op::write(shape_.slot_addr(lock, slot_for(ticket)), {&entry, 1}, Purpose::acquire);
  const Result<void> posted = co_await endpoint_.post(announce);
  if (!posted) co_return Failure{posted.error()};

  // A holder that lives hands over (I3): this ends when those ahead have released.
  const std::optional<Timestamp> waiting_since = co_await grant;
  co_return Hold{.lock = lock,
                 .mode = mode,
                 .epoch = found.epoch,
                 .ticket = ticket,
                 .expect_waiters = true,  // it was contended
                 .waiting_since = waiting_since};
}

// With READs, never with another FAA: it would only add to the counts that the reset has to clean (H7).
template <Rules kRules>
Task<Result<void>> CqlLock<kRules>::await_end_of_reset(RemoteAddr lock) {
  Worker& worker = endpoint_.worker();
  const Time deadline = worker.now() + options_.reset_max;
  Duration pause = microseconds(2);
  while (worker.now() < deadline) {
    co_await worker.sleep_for(pause);
    pause = std::min(pause + pause, milliseconds(1));
    std::uint64_t word = 0;
    Op look = Op::read(lock, {&word, 1}, Purpose::acquire);
    const Result<void> posted = co_await endpoint_.post(look);
    if (!posted) co_return posted;
    if (shape_.header.decode(word).reset_id == ResetId{0}) co_return Result<void>{};
  }
  co_return Failure{Errc::stuck};
}

template <Rules kRules>
std::uint32_t CqlLock<kRules>::slot_for(Ticket ticket) const {
  if (shape_.queue == QueueLayout::owner) return self_.slot.value;
  return static_cast<std::uint32_t>(ticket.value % shape_.slots);
}

template <Rules kRules>
Entry CqlLock<kRules>::entry_for(Ticket ticket, Epoch epoch, Mode mode, Timestamp asked) const {
  if (shape_.queue == QueueLayout::owner) {
    return {static_cast<std::uint32_t>(ticket.value), epoch, mode, asked, self_.worker};
  }
  const auto version = static_cast<std::uint16_t>(shape_.ring_version(ticket));
  return {RingTag{version, self_.slot}.packed(), epoch, mode, asked, self_.worker};
}

// Others wait behind this hold: all of them if it is exclusive; if it is shared, from the first writer on,
// since the readers up to there hold the lock as well.
template <Rules kRules>
Task<Result<std::optional<Timestamp>>> CqlLock<kRules>::waiting_since(Hold hold) {
  ScratchWords queue{frames(), shape_.queue_words()};
  Op look = Op::read(hold.lock, queue.words(), Purpose::prefetch);
  const Result<void> posted = co_await endpoint_.post(look);
  if (!posted) co_return Failure{posted.error()};
  const Header seen = shape_.header.decode(queue.words()[0]);
  const Ticket behind{hold.ticket.value + 1};
  const QueueView<kRules> view{shape_, queue.words(), hold.epoch, behind, std::max(behind, seen.end())};
  Ticket from = behind;
  if (hold.mode == Mode::shared) {
    from = view.end();
    view.for_each([&](const Waiter& w) {
      if (w.mode == Mode::exclusive) from = std::min(from, w.ticket);
    });
  }
  co_return view.waiting_since(from);
}

template <Rules kRules>
Task<Result<std::uint64_t>> CqlLock<kRules>::wraps(RemoteAddr lock) {
  std::uint64_t count = 0;
  Op look = Op::read(shape_.wraps_addr(lock), {&count, 1}, Purpose::acquire);
  const Result<void> posted = co_await endpoint_.post(look);
  if (!posted) co_return Failure{posted.error()};
  co_return count;
}

template <Rules kRules>
Token CqlLock<kRules>::token(const Hold& hold, std::uint64_t wraps) const {
  CHECK(hold.mode == Mode::exclusive);
  return {endpoint_.incarnation(hold.lock.mn), wraps, hold.ticket, hold.local_sequence};
}

}  // namespace declock::cql
