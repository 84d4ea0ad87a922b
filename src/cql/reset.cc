// Resetting a CQL lock after a failure (paper section 4.4 and appendix A).
//
//   claim     write who resets the lock into its header, by compare-and-swap. From now on every FAA finds that and
//             aborts.
//   drain     ask every member of the current view, this one included, to get out of the way: to end its holds, to
//             abort its waits and to see its operations on the lock complete. A member that failed is waited for
//             until it is fenced and removed.
//   restore   the next epoch, an empty queue, and a ticket above every one that was handed out.
//
// A claimant that fails is replaced, once it was removed, by whoever waits for it.
#include <algorithm>
#include <utility>

#include "cql/cql.h"

namespace declock::cql {

void CqlLock::on_message(EndpointId from, const Message& message) {
  switch (kind_of(message)) {
    case MessageKind::grant:
      return on_grant(Grant::from_message(message), Carried::at_end_of(message, TurnMessage::kWords));
    case MessageKind::signal:
      return on_signal(from, RoundMessage::from_message(message));
    case MessageKind::inquiry:
      return on_inquiry(from, RoundMessage::from_message(message));
    case MessageKind::answer:
    case MessageKind::reply:
      return on_answer(RoundMessage::from_message(message));
    case MessageKind::question:
      return on_question(Question::from_message(message));
    case MessageKind::token:
      return on_token(message);
    case MessageKind::phase:
      return on_phase(message);
    case MessageKind::done:
      return on_done(message);
  }
}

// ---------------------------------------------------------------- as a claimant

Task<void> CqlLock::reset_now(RemoteAddr lock, std::optional<Epoch> epoch) {
  const RecordUse record{self_.requests, lock};
  // An error is found again by whoever needs the lock.
  (void)co_await reset(*record, epoch);
}

// Resets the lock if it is in this epoch; without one, whatever epoch it is in. Ends when that is done, or
// somebody else's to do.
Task<Result<void>> CqlLock::reset(Record& record, std::optional<Epoch> epoch) {
  bool mine = false;
  self_.requests.change(record, [&](Record& r) {
    mine = !r.resetting;  // claims are tracked per lock (H18): one at a time
    r.resetting = true;
  });
  if (!mine) co_return Result<void>{};
  const Time began = endpoint_.worker().now();
  const Result<std::optional<Era>> claimed = co_await claim(record.lock, epoch);
  Result<void> done;
  if (!claimed) done = Failure{claimed.error()};
  if (claimed && *claimed) {
    done = co_await drain(record, **claimed);
    if (done) done = co_await restore(record.lock, **claimed);
    if (done) {
      resets_.done += 1;
      if (resets_.took.size() < ResetCounts::kTookKept) {
        resets_.took.push_back(endpoint_.worker().now() - began);
      }
    }
  }
  self_.requests.change(record, [](Record& r) { r.resetting = false; });
  // A restarted memory node has no counts that were wrong; a lost connection is tried again by whoever waits.
  if (!done && done.error() != Errc::evicted) co_return Result<void>{};
  co_return done;
}

// The era that this member is the claimant of now; nothing: there is none.
Task<Result<std::optional<Era>>> CqlLock::claim(RemoteAddr lock, std::optional<Epoch> epoch) {
  Result<Seen> seen = co_await read_header(lock);
  // A swap fails only if somebody's FAA came between, and who needs a reset posts no more of them: at once again, with
  // what it found (H16).
  for (;;) {
    if (!seen) co_return Failure{seen.error()};
    const Header header = seen->header;
    if (epoch && header.epoch != *epoch) co_return std::nullopt;  // that one was reset already
    epoch = header.epoch;
    // From an earlier incarnation: adopted (H18).
    if (options_.rules.adopt_own_claim && header.reset_id == my_claim()) co_return seen->era();
    if (header.reset_id != ResetId{0}) {
      const Result<bool> removed = co_await claimant_was_removed(header.reset_id);
      if (!removed) co_return Failure{removed.error()};
      if (!*removed) co_return std::nullopt;  // it is at work
    }
    Header claimed = header;
    claimed.reset_id = my_claim();
    Op swap = Op::compare_swap(lock, shape_.header.encode(header), shape_.header.encode(claimed),
                               Purpose::reset);
    // The memory node may have restarted since it was read, and may restart again before this is heard of.
    seen->mn_incarnation = endpoint_.incarnation(lock.mn);
    const Result<void> posted = co_await endpoint_.post(swap);
    if (posted && swap.old == swap.expected) co_return seen->era();
    if (posted) {
      seen->header = shape_.header.decode(swap.old);
      continue;
    }
    const Result<void> settled = co_await settle(lock, posted.error());
    if (settled.error() != Errc::outcome_unknown) co_return Failure{settled.error()};
    seen = co_await read_header(lock);
  }
}

// H31: only the coordinator knows. A claimant that is not in its view now, but has had access to the lock, was
// removed.
Task<Result<bool>> CqlLock::claimant_was_removed(ResetId claimant) {
  if (options_.rules.ask_before_take_over) {
    const Result<void> refreshed = co_await self_.membership.refresh(endpoint_.worker());
    if (!refreshed) co_return Failure{refreshed.error()};
  }
  for (const member::Member& m : self_.membership.known().members) {
    if (claim_of(m) == claimant) co_return false;
  }
  co_return true;
}

Task<Result<void>> CqlLock::drain(Record& record, Era era) {
  member::Membership& membership = self_.membership;
  if (options_.rules.view_after_claim) {  // H30: whoever has access by now is in it
    const Result<void> refreshed = co_await membership.refresh(endpoint_.worker());
    if (!refreshed) co_return refreshed;
  }
  Round drained{*this, MessageKind::signal, record.lock, era};
  for (const member::Member& m : membership.known().members) {
    if (!options_.rules.drain_self && m == membership.self()) continue;
    drained.awaited.push_back(m);
  }
  Task<void> again = keep_sending(drained);
  again.start();
  co_await drained;  // ends: every member answers when its holders are done, or is removed
  if (membership.evicted()) co_return Failure{Errc::evicted};
  co_return Result<void>{};
}

Task<Result<void>> CqlLock::restore(RemoteAddr lock, Era era) {
  Result<Seen> read = co_await read_header(lock);
  for (bool started_again = false;
       ;) {  // ends: nobody adds to the header any more but those who find the claim
    if (!read) co_return Failure{read.error()};
    const Header found = read->header;
    // Somebody took over: a claimant that was removed has no role any more.
    if (found.reset_id != my_claim() || read->era() != era) co_return Result<void>{};
    const bool wraps = found.end() >= shape_.ticket_limit;
    if (wraps && !started_again) {
      const Result<void> cleared = co_await start_tickets_again(lock, era);
      if (!cleared) co_return cleared;
      started_again = true;
    }
    Header fresh;
    // Above every ticket that was handed out, so that a ticket names one acquisition for good (H6).
    fresh.ticket = wraps || !options_.rules.tickets_never_go_back ? Ticket{0} : found.end();
    fresh.epoch = Epoch{
        static_cast<std::uint8_t>((era.epoch.value + 1) & ((1u << HeaderLayout::kEpochBits) - 1))};
    // A swap, not a WRITE: a NIC's FAA is not atomic against a WRITE (H7).
    Op swap = Op::compare_swap(lock, shape_.header.encode(found), shape_.header.encode(fresh),
                               Purpose::reset);
    swap.incarnation = era.mn_incarnation;
    const Result<void> posted = co_await endpoint_.post(swap);
    if (posted && swap.old == swap.expected) co_return Result<void>{};
    if (posted) {
      read->header = shape_.header.decode(swap.old);
      continue;
    }
    const Result<void> settled = co_await settle(lock, posted.error());
    if (settled.error() != Errc::outcome_unknown) co_return settled;
    read = co_await read_header(lock);
  }
}

// The only reset that needs the slots cleared: tickets repeat. A count of that keeps tokens growing.
Task<Result<void>> CqlLock::start_tickets_again(RemoteAddr lock, Era era) {
  ScratchWords zeroes{frames(), shape_.slots};
  std::fill(zeroes.words().begin(), zeroes.words().end(), 0);
  Op clear = Op::write(shape_.slot_addr(lock, 0), zeroes.words(), Purpose::reset);
  Op count = Op::fetch_add(shape_.wraps_addr(lock), 1, Purpose::reset);
  clear.incarnation = count.incarnation = era.mn_incarnation;
  const Result<void> posted = co_await endpoint_.post(clear, count);
  if (!posted) co_return co_await settle(lock, posted.error());
  co_return Result<void>{};
}

// ---------------------------------------------------------------- as a member

void CqlLock::on_signal(EndpointId from, const RoundMessage& signal) {
  if (signal.asked != self_.membership.self().incarnation) return;  // for whoever had this slot before
  const RecordUse record{self_.requests, signal.lock};
  Waiting* aborted = nullptr;
  bool is_past = false;
  self_.requests.change(*record, [&](Record& r) {
    const Claim claim{from, signal.asker, signal.era};
    const bool known = r.reset_of == signal.era && !options_.rules.answer_every_claim;
    if (!known && std::find(r.unanswered.begin(), r.unanswered.end(), claim) == r.unanswered.end()) {
      r.unanswered.push_back(claim);  // one answer per claim, not per epoch (H32)
    }
    // A claim on another life of the lock than the one that this member is in the queue of, or that its memory node is in,
    // needs an answer, so that the claimant ends, and nothing else.
    is_past = signal.era.mn_incarnation < (endpoint_.incarnation(signal.lock.mn) & kIncarnationMask) ||
              (r.in_queue() && !r.is_of(signal.era));
    if (is_past) return;
    r.reset_of = signal.era;
    lose(r, signal.era);
    // Exactly what the FAA found in that epoch (H3).
    if (r.waiting == nullptr || r.waiting->key.era != signal.era) return;
    if (r.waiting->become(Waiting::State::aborted)) aborted = r.waiting;
  });
  if (aborted != nullptr) aborted->worker->make_ready(aborted->coroutine);
  answer_if_quiet(*record);
}

// This era of the lock is being reset, or the memory node's incarnation is gone: whoever holds it may finish, nobody else here
// is let in with what this member has of it (H8).
void CqlLock::lose(Record& record, const Era& era) const {
  if (!options_.rules.no_local_grants_in_reset) return;
  if (record.local.state != LocalLock::State::absent) record.local.reset = era;
  record.wraps.reset();
}

void CqlLock::answer_if_quiet(Record& record) {
  if (self_.requests.closed()) return;
  std::vector<Claim> owed;
  self_.requests.change(record, [&](Record& r) {
    if (r.unanswered.empty()) return;
    if (options_.rules.answer_when_quiet && r.outstanding > 0) return;  // H3, H6
    // What this member holds or waits for is in the way (H9) of a claim on the same life of the memory node, while that lasts.
    const bool in_the_way = options_.rules.answer_when_free && r.in_queue() &&
                            endpoint_.incarnation(r.lock.mn) <= r.era.mn_incarnation;
    const auto answered =
        std::stable_partition(r.unanswered.begin(), r.unanswered.end(), [&](const Claim& claim) {
          return in_the_way && r.is_of_incarnation(claim.era.mn_incarnation);
        });
    owed.assign(answered, r.unanswered.end());
    r.unanswered.erase(answered, r.unanswered.end());
  });
  const member::Member& self = self_.membership.self();
  for (const Claim& claim : owed) {
    const RoundMessage answer{MessageKind::answer, record.lock,       claim.era,
                              self.slot,           claim.incarnation, self.incarnation};
    if (claim.claimant == endpoint_.id()) {
      on_answer(answer);
    } else {
      endpoint_.send(claim.claimant, answer.to_message());
    }
  }
}

void CqlLock::on_question(const Question& question) {
  if (question.claim != my_claim()) return;
  const RecordUse record{self_.requests, question.lock};
  // Not run by this member: left over from one whose incarnation ends in the same bits (H18).
  if (!self_.requests.is_resetting(*record)) {
    behind_.spawn(reset_now(question.lock, question.epoch));
  }
}

// ---------------------------------------------------------------- noticing

// An operation failed. If its outcome is unknown it may yet take effect, until the memory node confirms that the
// connection is closed (H21). Always an error: what is known then.
Task<Result<void>> CqlLock::settle(RemoteAddr lock, Errc error) {
  if (error != Errc::outcome_unknown) co_return Failure{error};
  const std::uint32_t before = endpoint_.incarnation(lock.mn);
  if (options_.rules.unknown_until_closed) {
    const Result<void> closed = co_await endpoint_.reconnect(lock.mn);
    if (!closed) co_return closed;
  }
  co_return Failure{endpoint_.incarnation(lock.mn) == before ? Errc::outcome_unknown
                                                             : Errc::mn_restarted};
}

Task<Result<CqlLock::Seen>> CqlLock::read_header(RemoteAddr lock) {
  for (;;) {  // a READ whose outcome is unknown is harmless
    const std::uint32_t incarnation = endpoint_.incarnation(lock.mn);
    std::uint64_t word = 0;
    Op look = Op::read(lock, {&word, 1}, Purpose::reset);
    const Result<void> posted = co_await endpoint_.post(look);
    if (posted) co_return Seen{shape_.header.decode(word), incarnation};
    if (!options_.outlives_restarts && posted.error() == Errc::mn_restarted) {
      co_return Failure{Errc::mn_restarted};  // not meant for it
    }
    const Result<void> settled = co_await settle(lock, posted.error());
    if (settled.error() == Errc::evicted) co_return Failure{Errc::evicted};
  }
}

// Somebody claimed the lock, long ago.
Task<Result<void>> CqlLock::look_after(Record& record, Header seen) {
  if (self_.requests.is_resetting(record)) co_return Result<void>{};
  const Result<bool> removed = co_await claimant_was_removed(seen.reset_id);
  if (!removed) co_return Failure{removed.error()};
  const bool own = options_.rules.adopt_own_claim && seen.reset_id == my_claim();
  // Not by whoever looks: the reset aborts its wait.
  if (*removed || own) {
    behind_.spawn(reset_now(record.lock, seen.epoch));
    co_return Result<void>{};
  }
  for (const member::Member& m : self_.membership.known().members) {
    if (claim_of(m) != seen.reset_id || !options_.rules.adopt_own_claim) continue;
    endpoint_.send(m.first_endpoint, Question{record.lock, seen.epoch, seen.reset_id}.to_message());
  }
  co_return Result<void>{};
}

void CqlLock::on_view(const member::View& view) {
  for (Round* round = rounds_; round != nullptr; round = round->next) {
    std::erase_if(round->awaited, [&](const member::Member& m) { return !view.has(m); });
    round->resume_if_over();
  }
  // What this worker waits for on a memory node that restarted, or anywhere if this member was removed, never comes.
  std::vector<Waiting*> lost;
  self_.requests.for_each([&](Record& r) {
    const bool gone = self_.membership.evicted() || view.incarnation(r.lock.mn) > r.era.mn_incarnation;
    if (!gone) return;
    if (r.held) lose(r, r.era);
    if (is_mine(r) && r.waiting->become(Waiting::State::aborted)) lost.push_back(r.waiting);
  });
  for (Waiting* waiting : lost) waiting->worker->make_ready(waiting->coroutine);
  const bool removed = std::exchange(removals_seen_, view.removals) != view.removals;
  if (removed && patrols_ && !self_.membership.evicted()) behind_.spawn(watch_again());
}

}  // namespace declock::cql
