// Watching over a wait: is anybody left who can end it?
//
// A waiter looks at the header now and then.
//
//   Its turn has come: everybody ahead of it has left the queue, or no writer is in it and it wants to read. Whoever was to
//   grant it the lock is slow or has died, or the grant was lost. It takes the lock without a grant; one that comes later
//   is ignored, as any that nobody awaits.
//
//   The ticket stands still, and a member was ever removed, perhaps the one that everybody waits for (H33). It asks the
//   members what the lock waits for, and a reset follows only if no living member holds the lock, has an operation on it
//   under way, or is about to hand it over, twice in a row (H19). A member that is asked, and waits itself, looks at once
//   whether its turn has come, however long it meant to wait before its next look.
//
// Where a living member holds the lock, and may hold it for long, the places of writers that have died waiting are passed
// over (leave.cc).
#include <algorithm>
#include <utility>

#include "cql/cql.h"

namespace declock::cql {
namespace {

// Networks keep what is asked until it is acknowledged: who is stopped for long must not find too much of it.
constexpr std::int64_t kAsksApartMax = 512;

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
    pause = std::min(pause + pause, options_.patience * kAsksApartMax);
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
    if (answered > 0) round->hops += answer.hop;
    round->resume_if_over();
  }
}

// What this era of the lock waits for, as all members say.
Task<Result<CqlLock::Inquired>> CqlLock::inquire(Record& record, Era era) {
  const Result<void> refreshed = co_await self_.membership.refresh(endpoint_.worker());
  if (!refreshed) co_return Failure{refreshed.error()};
  Round round{*this, MessageKind::inquiry, record.lock, era};
  round.awaited = self_.membership.known().members;
  Task<void> again = keep_sending(round);
  again.start();
  co_await round;  // ends: every member replies at once, or is removed
  if (self_.membership.evicted()) co_return Failure{Errc::evicted};
  co_return Inquired{round.part, round.hops};
}

std::uint8_t CqlLock::part_in(Record& record, const Era& era) {
  return self_.requests.change(record, [&](const Record& r) {
    const bool is_granted = r.waiting != nullptr && r.waiting->state == Waiting::State::granted;
    std::uint8_t part = 0;
    if ((r.held || is_granted) && r.is_of(era)) part |= Part::kHolds;
    if (r.outstanding > 0 || r.resetting) part |= Part::kPosted;
    if (r.handing_over > 0) part |= Part::kHandsOver;
    return part;
  });
}

void CqlLock::on_inquiry(EndpointId from, const RoundMessage& inquiry) {
  const member::Member& self = self_.membership.self();
  if (inquiry.asked != self.incarnation || self_.requests.closed()) return;
  const RecordUse record{self_.requests, inquiry.lock};
  const std::optional<GrantKey> wait = self_.requests.change(*record, [](const Record& r) {
    return r.waiting != nullptr ? std::optional{r.waiting->key} : std::nullopt;
  });
  if (wait) behind_.spawn(look_for_turn(*wait));
  RoundMessage reply = inquiry;
  reply.kind = MessageKind::reply;
  reply.part = part_in(*record, inquiry.era);
  reply.hop = self_.requests.change(*record, [](const Record& r) { return r.turns.hop; });
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

// Looks soon, if it was not to look sooner.
void CqlLock::watch(Record& record, Waiting& waiting) {
  if (!patrols_ || self_.requests.is_over(waiting)) return;
  const Time first = endpoint_.worker().now() + first_look();
  if (waiting.watch.next != Time{} && waiting.watch.next <= first) return;
  waiting.watch.next = first;
  waiting.watch.task = watch_over(record, waiting);
  waiting.watch.task.start();
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
  Worker& worker = endpoint_.worker();
  Waiting::Watch& watch = waiting.watch;
  Duration pause = first_look();
  bool was_unwanted = false;
  // A holder lives, and will move this ticket, unless another member is removed: that may have been the holder.
  std::optional<std::pair<Ticket, std::uint64_t>> held_at;
  for (;;) {
    co_await worker.sleep_for(watch.next - worker.now());
    // A removal makes every waiter begin anew.
    pause =
        options_.token ? std::min(pause + pause, options_.patience * kAsksApartMax) : next_look(pause);
    self_.requests.change(record, [&](const Record& r) {
      if (r.unwanted) Requests::wake_to_leave(waiting);
      if (r.unwanted && !was_unwanted) pause = first_look();
      was_unwanted = r.unwanted;
    });
    watch.next = worker.now() + pause;
    const Result<Header> seen = co_await look_at_era(waiting.key);
    if (!seen && seen.error() != Errc::outcome_unknown) co_return;  // who waits is told by the view
    if (!seen || seen->epoch != waiting.key.era.epoch) continue;
    const bool stands_still = watch.header && watch.header->ticket == seen->ticket &&
                              watch.header->reset_id == seen->reset_id;
    watch.header = *seen;
    if (seen->reset_id != ResetId{0}) {
      if (!stands_still) continue;
      const Result<void> looked = co_await look_after(record, *seen);
      if (!looked) co_return;
      continue;
    }
    if (take_turn(waiting.key, *seen)) co_return;
    const std::pair now{seen->ticket, self_.membership.known().removals};
    // Of a token the header says nothing: it may be lost although nobody has failed, and although somebody held the lock.
    if (!stands_still || (!options_.token && (!somebody_failed() || held_at == now))) continue;
    const Result<Inquired> asked = co_await inquire(record, waiting.key.era);
    if (!asked) co_return;
    if ((asked->part & Part::kHolds) != 0) {
      held_at = now;
      if (!options_.token) behind_.spawn(pass_over_the_dead(waiting.key));
    }
    const std::pair still{seen->ticket, asked->hops};
    if (asked->part != 0) {
      watch.nobody_at.reset();
    } else if (std::exchange(watch.nobody_at, still) == still) {
      behind_.spawn(reset_now(record.lock, seen->epoch));
    } else {
      watch.next = worker.now() + first_look();
    }
  }
}

// The header, as long as its memory node has not restarted: fresh memory says nothing of this wait (H12).
Task<Result<Header>> CqlLock::look_at_era(GrantKey key) {
  std::uint64_t word = 0;
  Op look = Op::read(key.lock, {&word, 1}, Purpose::reset);
  if (options_.rules.restart_voids_holds) look.incarnation = key.era.mn_incarnation;
  const Result<void> posted = co_await endpoint_.post(look);
  if (posted) co_return shape_.header.decode(word);
  const Result<void> settled = co_await settle(key.lock, posted.error());
  co_return Failure{settled.error()};
}

// A client of this member waits, perhaps one of another worker.
Task<void> CqlLock::look_for_turn(GrantKey key) {
  const Result<Header> seen = co_await look_at_era(key);
  if (seen) take_turn(key, *seen);
}

// Each request leaves once, and nobody from behind leaves before it, but for those that a token has accounted for (T3). So if as
// many have left as its ticket says, none is ahead of it; and if no writer is in the queue none was ahead of a reader, whoever
// comes after it.
bool CqlLock::its_turn_has_come(const Waiting& waiting, const Header& seen) const {
  if (!waiting.fresh) return false;
  return seen.ticket >= waiting.key.ticket || (waiting.mode == Mode::shared && seen.wcnt == 0);
}

// True: the wait is over.
bool CqlLock::take_turn(const GrantKey& key, const Header& seen) {
  if (seen.epoch != key.era.epoch || seen.reset_id != ResetId{0}) return false;
  if (!options_.rules.first_takes_turn) return false;
  const std::lock_guard guard{self_.requests.mutex()};
  const Record* record = self_.requests.find(key.lock);
  if (record == nullptr || record->waiting == nullptr || record->waiting->key != key) return false;
  Waiting& waiting = *record->waiting;
  if (!its_turn_has_come(waiting, seen)) return false;
  if (waiting.become(Waiting::State::granted)) waiting.worker->make_ready(waiting.coroutine);
  return true;
}

}  // namespace declock::cql
