// Acquiring a CQL lock (paper section 4.2, "Lock acquisition workflow").
#include <algorithm>

#include "base/check.h"
#include "cql/cql.h"
#include "cql/entering.h"
#include "cql/in_place.h"
#include "cql/successor.h"

namespace declock::cql {

CqlLock::CqlLock(Endpoint& endpoint, const LockShape& shape, Party self, Options options)
    : endpoint_(endpoint),
      shape_(shape),
      self_(self),
      options_(options),
      removals_at_first_(self.membership.known().removals),
      removals_seen_(removals_at_first_),
      behind_(frames()) {
  endpoint.set_receiver(this);
  self.membership.listen(this);
}

CqlLock::~CqlLock() {
  endpoint_.set_receiver(nullptr);
  self_.membership.unlisten(this);
}

Task<Result<Hold>> CqlLock::acquire(RemoteAddr lock, Mode mode, Op* object) {
  return acquire_since(lock, mode, timestamp_of(endpoint_.worker().now()), object);
}

Task<Result<Hold>> CqlLock::acquire_since(RemoteAddr lock, Mode mode, Timestamp asked, Op* object,
                                          std::optional<Result<Place>> entered) {
  const RecordUse record{self_.requests, lock};
  for (;;) {  // once more after each reset that came between, and those are rare and bounded in time
    Result<Place> place = entered ? *entered : co_await enter(lock, mode, object);
    entered.reset();
    if (place) {
      if (place->held) co_return *place->held;
      if (!place->aborted) {
        const Result<std::optional<Hold>> granted =
            co_await enqueue_and_wait(*record, mode, asked, *place);
        if (granted && *granted) co_return **granted;
        if (!granted) place = Failure{granted.error()};
      }
    }
    if (!place) {
      // What came of the last operation is unknown, or the queue cannot take this request: in both cases only
      // a reset makes the counts right again.
      const Errc error = place.error();
      if (error == Errc::mn_restarted && options_.outlives_restarts) continue;  // with fresh memory
      if (error != Errc::outcome_unknown && error != Errc::stuck) co_return Failure{error};
      if (shape_.queue == QueueLayout::ring) co_return Failure{Errc::stuck};
      const Result<void> done = co_await reset(*record);
      if (!done) co_return Failure{done.error()};
    }
    resets_.aborted += 1;
    // Nobody asks again for a client that has given up.
    if (self_.requests.change(*record, [](const Record& r) { return r.unwanted; })) {
      co_return Failure{Errc::cancelled};
    }
    // The counts that the FAA changed are the reset's to clean up, never ours (H14).
    if (!options_.rules.aborted_never_undoes) {
      Op undo = Op::fetch_add(lock, shape_.header.release_delta(mode), Purpose::acquire);
      (void)co_await endpoint_.post(undo);
    }
    const Result<void> over = co_await await_end_of_reset(*record);
    if (!over) co_return Failure{over.error()};
  }
}

Task<Result<CqlLock::Place>> CqlLock::enter(RemoteAddr lock, Mode mode, Op* object) {
  const RecordUse record{self_.requests, lock};
  // After its answer to a reset a member adds nothing to the header until a READ shows that it is over.
  if (self_.requests.change(*record, [](const Record& r) { return r.reset_of.has_value(); })) {
    const Result<void> over = co_await await_end_of_reset(*record);
    if (!over) co_return Failure{over.error()};
  }
  const std::uint32_t incarnation = endpoint_.incarnation(lock.mn);
  const Outstanding busy{*this, *record};
  Op count_me = Op::fetch_add(lock, shape_.header.acquire_delta(mode), Purpose::acquire);
  if (object != nullptr && object->if_carried) object = nullptr;
  const Result<void> posted = co_await endpoint_.post(count_me, object);
  if (!posted) {
    const Result<void> settled = co_await settle(lock, posted.error());
    co_return Failure{settled.error()};
  }
  Place place{shape_.header.decode(count_me.old), {}, false, incarnation};
  const Verdict verdict = self_.requests.change(*record, [&](Record& r) {
    const Verdict on =
        verdict_on(place.found, mode, incarnation, r, shape_, options_.rules, options_.token);
    if (on == Verdict::held) place.held = r.note_held(mode, place.found, incarnation);
    return on;
  });
  if (verdict == Verdict::stuck) co_return Failure{Errc::stuck};
  place.aborted = verdict == Verdict::aborted;
  // The object was read behind the FAA that made this client a holder: nobody writes it any more.
  if (place.held) place.held->object_read = object != nullptr;
  co_return place;
}

Task<Result<bool>> CqlLock::looks_free(RemoteAddr lock, Mode mode) {
  std::uint64_t word = 0;
  Op look = Op::read(lock, {&word, 1}, Purpose::acquire);
  const Result<void> posted = co_await endpoint_.post(look);
  if (!posted) {
    const Result<void> settled = co_await settle(lock, posted.error());
    co_return Failure{settled.error()};
  }
  const Header found = shape_.header.decode(word);
  co_return found.reset_id == ResetId{0} && found.admits(mode);
}

// Nothing: a reset aborted the wait. Errc::cancelled: nobody wants the lock any more, and this has left the queue.
Task<Result<std::optional<Hold>>> CqlLock::enqueue_and_wait(Record& record, Mode mode, Timestamp asked,
                                                            Place place) {
  const Header& found = place.found;
  const Ticket ticket = found.end();
  Waiting begun{.key = {record.lock, {found.epoch, place.mn_incarnation}, ticket},
                .mode = place.in_ring ? Mode::exclusive : mode,
                .fresh = !place.in_ring};
  Waiting& waiting = place.watching != nullptr ? *place.watching : begun;
  const WaitScope scope{*this, record, waiting};
  if (!self_.requests.is_over(waiting) && !place.in_ring) {
    const Outstanding busy{*this, record};
    Task<Result<void>> announces = options_.token
                                       ? announce_and_look(record, waiting)
                                       : announce(record, waiting, asked, place.watching != nullptr);
    const Result<void> announced = co_await std::move(announces);
    if (!announced) {
      const Result<void> settled = co_await settle(record.lock, announced.error());
      // Even if a grant came: the reset that follows lets go of it.
      self_.requests.change(record, [&](Record&) { waiting.state = Waiting::State::aborted; });
      co_return Failure{settled.error()};
    }
  }
  // A holder that lives hands over (I3): this ends when those ahead have released. If one does not, a reset
  // ends it (watch.cc).
  watch(record, waiting);
  self_.requests.change(record, [&](const Record& r) {
    if (r.unwanted) waiting.become(Waiting::State::leaves);
  });
  for (;;) {
    co_await Granted{self_.requests, waiting};
    if (self_.requests.state_of(waiting) != Waiting::State::leaves) break;
    const Result<bool> left = co_await leave_early(record, waiting, mode, asked);
    if (!left) co_return Failure{left.error()};
    if (*left) co_return Failure{Errc::cancelled};
  }
  if (waiting.state == Waiting::State::aborted) {
    if (options_.token) self_.requests.change(record, [](Record& r) { r.turns = {}; });
    if (self_.membership.evicted()) co_return Failure{Errc::evicted};
    co_return std::nullopt;
  }
  const Hold hold = hold_of(waiting);
  if (options_.token && hold.mode == Mode::exclusive) behind_.spawn(look_for_newcomers(waiting.key));
  co_return hold;
}

// Writes the entry that says whom to wake. Who can watch its entry does so first: `watches` if it does already, and now
// wants to sleep. If it was granted the lock meanwhile the entry says so.
Task<Result<void>> CqlLock::announce(Record& record, Waiting& waiting, Timestamp asked, bool watches) {
  const GrantKey& key = waiting.key;
  Entry entry = entry_for(key, waiting.mode, asked);
  const std::uint64_t asleep = encode(entry);
  if (watches || endpoint_.may_watch()) entry.worker = kWatching;
  const std::uint64_t first = encode(entry);
  const RemoteAddr at = shape_.slot_addr(record.lock, slot_for(key.ticket));
  if (!watches) {
    Op write = Op::write(at, {&first, 1}, Purpose::acquire);
    const Result<void> posted = co_await endpoint_.post(write);
    if (!posted || first == asleep) co_return posted;
  }
  Op swap = Op::compare_swap(at, first, asleep, Purpose::acquire);
  if (!options_.rules.sleeps_by_swap) swap = Op::write(at, {&asleep, 1}, Purpose::acquire);
  const Result<void> posted = co_await endpoint_.post(swap);
  if (!posted || swap.old == swap.expected || !options_.rules.sleeps_by_swap) co_return posted;
  const bool granted = self_.requests.change(record, [&](const Record&) {
    return note_granted(waiting, decode_entry(swap.old), endpoint_.worker().now());
  });
  if (!granted) co_return Failure{Errc::evicted};
  co_return posted;
}

Task<Result<void>> CqlLock::announce_and_look(Record& record, Waiting& waiting) {
  const GrantKey& key = waiting.key;
  RingPlace here{};
  self_.requests.change(record, [&](Record& r) { note_wishes(here, r.local); });
  const bool both = waiting.mode == Mode::exclusive && here.readers;
  const std::uint64_t word = encode(entry_for(key, waiting.mode, both ? kReadersToo : Timestamp{}));
  std::uint64_t header = 0;
  Op write =
      Op::write(shape_.slot_addr(record.lock, slot_for(key.ticket)), {&word, 1}, Purpose::acquire);
  Op look = Op::read(record.lock, {&header, 1}, Purpose::acquire);
  const Result<void> posted = co_await endpoint_.post(write, look);
  if (posted) look_behind_entry(record, waiting, shape_.header.decode(header));
  co_return posted;
}

void CqlLock::on_grant(const Grant& grant, const Carried& value) {
  const std::lock_guard guard{self_.requests.mutex()};
  Record* record = self_.requests.find(grant.key.lock);
  // H20: a grant that nobody awaits belonged to a wait that a reset aborted: ignored, never released.
  if (record == nullptr || record->waiting == nullptr) return;
  Waiting& waiting = *record->waiting;
  if (waiting.is_over() || !waiting.fresh) return;
  GrantKey named = grant.key;
  if (!options_.rules.epochs_match) named.era.epoch = waiting.key.era.epoch;
  if (options_.rules.tickets_match && waiting.key != named) return;
  if (grant.waiting_since) {
    waiting.waiting_since = RemoteWait{*grant.waiting_since, endpoint_.worker().now()};
  }
  record->local.object = value;
  if (waiting.become(Waiting::State::granted)) endpoint_.worker().make_ready(waiting.coroutine);
}

// With READs, never with another FAA: it would only add to the counts that the reset has to clean (H7).
Task<Result<void>> CqlLock::await_end_of_reset(Record& record) {
  Worker& worker = endpoint_.worker();
  Duration pause = microseconds(2);
  const Duration pause_max = std::max(Duration{options_.patience.ns / 4}, microseconds(100));
  Time patient_until = worker.now() + options_.patience;
  for (;;) {  // as long as the reset takes; look_after() sees to it that somebody runs it
    const Result<Seen> read = co_await read_header(record.lock);
    if (!read) co_return Failure{read.error()};
    const Header& seen = read->header;
    // This member's own reset may not have claimed the header yet. Another FAA would only add a ghost (H10).
    if (seen.reset_id == ResetId{0} && !self_.requests.is_resetting(record)) break;
    if (seen.reset_id != ResetId{0} && worker.now() >= patient_until) {
      const Result<void> looked = co_await look_after(record, seen);
      if (!looked) co_return looked;
      patient_until = worker.now() + options_.patience;
    }
    co_await worker.sleep_for(pause);
    pause = std::min(pause + pause, pause_max);
  }
  self_.requests.change(record, [](Record& r) { r.reset_of.reset(); });
  co_return Result<void>{};
}

std::uint32_t CqlLock::slot_for(Ticket ticket) const {
  if (shape_.queue == QueueLayout::owner) return self_.membership.self().slot.value;
  return static_cast<std::uint32_t>(ticket.value % shape_.slots);
}

Entry CqlLock::entry_for(const GrantKey& key, Mode mode, Timestamp asked) const {
  const member::Member& self = self_.membership.self();
  Entry entry = entry_of(self, key, mode, asked, self_.worker);
  if (shape_.queue == QueueLayout::ring) {
    const auto version = static_cast<std::uint16_t>(shape_.ring_version(key.ticket));
    entry.tag = RingTag{version, self.slot}.packed();
  }
  return entry;
}

Task<Result<std::optional<Timestamp>>> CqlLock::waiting_since(Hold hold) {
  ScratchWords queue{frames(), shape_.queue_words()};
  Op look = Op::read(hold.lock, queue.words(), Purpose::prefetch);
  const Result<void> posted = co_await endpoint_.post(look);
  if (!posted) co_return Failure{posted.error()};
  co_return waiting_behind(hold, options_.rules, shape_, queue.words());
}

Task<Result<std::uint64_t>> CqlLock::wraps(RemoteAddr lock) {
  std::uint64_t count = 0;
  Op look = Op::read(shape_.wraps_addr(lock), {&count, 1}, Purpose::acquire);
  const Result<void> posted = co_await endpoint_.post(look);
  if (!posted) co_return Failure{posted.error()};
  co_return count;
}

Token CqlLock::token(const Hold& hold, std::uint64_t wraps) const {
  CHECK(hold.mode == Mode::exclusive);
  return {hold.mn_incarnation, wraps, hold.base.value_or(hold.ticket),
          hold.sequence + hold.local_sequence};
}

}  // namespace declock::cql
