// What the fetch-and-add of an acquisition found: the decision alone, with no I/O (paper section 4.2).
#pragma once

#include "cql/record.h"
#include "cql/rules.h"
#include "layout/lock_shape.h"

namespace declock::cql {

enum class Verdict : std::uint8_t { held, waits, aborted, stuck };

// REQUIRES: under the mutex of the requests.
inline Verdict verdict_on(const Header& found, Mode mode, std::uint32_t mn_incarnation,
                          const Record& record, const LockShape& shape, const Rules& rules) {
  // Aborted by the epoch that the FAA found, not by when it completed (H3): one that ran in the next epoch
  // counts there, and would be a ghost.
  const bool signalled = rules.abort_by_epoch && record.reset_of == Era{found.epoch, mn_incarnation};
  if (found.reset_id != ResetId{0} || signalled) return Verdict::aborted;
  // H24: the ticket is about to repeat. H10: more requests than members: an entry would hit another's.
  if (found.end() >= shape.ticket_limit() || found.qsize >= shape.slots) return Verdict::stuck;
  return found.admits(mode) ? Verdict::held : Verdict::waits;
}

// After the verdict `held`.
inline Hold note_held(Record& record, Mode mode, const Header& found, std::uint32_t mn_incarnation) {
  record.held = found.end();
  record.era = {found.epoch, mn_incarnation};
  return {.lock = record.lock,
          .mode = mode,
          .epoch = found.epoch,
          .ticket = found.end(),
          .mn_incarnation = mn_incarnation};
}

}  // namespace declock::cql
