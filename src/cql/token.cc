// The token lock: acting on what token.h decides.
//
// Either the releaser's READ of the queue sees an entry, or the READ of the header that its writer posts behind it sees the
// release (as in Dekker's lock): so nobody refetches, and who finds that its turn has come takes it.
#include "cql/token.h"

#include <algorithm>

#include "base/check.h"
#include "cql/cql.h"
#include "cql/entering.h"
#include "cql/successor.h"

namespace declock::cql {
namespace {

// A token that has moved so often without a look at the queue takes one along. Not less than the ring: then no node is visited
// twice without.
constexpr std::uint32_t kUnseenMax = 4;

// A place whose client waits on, known to the token.
bool stays(const Record& r) {
  return r.waiting != nullptr && !r.waiting->fresh && !r.waiting->is_over();
}

constexpr std::size_t kHead = TurnMessage::kWords + 4;
static_assert(kHead + LockToken::kRingMax + 1 + Carried::kWordsMax <= MessageWords::kMax);

Message message_of(const LockToken& token, const GrantKey& to, bool phase) {
  Message m = TurnMessage{MessageKind::token, to, token.hop}.to_message();
  m.words.push_back(token.base.value);
  m.words.push_back(std::uint64_t{token.accounted} | std::uint64_t{token.writers} << 32);
  m.words.push_back(std::uint64_t{token.sequence} | std::uint64_t{token.unseen} << 32);
  m.words.push_back((phase ? 1u : 0u) | (token.no_phase ? 2u : 0u) | token.ring.size() << 8);
  for (const RingPlace& place : token.ring) m.words.push_back(place.packed());
  token.object.append_to(m);
  return m;
}

LockToken token_in(const Message& m) {
  LockToken token;
  token.base = Ticket{m.words[3]};
  token.accounted = static_cast<std::uint32_t>(m.words[4]);
  token.writers = static_cast<std::uint32_t>(m.words[4] >> 32);
  token.sequence = static_cast<std::uint32_t>(m.words[5]);
  token.unseen = static_cast<std::uint32_t>(m.words[5] >> 32);
  token.no_phase = (m.words[6] & 2) != 0;
  token.hop = TurnMessage::from_message(m).hop;
  const std::size_t end = kHead + std::min<std::size_t>(m.words[6] >> 8, LockToken::kRingMax);
  for (std::size_t i = kHead; i < end; ++i) token.ring.push_back(RingPlace::unpack(m.words[i]));
  token.object = Carried::at_end_of(m, end);
  return token;
}
bool brings_phase(const Message& m) {
  return (m.words[6] & 1) != 0;
}

}  // namespace

// ---------------------------------------------------------------- waiting

// Behind its entry a waiter reads the header: if its turn has come meanwhile, nobody else may have seen that.
void CqlLock::look_behind_entry(Record& record, Waiting& waiting, const Header& seen) {
  if (!options_.rules.looks_behind_entry) return;
  self_.requests.change(record, [&](Record&) {
    const GrantKey& key = waiting.key;
    if (!waiting.fresh || seen.epoch != key.era.epoch || seen.reset_id != ResetId{0}) return;
    if (its_turn_has_come(waiting, seen)) waiting.become(Waiting::State::granted);
  });
}

// A message for a wait that still goes on, and newer than what came for it before?
Waiting* CqlLock::wait_for(const Record& r, const TurnMessage& turn) const {
  Waiting* waiting = r.waiting;
  if (waiting == nullptr || waiting->is_over() || waiting->key != turn.key) return nullptr;
  const bool is_newer = static_cast<std::int32_t>(turn.hop - r.turns.hop) > 0;
  if (!waiting->fresh && !is_newer && options_.rules.hops_match) return nullptr;
  return waiting;
}

void CqlLock::wake(Waiting& waiting) {
  if (waiting.become(Waiting::State::granted)) waiting.worker->make_ready(waiting.coroutine);
}

void CqlLock::let_in_phase(Record& r, Waiting& waiting, const RingPlace& next, std::uint32_t hop) {
  r.turns.phase = Turns::Phase{next, hop};
  waiting.in_phase = true;
  wake(waiting);
}

void CqlLock::let_in_with_token(const LockToken& token, Waiting& waiting) {
  waiting.mode = Mode::exclusive;  // whatever it asked for at first
  waiting.base = token.base;
  waiting.sequence = token.sequence;
  wake(waiting);
}

void CqlLock::on_token(const Message& message) {
  const TurnMessage turn = TurnMessage::from_message(message);
  const std::lock_guard guard{self_.requests.mutex()};
  Record* record = self_.requests.find(turn.key.lock);
  Waiting* waiting = record == nullptr ? nullptr : wait_for(*record, turn);
  if (waiting == nullptr) return;
  receive_token(*record, *waiting, token_in(message), brings_phase(message));
}

// REQUIRES: the mutex is held.
void CqlLock::receive_token(Record& r, Waiting& waiting, LockToken token, bool phase) {
  Turns& turns = r.turns;
  waiting.fresh = false;
  turns.hop = token.hop;
  for (const Turns::Answer& answer : turns.early) {
    if (answer.hop == token.hop && options_.rules.early_answers_count) token.take_answer(answer.from);
  }
  turns.early.clear();
  turns.token = std::move(token);
  r.local.object = turns.token->object;
  RingPlace own = own_place(waiting.key.ticket);
  note_wishes(own, r.local);
  if (phase && own.readers) return let_in_phase(r, waiting, own, turns.hop);
  go_on_if_all_answered(r);
}

// REQUIRES: the mutex is held.
void CqlLock::go_on_if_all_answered(Record& r) {
  if (!r.turns.token || r.turns.phase || !stays(r)) return;
  if (r.turns.token->is_awaiting() && options_.rules.answers_are_awaited) return;
  let_in_with_token(*r.turns.token, *r.waiting);
}

void CqlLock::on_phase(const Message& message) {
  const TurnMessage turn = TurnMessage::from_message(message);
  const std::lock_guard guard{self_.requests.mutex()};
  Record* record = self_.requests.find(turn.key.lock);
  Waiting* waiting = record == nullptr ? nullptr : wait_for(*record, turn);
  if (waiting == nullptr) return;
  waiting->fresh = false;
  record->turns.hop = turn.hop;
  record->local.object = Carried::at_end_of(message, TurnMessage::kWords + 1);
  if (message.words[TurnMessage::kWords] != 0) {
    const RingPlace next = RingPlace::unpack(message.words[TurnMessage::kWords]);
    RingPlace own = own_place(turn.key.ticket);
    note_wishes(own, record->local);
    const bool may_answer = own.writers && !own.readers && owner_of(next) != nullptr;
    if (!may_answer) return let_in_phase(*record, *waiting, next, turn.hop);
    answer_phase(turn.key, own, {next, turn.hop});  // nobody here wants to read
    return;
  }
  // The token has ended: the node holds the lock as if it had asked for it shared.
  record->turns = {};
  waiting->freed = true;
  wake(*waiting);
}

void CqlLock::answer_phase(const GrantKey& mine, const RingPlace& own, const Turns::Phase& phase) {
  const TurnMessage done{
      MessageKind::done, {mine.lock, mine.era, Ticket{phase.next.ticket}}, phase.hop};
  Message message = done.to_message();
  message.words.push_back(own.packed());
  send_to(phase.next, message);
}

void CqlLock::on_done(const Message& message) {
  const TurnMessage turn = TurnMessage::from_message(message);
  const RingPlace from = RingPlace::unpack(message.words[TurnMessage::kWords]);
  const std::lock_guard guard{self_.requests.mutex()};
  Record* record = self_.requests.find(turn.key.lock);
  if (record == nullptr || record->era != turn.key.era) return;
  Turns& turns = record->turns;
  if (turns.token && turns.token->hop == turn.hop) {
    if (turns.token->take_answer(from)) go_on_if_all_answered(*record);
    return;
  }
  const bool waits = record->waiting != nullptr && record->waiting->key == turn.key;
  if (!waits && record->held != turn.key.ticket) return;
  std::erase_if(turns.early, [&](const Turns::Answer& a) { return a.from.slot == from.slot; });
  turns.early.push_back({turn.hop, from});
}

RingPlace CqlLock::own_place(Ticket ticket) const {
  const member::Member& self = self_.membership.self();
  return {.slot = self.slot,
          .odd = self.incarnation.value % 2 != 0,
          .worker = self_.worker,
          .ticket = static_cast<std::uint32_t>(ticket.value),
          .met = true};
}

// ---------------------------------------------------------------- a visit

// Who has come since the token was here last.
Task<void> CqlLock::look_for_newcomers(GrantKey mine) {
  const RecordUse record{self_.requests, mine.lock};
  std::uint32_t hop = 0;
  self_.requests.change(*record, [&](Record& r) {
    if (!r.turns.token) r.turns.token.emplace().base = mine.ticket;  // born with this visit
    hop = r.turns.token->hop;
  });
  ScratchWords queue{frames(), shape_.queue_words()};
  Op look = Op::read(mine.lock, queue.words(), Purpose::prefetch);
  look.incarnation = mine.era.mn_incarnation;
  const Result<void> seen = co_await endpoint_.post(look);
  if (!seen) co_return;  // whoever has the token finds that out by itself
  self_.requests.change(*record, [&](Record& r) {
    if (r.held != mine.ticket || r.era != mine.era || !r.turns.token || r.turns.token->hop != hop)
      return;
    merge_newcomers(*r.turns.token, mine.era, queue.words());
  });
}

void CqlLock::merge_newcomers(LockToken& token, const Era& era, std::span<const std::uint64_t> queue) {
  const Header seen = shape_.header.decode(queue[0]);
  if (seen.epoch != era.epoch || seen.reset_id != ResetId{0}) return;
  // An entry that was read is one of a request that the header counts by now, whatever the header said when it was read.
  const Ticket last{token.known_end().value + shape_.header.requests_max()};
  token.merge(QueueView{options_.rules, shape_, queue, era.epoch, token.known_end(), last});
}

// ---------------------------------------------------------------- releasing

Task<Result<void>> CqlLock::release_turn(Record& record, Hold hold, Op* object) {
  if (hold.in_phase) return end_phase(record, hold);
  if (hold.mode == Mode::shared) return leave_and_grant(record, hold, object, 1, 0);
  return pass_token(record, hold, object);
}

// Somebody resets the lock: nothing is passed on any more, so that the reset ends soon, and it cleans up. Or the hold is void:
// this member was removed, or the memory node has restarted, and the record may be about the next place already.
// REQUIRES: the mutex is held.
bool CqlLock::is_stopped(const Record& r, const Hold& hold) const {
  const Era era{hold.epoch, hold.mn_incarnation};
  if (self_.membership.evicted() || r.held != hold.ticket || r.era != era) return true;
  return r.reset_of == era;
}

// What a release ends with that has passed nothing on: the hold was void, or a reset goes on from here.
Result<void> CqlLock::dropped() const {
  if (self_.membership.evicted()) return Failure{Errc::evicted};
  return {};
}

// This member holds the lock no longer, and has left the ring. A wait of its that was to go on there begins anew.
void CqlLock::drop_turns(Record& record, const Hold& hold) {
  self_.requests.change(record, [&](Record& r) {
    if (r.held != hold.ticket) return;
    r.held.reset();
    if (r.era != Era{hold.epoch, hold.mn_incarnation})
      return;  // it waits in another life of the lock already
    r.turns = {};
    if (stays(r) && r.waiting->become(Waiting::State::aborted)) {
      r.waiting->worker->make_ready(r.waiting->coroutine);
    }
  });
  answer_if_quiet(record);
}

Task<Result<void>> CqlLock::pass_token(Record& record, Hold hold, Op* object) {
  const Era era{hold.epoch, hold.mn_incarnation};
  std::optional<LockToken> ended;
  bool stopped = false;
  std::uint32_t settles = 0;
  std::uint32_t settled_writers = 0;
  bool look_now = false;
  self_.requests.change(record, [&](Record& r) {
    stopped = is_stopped(r, hold);
    if (stopped) return;
    if (!r.turns.token) r.turns.token.emplace().base = hold.ticket;  // born with this hold
    LockToken& token = *r.turns.token;
    token.sequence += hold.local_sequence + 1;
    if (token.ring.empty() && !stays(r)) {
      ended = std::move(token);
      r.turns = {};
      return;
    }
    if (token.departed() > shape_.slots / 4 || token.wants_a_new_base()) {
      settles = token.may_settle(options_.rules);
      settled_writers = token.writers_among(settles);
    }
    look_now = token.unseen > std::max<std::size_t>(kUnseenMax, token.ring.size());
  });
  if (ended) co_return co_await leave_and_grant(record, hold, object, ended->accounted, ended->writers);

  ScratchWords queue{frames(), shape_.queue_words()};
  if (object != nullptr || settles > 0 || look_now) {
    Op settle_some = Op::fetch_add(hold.lock, shape_.header.release_delta(settles, settled_writers),
                                   Purpose::release);
    Op look = Op::read(hold.lock, queue.words(), Purpose::prefetch);
    settle_some.incarnation = look.incarnation = hold.mn_incarnation;
    const Outstanding busy{*this, record};
    const Result<void> posted = co_await endpoint_.post(object, settles > 0 ? &settle_some : nullptr,
                                                        look_now && !stopped ? &look : nullptr);
    if (!posted) {
      const Result<void> known = co_await settle(hold.lock, posted.error());
      drop_turns(record, hold);
      const bool unknown = object != nullptr && posted.error() == Errc::outcome_unknown;
      co_return unknown ? Failure{Errc::outcome_unknown} : Failure{known.error()};
    }
  }
  const HandingOver under_way{*this, record};
  bool unknown_owners = false;
  self_.requests.change(record, [&](Record& r) {
    stopped = stopped || is_stopped(r, hold);
    if (stopped || !r.turns.token) return;
    LockToken& token = *r.turns.token;
    if (settles > 0) token.settled(settles, settled_writers);
    if (look_now) merge_newcomers(token, era, queue.words());
    unknown_owners = std::any_of(token.ring.begin(), token.ring.end(),
                                 [&](const RingPlace& p) { return owner_of(p) == nullptr; });
  });
  if (unknown_owners) {  // somebody has joined, or was removed
    const Result<void> refreshed = co_await self_.membership.refresh(endpoint_.worker());
    if (!refreshed) {
      drop_turns(record, hold);
      co_return Result<void>{};  // what was written is written; others mend the rest
    }
  }
  std::optional<Onward> onward;
  self_.requests.change(record, [&](Record& r) {
    stopped = stopped || is_stopped(r, hold) || !r.turns.token;
    if (!stopped) onward = move_on(r, hold);
  });
  if (stopped) {
    drop_turns(record, hold);
    co_return object == nullptr ? dropped() : Result<void>{};  // what was written is written
  }
  answer_if_quiet(record);
  if (onward->move.kind == Move::Kind::pass) {
    send_onward(*onward, {hold.lock, era, {}});
    co_return Result<void>{};
  }
  const auto stay = static_cast<std::uint32_t>(onward->token.ring.size());
  const Result<void> left = co_await leave_and_grant(
      record, hold, nullptr, onward->token.accounted - stay, onward->token.writers, &onward->token);
  if (left || object == nullptr) co_return left;
  // What was written stays so, although this member is evicted before it has released the lock; and others may have seen it
  // before the memory node restarted.
  if (left.error() == Errc::evicted) co_return Result<void>{};
  co_return Failure{Errc::outcome_unknown};
}

// REQUIRES: the mutex is held, and nothing of this visit is left to do.
CqlLock::Onward CqlLock::move_on(Record& r, const Hold& hold) {
  Turns& turns = r.turns;
  LockToken& token = *turns.token;
  token.object = r.local.object;
  // Those who were removed have left: nothing that they do takes effect.
  std::erase_if(token.ring, [&](const RingPlace& p) { return owner_of(p) == nullptr; });
  RingPlace own = own_place(hold.ticket);
  own.visited = true;
  // Where the ring is full somebody may be waiting to be taken in: this node asks anew, behind them. And where nobody leaves the
  // ring the base cannot grow.
  const bool leaves = token.ring.size() >= LockToken::kRingMax || token.wants_a_new_base();
  const bool here_too = stays(r) && !leaves;
  if (here_too) {
    note_wishes(own, r.local);
    token.ring.push_back(own);
  } else if (stays(r) && r.waiting->become(Waiting::State::aborted)) {
    r.waiting->worker->make_ready(r.waiting->coroutine);
  }
  Onward onward{.move = token.move_on()};
  if (onward.move.kind != Move::Kind::pass) {
    // The header is told first; until then this node holds the lock.
    onward.token = std::move(token);
    turns.token.reset();
    return onward;
  }
  r.held.reset();
  const bool here_next = onward.move.next.slot == own.slot;
  if (here_too) turns.hop = token.hop;
  const auto in_ring = std::find_if(token.ring.begin(), token.ring.end(),
                                    [&](const RingPlace& p) { return p.slot == own.slot; });
  const bool own_phase = onward.move.phase && own.readers;
  if (in_ring != token.ring.end() && !own_phase) in_ring->awaited = false;
  if (here_next) {
    onward.token = token;
    onward.stays_here = true;
    if (!own_phase) go_on_if_all_answered(r);
  } else {
    onward.token = std::move(token);
    turns.token.reset();
    if (!here_too) turns = {};
  }
  if (own_phase) let_in_phase(r, *r.waiting, onward.move.next, turns.hop);
  return onward;
}

void CqlLock::send_onward(const Onward& onward, GrantKey key) {
  const RingPlace& next = onward.move.next;
  const Slot self = self_.membership.self().slot;
  for (const RingPlace& place : onward.token.ring) {
    if (!onward.move.phase || place.slot == self) continue;
    key.ticket = Ticket{place.ticket};
    Message phase = TurnMessage{MessageKind::phase, key, onward.token.hop}.to_message();
    phase.words.push_back(next.packed());
    onward.token.object.append_to(phase);
    send_to(place, phase);
  }
  if (onward.stays_here) return;
  key.ticket = Ticket{next.ticket};
  send_to(next, message_of(onward.token, key, onward.move.phase));
}

// The readers of this node are done.
Task<Result<void>> CqlLock::end_phase(Record& record, Hold hold) {
  const GrantKey mine{hold.lock, {hold.epoch, hold.mn_incarnation}, hold.ticket};
  bool stopped = false;
  bool token_is_idle = false;
  std::optional<Turns::Phase> answers;
  RingPlace own = own_place(hold.ticket);
  self_.requests.change(record, [&](Record& r) {
    stopped = is_stopped(r, hold) || !r.turns.phase;
    if (stopped) return;
    r.held.reset();
    const bool here_too = stays(r);
    if (here_too) note_wishes(own, r.local);
    if (here_too && !own.waits())
      own.writers = true;  // the client has just given up: the token comes, and goes on
    if (r.turns.token) {
      r.turns.phase.reset();
      token_is_idle = r.waiting == nullptr;
      return go_on_if_all_answered(r);
    }
    answers = std::exchange(r.turns.phase, {});
    if (!here_too) r.turns = {};
  });
  if (stopped) {
    drop_turns(record, hold);
    co_return dropped();
  }
  answer_if_quiet(record);
  if (answers) {
    if (owner_of(answers->next) == nullptr) (void)co_await self_.membership.refresh(endpoint_.worker());
    answer_phase(mine, own, *answers);
  }
  if (!token_is_idle) co_return Result<void>{};
  // This node is next, and nobody here wants the lock any more: it passes the token on when all have answered.
  Waiting waiting{.key = mine, .mode = Mode::exclusive, .fresh = false};
  {
    const WaitScope scope{*this, record, waiting};
    self_.requests.change(record, [&](Record& r) { go_on_if_all_answered(r); });
    watch(record, waiting);
    while (!self_.requests.is_over(waiting)) co_await Granted{self_.requests, waiting};
  }
  if (waiting.state == Waiting::State::granted) {
    co_return co_await pass_token(record, hold_of(waiting), nullptr);
  }
  drop_turns(record, hold);
  co_return Result<void>{};
}

// Takes requests out of the header, and so many writers. Those who have come since are told if it is their turn; `freed`: who is
// in this ring has the lock from now on.
Task<Result<void>> CqlLock::leave_and_grant(Record& record, Hold hold, Op* object,
                                            std::uint32_t requests, std::uint32_t writers,
                                            const LockToken* freed) {
  Carried value;
  self_.requests.change(record, [&](const Record& r) { value = r.local.object; });
  ScratchWords queue{frames(), shape_.queue_words()};
  Op leave = Op::fetch_add(hold.lock, shape_.header.release_delta(requests, writers), Purpose::release);
  leave.incarnation = hold.mn_incarnation;
  Op look = Op::read(hold.lock, queue.words(), Purpose::release);
  look.incarnation = hold.mn_incarnation;
  bool look_now = freed == nullptr;
  self_.requests.change(record, [&](const Record&) {
    look_now = look_now && (hold.expect_waiters || self_.requests.looks_contended(hold.lock));
  });
  const HandingOver under_way{*this, record};
  {
    const Outstanding busy{*this, record};
    const Result<void> posted = co_await endpoint_.post(object, leave, look_now ? &look : nullptr);
    const Result<void> known = posted ? posted : co_await settle(hold.lock, posted.error());
    if (!posted) drop_turns(record, hold);
    no_longer_held(record, hold.ticket);
    if (posted && freed != nullptr) free_readers(record, hold, *freed);
    const bool unknown = object != nullptr && !posted && posted.error() == Errc::outcome_unknown;
    if (unknown) co_return Failure{Errc::outcome_unknown};
    if (!known) co_return known;
  }
  const auto readers = static_cast<std::uint32_t>(freed == nullptr ? 0 : freed->ring.size());
  co_return co_await grant_newcomers(hold, shape_.header.decode(leave.old), requests, writers, readers,
                                     queue.words(), look_now, value);
}

// `found`: by the fetch-and-add of a release. `readers`: who were freed with it. `looked`: the queue was read behind it.
Task<Result<void>> CqlLock::grant_newcomers(Hold hold, Header found, std::uint32_t requests,
                                            std::uint32_t writers, std::uint32_t readers,
                                            std::span<std::uint64_t> queue, bool looked,
                                            Carried value) {
  if (found.reset_id != ResetId{0} || !options_.rules.newcomers_are_granted) co_return Result<void>{};
  const bool only_readers = found.wcnt == writers;
  // Readers need nothing of a reader: those who wait see that no writer is there.
  const bool owes = found.qsize > requests + readers && !(hold.mode == Mode::shared && only_readers);
  {
    const std::lock_guard guard{self_.requests.mutex()};
    self_.requests.note_contended(hold.lock, owes);
  }
  if (!owes) co_return Result<void>{};
  if (!looked) {
    Op look = Op::read(hold.lock, queue, Purpose::release);
    look.incarnation = hold.mn_incarnation;
    const Result<void> seen = co_await endpoint_.post(look);
    // Those whose turn it is find out by themselves (watch.cc).
    if (!seen) co_return Result<void>{};
  }
  // From here on nobody is ahead but those who were freed.
  const Ticket turn{found.ticket.value + requests + readers};
  co_return co_await grant_turns(hold.lock, {hold.epoch, hold.mn_incarnation}, queue, turn, found.end(),
                                 only_readers, readers > 0, value);
}

// To those whose turn the header shows, in the order of their tickets: a writer, or the readers up to the first who is not in
// sight. `all_readers`: no writer is there.
Task<Result<void>> CqlLock::grant_turns(RemoteAddr lock, Era era, std::span<const std::uint64_t> queue,
                                        Ticket turn, Ticket end, bool all_readers, bool readers_hold,
                                        Carried value) {
  const QueueView view{options_.rules, shape_, queue, era.epoch, turn, std::max(turn, end)};
  if (view.header().reset_id != ResetId{0} || view.header().epoch != era.epoch)
    co_return Result<void>{};
  if (!knows_owners(view, turn, view.end())) {
    const Result<void> refreshed = co_await self_.membership.refresh(endpoint_.worker());
    if (!refreshed) co_return Result<void>{};
  }
  send_grants(lock, era, view, turn, all_readers ? view.end() : end_of_turn(view, readers_hold), value);
  co_return Result<void>{};
}

// Only readers were left in the ring. Their requests are shared ones from now on.
void CqlLock::free_readers(Record& record, const Hold& hold, const LockToken& token) {
  GrantKey key{hold.lock, {hold.epoch, hold.mn_incarnation}, {}};
  const Slot self = self_.membership.self().slot;
  for (const RingPlace& place : token.ring) {
    key.ticket = Ticket{place.ticket};
    if (place.slot != self) {
      Message freed = TurnMessage{MessageKind::phase, key, token.hop + 1}.to_message();
      freed.words.push_back(0);  // nobody is next
      token.object.append_to(freed);
      send_to(place, freed);
      continue;
    }
    self_.requests.change(record, [&](Record& r) {
      r.turns = {};
      if (!stays(r)) return;
      r.local.object = token.object;
      r.waiting->freed = true;
      wake(*r.waiting);
    });
  }
}

const member::Member* CqlLock::owner_of(const RingPlace& place) const {
  const member::Member* owner = self_.membership.known().find(place.slot);
  return owner != nullptr && (owner->incarnation.value % 2 != 0) == place.odd ? owner : nullptr;
}

void CqlLock::send_to(const RingPlace& place, const Message& message) {
  const member::Member* owner = owner_of(place);
  if (owner == nullptr) return;  // removed; a reset follows
  endpoint_.send(EndpointId{owner->first_endpoint.value + place.worker.value}, message);
}

}  // namespace declock::cql
