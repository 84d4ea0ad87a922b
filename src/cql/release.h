// Releasing a CQL lock and handing it over (paper sections 4.2, "Lock release workflow", and 4.3).
#pragma once

#include "cql/cql.h"
#include "cql/successor.h"

namespace declock::cql {

template <Rules kRules>
Task<Result<void>> CqlLock<kRules>::release(Hold hold, Op* object) {
  ScratchWords queue{frames(), shape_.queue_words()};
  Op leave = Op::fetch_add(hold.lock, shape_.header.release_delta(hold.mode), Purpose::release);
  Op look = Op::read(hold.lock, queue.words(), Purpose::release);
  const bool look_now = hold.expect_waiters || options_.release_read == ReleaseRead::always;
  // In this order: the object is written before anybody can see the lock free, and the READ sees the
  // queue as our FAA left it, or later.
  Result<void> posted = co_await endpoint_.post(object, leave, look_now ? &look : nullptr);
  if (!posted) co_return posted;
  const Header found = shape_.header.decode(leave.old);

  if (found.reset_id != ResetId{0}) co_return Result<void>{};  // the reset cleans up
  if (found.qsize == 1) co_return Result<void>{};              // nobody else is there
  if (hold.mode == Mode::shared) {
    if (found.wcnt == 0) co_return Result<void>{};  // nobody waits for a reader
    // Readers are interchangeable: the ticket after the one that we finished is our own, and it is a
    // reader's.
    if (found.ticket.value + 1 == hold.ticket.value) co_return Result<void>{};
  }
  if (!look_now) {
    posted = co_await endpoint_.post(look);
    if (!posted) co_return posted;
  }
  co_return co_await hand_over(hold, found, queue.words());
}

template <Rules kRules>
Task<Result<void>> CqlLock<kRules>::hand_over(Hold hold, Header found, std::span<std::uint64_t> queue) {
  Worker& worker = endpoint_.worker();
  const Time deadline = worker.now() + options_.refetch_max;
  const Ticket h{found.ticket.value + 1};
  Ticket owed = h;  // the first that was not granted yet: h until all is settled, but without rule H29

  for (;;) {  // ends at the deadline at the latest (H15)
    const QueueView<kRules> view{shape_, queue, found.epoch, h, found.end()};
    const Header seen = view.header();
    if (seen.reset_id != ResetId{0} || seen.epoch != found.epoch) co_return Result<void>{};
    if (view.overwritten()) co_return Failure{Errc::stuck};

    const Decision decision =
        hold.mode == Mode::exclusive ? after_writer(view) : after_reader(view, found.wcnt);
    send_grants(hold.lock, found.epoch, view, owed, decision.grant_end);
    owed = decision.grant_end;
    if (decision.settled) co_return Result<void>{};

    if (worker.now() >= deadline) co_return Failure{Errc::stuck};
    Op look = Op::read(hold.lock, queue, Purpose::refetch);
    const Result<void> posted = co_await endpoint_.post(look);
    if (!posted) co_return posted;
  }
}

template <Rules kRules>
void CqlLock<kRules>::send_grants(RemoteAddr lock, Epoch epoch, const QueueView<kRules>& view,
                                  Ticket begin, Ticket end) {
  if (begin == end) return;
  const std::optional<Timestamp> waiting_since = view.waiting_since(end);
  view.for_each([&](const Waiter& w) {
    if (w.ticket < begin || w.ticket >= end) return;
    endpoint_.send(self_.endpoint_of(w.owner, w.worker),
                   Grant{{lock, epoch, w.ticket}, waiting_since}.to_message());
  });
}

}  // namespace declock::cql
