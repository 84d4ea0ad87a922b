// Where operations take no time (shared memory), a client that meets nobody acquires and releases a lock in one step under the
// mutex of the requests: the decisions of cql/entering.h and cql/successor.h, and a swap of the header in place of the
// fetch-and-add. If somebody else has changed the header meanwhile, or there is more to do than that, nothing has happened,
// and the client goes the way of all (hier.cc).
//
// A word has load(), and add(expected, delta, purpose), which changes nothing and is false unless it still is as expected.
#pragma once

#include <atomic>
#include <cstdint>

#include "cql/entering.h"
#include "cql/record.h"
#include "cql/rules.h"
#include "cql/successor.h"
#include "layout/lock_shape.h"

namespace declock::hier {

template <class Word>
bool acquire_at_once(cql::Record& record, Word word, const LockShape& shape, const cql::Rules& rules,
                     std::uint32_t mn_incarnation, Mode mode) {
  if (!record.idle() || record.reset_of) return false;
  const std::uint64_t seen = word.load();
  const Header found = shape.header.decode(seen);
  if (cql::verdict_on(found, mode, mn_incarnation, record, shape, rules) != cql::Verdict::held ||
      !word.add(seen, shape.header.acquire_delta(mode), Purpose::acquire)) {
    return false;
  }
  record.local.begin(cql::note_held(record, mode, found, mn_incarnation), mode, Time{});
  return true;
}

template <class Word>
bool release_at_once(cql::Record& record, Word word, const LockShape& shape) {
  cql::LocalLock& lock = record.local;
  // Where somebody may be waiting elsewhere, a release reads the queue along (cql/release.cc), on every fabric.
  const bool is_alone = lock.state == cql::LocalLock::State::held && lock.holders == 1 &&
                        lock.first == nullptr && !lock.remote && !lock.hold.expect_waiters;
  if (!is_alone || !record.unanswered.empty()) return false;
  const std::uint64_t seen = word.load();
  if (!cql::owes_nothing(lock.hold, shape.header.decode(seen)) ||
      !word.add(seen, shape.header.release_delta(lock.hold.mode), Purpose::release)) {
    return false;
  }
  record.held.reset();
  lock.end();
  return true;
}

// Through the endpoint of a worker.
struct EndpointWord {
  Endpoint& endpoint;
  RemoteAddr at;
  std::uint64_t load() const { return endpoint.load_at_once(at); }
  bool add(std::uint64_t expected, std::uint64_t delta, Purpose purpose) const {
    return endpoint.add_at_once(at, expected, delta, purpose);
  }
};

// In this process's memory.
struct WordHere {
  std::atomic_ref<std::uint64_t> word;
  std::uint64_t load() const { return word.load(); }
  bool add(std::uint64_t expected, std::uint64_t delta, Purpose /*unused*/) const {
    return word.compare_exchange_strong(expected, expected + delta);
  }
};

}  // namespace declock::hier
