// Where operations take no time (shared memory) a client acquires and releases a lock in one step under the mutex of the requests,
// with the decisions of cql/entering.h and cql/successor.h. Where there is more to do than that, the coroutines go on
// (hier.cc): with what has happened so far, or from the beginning if nothing has.
//
// `words` are those of the lock: cql/in_place.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/futex.h"
#include "cql/entering.h"
#include "cql/in_place.h"
#include "cql/record.h"
#include "cql/rules.h"
#include "cql/successor.h"
#include "layout/lock_shape.h"

namespace declock::hier {

// REQUIRES, for all of these: the mutex is held.
//
// Nobody here has to do with the lock: no client, and no coroutine, such as one that resets it. Nor is a hand-over or an answer
// owed, nor does this member have to see first that a reset is over.
inline bool may_act_at_once(const cql::Record& record) {
  return record.local.state == cql::LocalLock::State::absent && record.users == 0 &&
         record.handing_over == 0 && record.unanswered.empty() && !record.reset_of;
}

// Only if it is held at once; otherwise nothing has happened.
template <class Words>
bool acquire_at_once(cql::Record& record, Words words, const LockShape& shape, const cql::Rules& rules,
                     std::uint32_t mn_incarnation, Mode mode) {
  if (!may_act_at_once(record)) return false;
  const std::uint64_t seen = words.load(0);
  const Header found = shape.header.decode(seen);
  if (cql::verdict_on(found, mode, mn_incarnation, record, shape, rules) != cql::Verdict::held ||
      !words.swap(0, seen, seen + shape.header.acquire_delta(mode), Purpose::acquire)) {
    return false;
  }
  record.hold_at_once(mode, found, mn_incarnation);
  return true;
}

// Grants the lock to those whom a release owes it. False: something is left to do, for those who do not watch their entries.
template <class Words>
bool hand_over_at_once(Words words, const Hold& hold, cql::Owing& owing, const LockShape& shape,
                       const cql::Rules& rules) {
  const Header& found = owing.found;
  constexpr int kLooksMax = 32;  // an entry is on its way for less than that, if its owner has a core
  std::array<std::uint64_t, 1 + HeaderLayout::kMembersMax> queue;
  for (int look = 0; look < kLooksMax; ++look) {
    std::size_t used = 0;
    for (std::size_t i = 0; i < shape.queue_words(); ++i) {
      queue[i] = words.load(i);
      if (queue[i] != 0) used = i;
    }
    words.looked();
    const cql::QueueView view =
        cql::behind_release(hold, found, rules, shape, {queue.data(), used + 1});
    if (cql::is_void(view, found)) return true;
    const cql::Decision decision = cql::whom_to_grant(view, hold, found);
    if (!decision.settled) {
      relax();
      continue;
    }
    const std::optional<Timestamp> behind = view.waiting_since(decision.grant_end);
    if (rules.group_at_once) owing.grant_end = decision.grant_end;
    bool all = true;
    view.for_each([&](const cql::Waiter& w) {
      if (w.ticket >= decision.grant_end || !w.may_be_granted()) return;
      const std::size_t at = 1u + w.owner.value;
      const bool granted = w.watches() && cql::grant_in_place(words, at, queue[at], behind);
      if (!granted && (!w.watches() || rules.late_grants_are_sent)) all = false;
    });
    return all;
  }
  return false;
}

enum class Released : std::uint8_t {
  no,  // nothing has happened
  yes,
  owing,  // and the record says that the lock is being handed over: that is left to do (cql/release.cc)
};

// Its fetch-and-add has found `owing.found`. `watched`: those who wait may watch their entries.
template <class Words>
Released end_release(cql::Record& record, Words words, const LockShape& shape, const cql::Rules& rules,
                     bool watched, cql::Owing& owing) {
  record.held.reset();
  record.local.end();
  const Hold& hold = record.local.hold;
  if (cql::owes_nothing(hold, owing.found) || !rules.at_once_owes) return Released::yes;
  if (watched && hand_over_at_once(words, hold, owing, shape, rules)) return Released::yes;
  record.handing_over += 1;
  return Released::owing;
}

// Nobody here holds the lock beside whoever releases it, nor waits for it, and no answer is owed.
inline bool is_alone(const cql::Record& record, const cql::Rules& rules) {
  const cql::LocalLock& lock = record.local;
  const bool alone_in_queue = !record.turns.token && !lock.hold.in_phase;
  return lock.state == cql::LocalLock::State::held && lock.holders == 1 && lock.first == nullptr &&
         alone_in_queue && (record.unanswered.empty() || !rules.at_once_answers);
}

template <class Words>
Released release_at_once(cql::Record& record, Words words, const LockShape& shape,
                         const cql::Rules& rules, bool watched, cql::Owing& owing) {
  if (!is_alone(record, rules)) return Released::no;
  const std::optional<std::uint64_t> word =
      words.fetch_add(0, shape.header.release_delta(record.local.hold.mode), Purpose::release);
  if (!word) return Released::no;
  owing = {shape.header.decode(*word), {}};
  return end_release(record, words, shape, rules, watched, owing);
}

}  // namespace declock::hier
