// Releasing a CQL lock and handing it over (paper sections 4.2, "Lock release workflow", and 4.3).
#include <algorithm>

#include "cql/cql.h"
#include "cql/in_place.h"
#include "cql/successor.h"

namespace declock::cql {
namespace {

// Times the patience, where nobody was ever removed: a member that lives writes its entry sooner, however busy its machine is.
constexpr std::int64_t kLongWithoutEntry = 64;

}  // namespace

Task<Result<void>> CqlLock::release(Hold hold, Op* object) {
  const RecordUse record{self_.requests, hold.lock};
  Result<void> released = Failure{Errc::mn_restarted};
  if (hold.mn_incarnation >
      endpoint_.incarnation(hold.lock.mn)) {  // another worker has seen the restart
    const Result<void> connected = co_await endpoint_.reconnect(hold.lock.mn);
    if (!connected) released = connected;
  }
  if (hold.mn_incarnation == endpoint_.incarnation(hold.lock.mn) ||
      !options_.rules.restart_voids_holds) {
    Task<Result<void>> releases = options_.token ? release_turn(*record, hold, object)
                                                 : release_and_hand_over(*record, hold, object);
    released = co_await std::move(releases);
  } else {
    if (options_.token) drop_turns(*record, hold);
    no_longer_held(*record, hold.ticket);
  }
  if (released || released.error() != Errc::outcome_unknown) co_return released;
  if (hold.mn_incarnation != endpoint_.incarnation(hold.lock.mn))
    co_return released;  // nothing is left to mend
  // Whether the FAA ran nobody knows; a reset makes the counts right.
  const Result<void> mended = co_await reset(*record, hold.epoch);
  if (object != nullptr) co_return released;
  co_return mended;
}

void CqlLock::no_longer_held(Record& record, Ticket ticket) {
  self_.requests.change(record, [&](Record& r) {
    if (r.held != ticket) return;  // the next request of this member may hold the lock already
    r.held.reset();
  });
  answer_if_quiet(record);
}

Task<Result<void>> CqlLock::release_and_hand_over(Record& record, Hold hold, Op* object) {
  ScratchWords queue{frames(), shape_.queue_words()};
  Op leave = Op::fetch_add(hold.lock, shape_.header.release_delta(hold.mode), Purpose::release);
  Op look = Op::read(hold.lock, queue.words(), Purpose::release);
  const bool look_now = hold.expect_waiters || options_.release_read == ReleaseRead::always;
  const HandingOver under_way{*this, record};
  {
    const Outstanding busy{*this, record};
    // In this order: the object is written before anybody can see the lock free, and the READ sees the
    // queue as our FAA left it, or later.
    const Result<void> posted = co_await endpoint_.post(object, leave, look_now ? &look : nullptr);
    const Result<void> settled = posted ? posted : co_await settle(hold.lock, posted.error());
    no_longer_held(record, hold.ticket);
    // Whatever has become of this compute node or the memory node meanwhile: the object may have been written before.
    const bool unknown = object != nullptr && !posted && posted.error() == Errc::outcome_unknown;
    if (unknown) co_return Failure{Errc::outcome_unknown};
    if (!settled) co_return settled;
  }
  const Header found = shape_.header.decode(leave.old);
  if (owes_nothing(hold, found)) co_return Result<void>{};
  co_return co_await look_and_hand_over(record, hold, {found, {}}, queue.words(), look_now);
}

Task<Result<void>> CqlLock::hand_over_behind(Hold hold, Owing owing) {
  const RecordUse record{self_.requests, hold.lock};
  ScratchWords queue{frames(), shape_.queue_words()};
  const HandingOver under_way{*this, *record, true};
  if (options_.token) {
    const std::uint32_t writers = hold.mode == Mode::exclusive ? 1 : 0;
    co_return co_await grant_newcomers(hold, owing.found, 1, writers, 0, queue.words(), false, {});
  }
  co_return co_await look_and_hand_over(*record, hold, owing, queue.words(), false);
}

// The object is written and the lock released, whatever becomes of handing it over: if this compute node is evicted, or the
// memory node restarts, others mend that. `looked`: the queue was read behind the release.
Task<Result<void>> CqlLock::look_and_hand_over(Record& record, Hold hold, Owing owing,
                                               std::span<std::uint64_t> queue, bool looked) {
  Result<void> handed;
  if (!looked) {
    Op look = Op::read(hold.lock, queue, Purpose::release);
    look.incarnation = hold.mn_incarnation;
    handed = co_await endpoint_.post(look);
    if (!handed) handed = co_await settle(hold.lock, handed.error());
  }
  if (handed) handed = co_await hand_over(record, hold, owing, queue);
  if (!handed && handed.error() == Errc::outcome_unknown)
    handed = co_await reset(record, owing.found.epoch);
  if (!handed && handed.error() == Errc::stuck) co_return handed;
  co_return Result<void>{};
}

Task<Result<void>> CqlLock::hand_over(Record& record, Hold hold, Owing owing,
                                      std::span<std::uint64_t> queue) {
  const Header& found = owing.found;
  Worker& worker = endpoint_.worker();
  const Time began = worker.now();
  Time patient_until = began + options_.patience;
  Duration pause{};  // the first refetch follows at once: entries are on their way for microseconds
  Ticket owed = first_owed(hold, found);
  bool nobody_writes =
      false;  // no living member has an operation under way that could write the missing entry

  for (;;) {  // until the entry that is missing comes, or a reset (H15)
    HandOver handed = try_hand_over(hold, owing, queue, owed, false);
    if (handed == HandOver::owner_unknown) {  // somebody has joined
      const Result<void> refreshed = co_await self_.membership.refresh(worker);
      if (!refreshed) co_return refreshed;
      handed = try_hand_over(hold, owing, queue, owed, true);
    }
    if (handed == HandOver::overwritten) co_return Failure{Errc::stuck};
    if (handed == HandOver::done) co_return Result<void>{};
    // It was looked for once more since then.
    if (nobody_writes) co_return co_await reset(record, found.epoch);

    if (worker.now() >= patient_until) {
      // The entry belonged to one that took its turn by itself (watch.cc), or left the queue (leave.cc), and has asked again.
      // Others who are owed the lock take it in the same way.
      if (patrols_ &&
          shape_.header.decode(queue[0]).ticket >= Ticket{first_owed(hold, found).value + 1})
        co_return Result<void>{};
      // Otherwise its owner is slow, or it has died, and the entry will never come.
      const bool for_long = worker.now() - began > options_.patience * kLongWithoutEntry;
      if (options_.rules.refetch_ends_in_reset && (somebody_failed() || for_long)) {
        const Result<Inquired> asked =
            co_await inquire(record, {found.epoch, hold.mn_incarnation & kIncarnationMask});
        if (!asked) co_return Failure{asked.error()};
        nobody_writes = (asked->part & Part::kPosted) == 0;
      }
      patient_until = worker.now() + options_.patience;
    }
    co_await worker.sleep_for(pause);
    pause = std::min(pause.ns == 0 ? microseconds(1) : pause + pause, milliseconds(1));
    Op look = Op::read(hold.lock, queue, Purpose::refetch);
    look.incarnation = hold.mn_incarnation;
    const Result<void> posted = co_await endpoint_.post(look);
    if (!posted) co_return co_await settle(hold.lock, posted.error());
  }
}

// `owed`: the first that was not granted yet, which is the first at all until everything is settled, but without rule H29.
// `refreshed`: whoever is not known now was removed.
CqlLock::HandOver CqlLock::try_hand_over(const Hold& hold, const Owing& owing,
                                         std::span<const std::uint64_t> queue, Ticket& owed,
                                         bool refreshed) {
  const Header& found = owing.found;
  const QueueView view = behind_release(hold, found, options_.rules, shape_, queue);
  if (is_void(view, found)) return HandOver::done;
  if (view.overwritten()) return HandOver::overwritten;
  const Decision decision =
      owing.grant_end ? Decision{*owing.grant_end, true} : whom_to_grant(view, hold, found);
  if (options_.rules.grants_name_incarnations && !refreshed &&
      !knows_owners(view, owed, decision.grant_end)) {
    return HandOver::owner_unknown;
  }
  send_grants(hold.lock, {found.epoch, hold.mn_incarnation}, view, owed, decision.grant_end);
  owed = decision.grant_end;
  return decision.settled ? HandOver::done : HandOver::entry_missing;
}

// The member that wrote this entry, if it is known.
const member::Member* CqlLock::owner_of(const Waiter& waiter) const {
  const member::Member* owner = self_.membership.known().find(waiter.owner);
  const bool same = owner != nullptr && (owner->incarnation.value % 2 != 0) == waiter.odd;
  return same || !options_.rules.grants_name_incarnations ? owner : nullptr;
}

bool CqlLock::knows_owners(const QueueView& view, Ticket begin, Ticket end) const {
  bool all = true;
  view.for_each([&](const Waiter& w) {
    if (w.ticket >= begin && w.ticket < end && w.may_be_granted()) all = all && owner_of(w) != nullptr;
  });
  return all;
}

void CqlLock::send_grants(RemoteAddr lock, const Era& era, const QueueView& view, Ticket begin,
                          Ticket end, const Carried& value) {
  if (begin == end) return;
  const std::optional<Timestamp> behind = view.waiting_since(end);
  view.for_each([&](const Waiter& w) {
    if (w.ticket >= begin && w.ticket < end && w.may_be_granted())
      send_grant({lock, era, w.ticket}, w, view, behind, value);
  });
}

void CqlLock::send_grant(const GrantKey& key, Waiter to, const QueueView& view,
                         const std::optional<Timestamp>& behind, const Carried& value) {
  if (to.watches()) {
    const std::uint64_t entry = view.word_of(to);
    const EndpointWords words{endpoint_, key.lock};
    const std::size_t at = 1u + to.owner.value;
    if (grant_in_place(words, at, entry, behind) || !options_.rules.late_grants_are_sent) return;
    const Entry now = decode_entry(words.load(at));
    to.worker = now.worker;
    const bool waits = now.tag == decode_entry(entry).tag && now.epoch == key.era.epoch &&
                       to.may_be_granted() && !to.watches();
    if (!waits) return;  // any more; or this member is removed, and changes nothing
  }
  const member::Member* owner = owner_of(to);
  if (owner == nullptr) return;  // removed; a reset follows
  Message grant = Grant{key, behind}.to_message();
  value.append_to(grant);
  endpoint_.send(EndpointId{owner->first_endpoint.value + to.worker.value}, grant);
}

}  // namespace declock::cql
