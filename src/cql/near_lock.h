// A lock that is at hand, for whoever uses it again and again: its record stays, and its word lies in this process's memory.
// While no other client of this member has to do with the lock, and nobody elsewhere is in the way, it is acquired and
// released by one swap each. What at_once.cc does with a fetch-and-add is done only where it would succeed, so a lock that
// is not to be had so is left as it is.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "cql/requests.h"
#include "cql/successor.h"
#include "layout/lock_shape.h"
#include "lock/lock.h"

namespace declock::cql {

class NearLock {
 public:
  // `word`: the lock's header, and its slots behind it, on a memory node that never restarts.
  NearLock(Requests& requests, const LockShape& shape, RemoteAddr lock, std::uint64_t& word,
           std::uint32_t mn_incarnation)
      : shape_(shape),
        record_(requests.keep(lock)),
        at_(word),
        word_(word),
        mn_incarnation_(mn_incarnation) {}
  // Unless the requests are gone.
  void forget(Requests& requests) { requests.keep_no_longer(record_); }

  RemoteAddr lock() const { return record_.lock; }
  // When the first of those elsewhere who wait behind this hold asked.
  std::optional<Timestamp> waiting_behind(const Hold& hold) const {
    const std::uint64_t header = word_.load();
    if (shape_.header.decode(header).qsize <= 1) return {};
    std::array<std::uint64_t, 1 + HeaderLayout::kMembersMax> queue;
    for (std::uint32_t i = 0; i < shape_.queue_words(); ++i)
      queue[i] = std::atomic_ref{(&at_)[i]}.load();
    return cql::waiting_behind(hold, rules_, shape_, {queue.data(), shape_.queue_words()});
  }

  // REQUIRES, for both: the mutex of the requests is held. False: it is not so, and nothing has changed.
  bool acquire(Mode mode, Hold& hold) {
    if (!record_.untouched()) return false;
    std::uint64_t word = word_.load();
    const Header found = shape_.header.decode(word);
    if (!found.admits(mode) || found.reset_id != ResetId{0} || found.qsize >= shape_.slots ||
        found.end() >= shape_.ticket_limit()) {
      return false;
    }
    if (!word_.compare_exchange_strong(word, word + shape_.header.acquire_delta(mode))) return false;
    record_.held = found.end();
    record_.era = {found.epoch, mn_incarnation_};
    record_.lone.emplace(mode);
    hold = {.lock = record_.lock,
            .mode = mode,
            .epoch = found.epoch,
            .ticket = found.end(),
            .mn_incarnation = mn_incarnation_};
    return true;
  }

  bool release(const Hold& hold) {
    if (!record_.lone || record_.held != hold.ticket || !record_.unanswered.empty()) return false;
    std::uint64_t word = word_.load();
    if (!owes_nothing(hold, shape_.header.decode(word))) return false;
    if (!word_.compare_exchange_strong(word, word + shape_.header.release_delta(hold.mode)))
      return false;
    record_.held.reset();
    record_.lone.reset();
    return true;
  }

 private:
  const LockShape shape_;
  const Rules rules_{};
  Record& record_;
  std::uint64_t& at_;
  std::atomic_ref<std::uint64_t> word_;
  const std::uint32_t mn_incarnation_;
};

}  // namespace declock::cql
