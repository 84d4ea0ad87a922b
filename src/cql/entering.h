// What the fetch-and-add of an acquisition found: the decision alone, with no I/O (paper section 4.2).
#pragma once

#include "cql/in_place.h"
#include "cql/record.h"
#include "cql/rules.h"
#include "layout/lock_shape.h"

namespace declock::cql {

enum class Verdict : std::uint8_t { held, waits, aborted, stuck };

// REQUIRES: under the mutex of the requests.
inline Verdict verdict_on(const Header& found, Mode mode, std::uint32_t mn_incarnation,
                          const Record& record, const LockShape& shape, const Rules& rules,
                          bool token = false) {
  // Aborted by the epoch that the FAA found, not by when it completed (H3): one that ran in the next epoch
  // counts there, and would be a ghost.
  const bool signalled = rules.abort_by_epoch && record.reset_of == Era{found.epoch, mn_incarnation};
  if (found.reset_id != ResetId{0} || signalled) return Verdict::aborted;
  // H24: the ticket is about to repeat. H10: more requests than members: an entry would hit another's.
  // Behind a token those who have left may count for a while (token.h).
  const std::uint32_t requests_max = token ? shape.header.requests_max() - shape.slots : shape.slots;
  if (found.end() >= shape.ticket_limit || found.qsize >= requests_max) return Verdict::stuck;
  return found.admits(mode) ? Verdict::held : Verdict::waits;
}

// ---------------------------------------------------------------- a wait; REQUIRES, for these: the same

inline void note_waiting(Record& record, Waiting& waiting) {
  record.waiting = &waiting;
  record.era = waiting.key.era;
  if (record.reset_of == waiting.key.era) waiting.become(Waiting::State::aborted);
  if (!waiting.fresh) return;
  record.turns = {};  // what is there is of a place that this member has left
  record.local.object.forget();
}

// Its entry has changed. Was it granted the lock there? If not, others have taken this member for dead, and the entry is
// somebody else's. `now`: when this member learned of who waits behind it.
inline bool note_granted(Waiting& waiting, const Entry& entry, Time now) {
  const bool granted = (entry.worker == kGranted || entry.worker == kGrantedLast) &&
                       entry.tag == static_cast<std::uint32_t>(waiting.key.ticket.value) &&
                       entry.epoch == waiting.key.era.epoch;
  if (!granted) return false;
  const std::optional<Timestamp> behind = behind_grant(entry);
  if (behind) waiting.waiting_since = RemoteWait{*behind, now};
  waiting.become(Waiting::State::granted);
  return true;
}

inline void end_wait(Record& record, const Waiting& waiting) {
  if (waiting.state == Waiting::State::granted) record.held = waiting.key.ticket;
  record.waiting = nullptr;
}

inline Hold hold_of(const Waiting& granted) {
  return {.lock = granted.key.lock,
          .mode = granted.freed || granted.in_phase ? Mode::shared : granted.mode,
          .epoch = granted.key.era.epoch,
          .ticket = granted.key.ticket,
          .mn_incarnation = granted.key.era.mn_incarnation,
          .expect_waiters = !granted.freed,  // it was contended
          .in_phase = granted.in_phase,
          .base = granted.base,
          .sequence = granted.sequence,
          .waiting_since = granted.waiting_since};
}

// Where slots are indexed by owner.
inline Entry entry_of(const member::Member& owner, const GrantKey& key, Mode mode, Timestamp asked,
                      WorkerId worker) {
  return {static_cast<std::uint32_t>(key.ticket.value),
          key.era.epoch,
          mode,
          asked,
          worker,
          owner.incarnation.value % 2 != 0};
}

}  // namespace declock::cql
