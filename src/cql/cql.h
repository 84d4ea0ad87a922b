// The CQL lock (cooperative queue-notify locking, paper section 4): a queue on the memory node that one
// fetch-and-add enters, and one message between compute nodes that hands the lock over.
//
//   acquire   FAA the header: qsize += 1, wcnt += exclusive. What it returns says whether the lock is held
//             now; if not, WRITE an entry that says who waits, and wait for a grant.
//   release   FAA the header: ticket += 1, qsize -= 1, wcnt -= exclusive. If what it returns says that
//             somebody waits whom this release makes the next holder, send a grant: a READ of the
//             queue, mostly in the same doorbell, tells to whom.
//
// Read in this order: layout/header.h (the state table), layout/entry.h, acquire.h, release.h,
// successor.h (whom to grant), queue_view.h (what a reader of the queue sees), rules.h.
//
// Invariants:
//   I1  A ticket names one acquisition; the sum ticket + qsize of a header never decreases.
//   I2  Every request that waits writes its entry exactly once, into a slot that nobody else writes.
//   I3  Every release owes at most one hand-over, and the header it found says so: who is granted, by
//       whom and when is decided by that one word.
//   I4  A member has at most one request per lock at any time (H34).
#pragma once

#include <cstdint>

#include "base/time.h"
#include "cql/grant.h"
#include "cql/queue_view.h"
#include "cql/rules.h"
#include "layout/lock_shape.h"
#include "lock/lock.h"

namespace declock::cql {

// Who this client is in every lock's queue, and where its messages go.
struct Membership {
  Slot slot;
  WorkerId worker{};
  std::uint32_t workers_per_member = 1;

  EndpointId endpoint_of(Slot owner, WorkerId at) const {
    return EndpointId{owner.value * workers_per_member + at.value};
  }
};

// When a release reads the queue.
enum class ReleaseRead : std::uint8_t {
  adaptive,  // in the same doorbell if somebody may be waiting, otherwise only once somebody is known to be
  always,  // in the same doorbell, as in the paper
};

struct Options {
  ReleaseRead release_read = ReleaseRead::adaptive;
  // How long a releaser looks for an entry before the lock counts as stuck (H15). Entries are on their
  // way for microseconds; a process that was stopped in between may take longer.
  Duration refetch_max = seconds(1);
  // How long an acquisition waits for somebody else's reset to end.
  Duration reset_max = seconds(10);
};

template <Rules kRules = kAllRules>
class CqlLock final : public LockClient {
 public:
  CqlLock(Endpoint& endpoint, const LockShape& shape, Membership self, Options options = {});
  ~CqlLock() override { endpoint_.set_receiver(nullptr); }

  // Errc::stuck: the lock cannot be acquired or handed over without a reset.
  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object = nullptr) override {
    return acquire_since(lock, mode, timestamp_of(endpoint_.worker().now()), object);
  }
  Task<Result<void>> release(Hold hold, Op* object = nullptr) override;

  // Where a request stands after its fetch-and-add.
  struct Place {
    Header found;
    std::optional<Hold> held;  // at once
  };
  Task<Result<Place>> enter(RemoteAddr lock, Mode mode, Op* object = nullptr);

  // For a request that was made earlier, before this member could ask for the lock; perhaps one that has
  // entered already, without `object`.
  Task<Result<Hold>> acquire_since(RemoteAddr lock, Mode mode, Timestamp asked, Op* object,
                                   std::optional<Place> entered = {});

  // Would a request be served at once? One READ, and only a guess.
  Task<Result<bool>> looks_free(RemoteAddr lock, Mode mode);

  // When the first of those who wait behind `hold` asked, as far as the queue tells. One READ.
  Task<Result<std::optional<Timestamp>>> waiting_since(Hold hold);

  // How often the lock's tickets have started again: part of a token. One READ.
  Task<Result<std::uint64_t>> wraps(RemoteAddr lock);
  // REQUIRES: hold.mode is exclusive.
  Token token(const Hold& hold, std::uint64_t wraps) const;

  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  using Wait = typename GrantInbox<kRules>::Wait;

  // acquire.h
  static bool is_free(const Header& found, Mode mode) {
    return found.qsize == 0 || (mode == Mode::shared && found.wcnt == 0);
  }
  Task<Result<Hold>> enqueue_and_wait(RemoteAddr lock, Mode mode, Timestamp asked, Header found);
  Task<Result<void>> await_end_of_reset(RemoteAddr lock);
  std::uint32_t slot_for(Ticket ticket) const;
  Entry entry_for(Ticket ticket, Epoch epoch, Mode mode, Timestamp asked) const;

  // release.h
  Task<Result<void>> hand_over(Hold hold, Header found, std::span<std::uint64_t> queue);
  void send_grants(RemoteAddr lock, Epoch epoch, const QueueView<kRules>& view, Ticket begin,
                   Ticket end);

  Endpoint& endpoint_;
  LockShape shape_;
  Membership self_;
  Options options_;
  GrantInbox<kRules> inbox_;
};

extern template class CqlLock<kAllRules>;

}  // namespace declock::cql
