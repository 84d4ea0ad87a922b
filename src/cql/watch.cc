// Watching over a wait: is anybody left who can end it?
//
// A waiter looks at the header now and then. If the ticket stands still it asks the members what the lock waits for, and
// a reset follows only if no living member holds the lock, has an operation on it under way, or is about to hand it
// over (H19). It asks
//   - if a member was ever removed: it may have been the one that everybody waits for (H33);
//   - if the ticket has come to its own: then it holds the lock, and the grant was lost.
// Otherwise somebody ahead of it asks. Where a living member holds the lock, and may hold it for long, the places of
// writers that have died waiting are passed over (leave.cc).
#include <algorithm>

#include "cql/cql.h"

namespace declock::cql {
namespace {

// A wait that lasts is looked at less and less often; a removal makes every waiter look again at once.
constexpr std::int64_t kLooksApartMax = 16;  // times the patience

}  // namespace

// ---------------------------------------------------------------- asking everybody

void CqlLock::send_round(const Round& round) {
  const member::Member& self = self_.membership.self();
  const std::vector<member::Member> asked = round.awaited;  // it shrinks as answers come
  for (const member::Member& m : asked) {
    const RoundMessage question{round.question, round.addr,       round.era,
                                m.slot,         self.incarnation, m.incarnation};
    if (m != self) {
      endpoint_.send(m.first_endpoint, question.to_message());
    } else if (round.question == MessageKind::signal) {
      on_signal(endpoint_.id(), question);
    } else {
      on_inquiry(endpoint_.id(), question);
    }
  }
}

// Sends it, and again to those who do not answer: what was sent, or its answer, may be lost.
Task<void> CqlLock::keep_sending(Round& round) {
  Duration pause = options_.patience;
  for (;;) {  // until the round is over, and this is destroyed
    send_round(round);
    if (!patrols_ || !options_.rules.ask_again) co_return;
    co_await endpoint_.worker().sleep_for(pause);
    pause = std::min(pause + pause, options_.patience * kLooksApartMax);
  }
}

void CqlLock::on_answer(const RoundMessage& answer) {
  if (answer.asker != self_.membership.self().incarnation) return;
  const MessageKind question =
      answer.kind == MessageKind::answer ? MessageKind::signal : MessageKind::inquiry;
  for (Round* round = rounds_; round != nullptr; round = round->next) {
    if (round->question != question || round->addr != answer.lock || round->era != answer.era) continue;
    const auto answered = std::erase_if(round->awaited, [&](const member::Member& m) {
      return m.slot == answer.asked_slot && m.incarnation == answer.asked;
    });
    if (answered > 0) round->part |= answer.part;
    round->resume_if_over();
  }
}

// What this era of the lock waits for, as all members say.
Task<Result<std::uint8_t>> CqlLock::inquire(Record& record, Era era) {
  const Result<void> refreshed = co_await self_.membership.refresh(endpoint_.worker());
  if (!refreshed) co_return Failure{refreshed.error()};
  Round round{*this, MessageKind::inquiry, record.lock, era};
  round.awaited = self_.membership.known().members;
  Task<void> again = keep_sending(round);
  again.start();
  co_await round;  // ends: every member replies at once, or is removed
  if (self_.membership.evicted()) co_return Failure{Errc::evicted};
  co_return round.part;
}

std::uint8_t CqlLock::part_in(Record& record, const Era& era) {
  return self_.requests.change(record, [&](const Record& r) {
    const bool is_granted = r.waiting != nullptr && r.waiting->state == Waiting::State::granted;
    const bool same =
        r.era.epoch == era.epoch && (r.era.mn_incarnation & kIncarnationMask) == era.mn_incarnation;
    std::uint8_t part = 0;
    if ((r.held || is_granted) && same) part |= Part::kHolds;
    if (r.outstanding > 0 || r.resetting) part |= Part::kPosted;
    if (r.handing_over > 0) part |= Part::kHandsOver;
    return part;
  });
}

void CqlLock::on_inquiry(EndpointId from, const RoundMessage& inquiry) {
  const member::Member& self = self_.membership.self();
  if (inquiry.asked != self.incarnation || self_.requests.closed()) return;
  RoundMessage reply = inquiry;
  reply.kind = MessageKind::reply;
  reply.part = part_in(*RecordUse{self_.requests, inquiry.lock}, inquiry.era);
  if (from == endpoint_.id()) {
    on_answer(reply);
  } else {
    endpoint_.send(from, reply.to_message());
  }
}

// ---------------------------------------------------------------- waiting

// Was a member ever removed? Known from the view, which counts removals from before this member came (H33).
bool CqlLock::somebody_failed() const {
  const std::uint64_t unheard_of = options_.rules.old_removals_count ? 0 : removals_at_first_;
  return self_.membership.known().removals > unheard_of;
}

void CqlLock::watch(Record& record, Waiting& waiting) {
  if (!patrols_ || self_.requests.is_over(waiting)) return;
  waiting.watcher = watch_over(record, waiting);
  waiting.watcher.start();
}

// Somebody was removed: a wait that was looked at lately may be in vain now. Not before whoever heard of that has
// returned: it may be a watcher.
Task<void> CqlLock::watch_again() {
  co_await endpoint_.worker().yield();
  std::vector<Record*> waits;
  self_.requests.for_each([&](Record& r) {
    if (is_mine(r)) waits.push_back(&r);
  });
  for (Record* record : waits) watch(*record, *record->waiting);
}

// Until the wait ends, and with it this.
Task<void> CqlLock::watch_over(Record& record, Waiting& waiting) {
  const Duration first{std::max<std::int64_t>(options_.patience.ns / 2, 1)};
  Duration pause = first;
  std::optional<Header> before;
  std::optional<Ticket> held_at;    // a holder lives, and will move the ticket
  std::optional<Ticket> nobody_at;  // nobody was found once: a grant may have been under way just then
  for (;;) {
    co_await endpoint_.worker().sleep_for(pause);
    pause = std::min(pause + pause, options_.patience * kLooksApartMax);
    self_.requests.change(record, [&](const Record& r) {
      if (r.unwanted) Requests::wake_to_leave(waiting);
    });
    const Result<Header> seen = co_await read_header(record.lock);
    if (!seen) co_return;  // who waits is told by the view
    const bool stands_still = before && before->ticket == seen->ticket &&
                              before->epoch == seen->epoch && before->reset_id == seen->reset_id;
    before = *seen;
    if (!stands_still || seen->epoch != waiting.key.era.epoch) continue;
    if (seen->reset_id != ResetId{0}) {
      const Result<void> looked = co_await look_after(record, *seen);
      if (!looked) co_return;
      continue;
    }
    const bool is_first = seen->ticket >= waiting.key.ticket && options_.rules.first_asks;
    if (!is_first && !(somebody_failed() && held_at != seen->ticket)) continue;
    const Result<std::uint8_t> part = co_await inquire(record, waiting.key.era);
    if (!part) co_return;
    if ((*part & Part::kHolds) != 0) {
      held_at = seen->ticket;
      if (somebody_failed()) behind_.spawn(pass_over_the_dead(waiting.key));
    }
    if (*part != 0) continue;
    if (std::exchange(nobody_at, seen->ticket) == seen->ticket) {
      behind_.spawn(reset_now(record.lock, seen->epoch));
    } else {
      pause = first;
    }
  }
}

}  // namespace declock::cql
