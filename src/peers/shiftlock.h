// ShiftLock: a reader-writer MCS lock with phases (Gao et al., FAST 2025), on one 8-byte word.
//
//   63                32 31        16 15     1  0
//   +-------------------+------------+--------+------+
//   | rel               | tail       | rdr    | mode |
//   +-------------------+------------+--------+------+
//
//   mode  a phase bit that flips whenever the waiting readers are let in
//   rdr   readers that hold or wait
//   tail  the last writer in the queue; 0: none
//   rel   releases of readers, and flips; topmost, so that it alone may wrap
//
// Writers form a queue by swapping the tail and telling their predecessor by a message; the lock is
// handed over by a message. Readers count themselves in with a fetch-and-add and poll for the flip of
// the mode. After kWritersInARow writers the readers that wait are let in.
//
// The published lock has 16 bytes and 128-bit operations; nothing in the protocol needs more than 8.
// Three of its operations are masked compare-and-swaps.
#pragma once

#include <coroutine>
#include <cstdint>
#include <list>

#include "lock/lock.h"

namespace declock::peers {

class ShiftLock final : public LockClient, private Receiver {
 public:
  static constexpr std::uint32_t kWritersInARow = 16;
  static constexpr Duration kPoll{1862};

  // The client's id is its endpoint's plus one. REQUIRES: endpoint.has_masked_compare_swap().
  explicit ShiftLock(Endpoint& endpoint);
  ~ShiftLock() override { endpoint_.set_receiver(nullptr); }

  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object = nullptr) override;
  Task<Result<void>> release(Hold hold, Op* object = nullptr) override;
  // A writer is in the queue under its id until it has passed the lock on.
  bool may_release_behind(Mode mode) const override { return mode == Mode::shared; }

  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  // One exclusive request, from the swap of the tail to the end of its release.
  struct Writing {
    RemoteAddr lock;
    bool mode = false;           // the phase, and
    std::uint32_t rel = 0;       // the count of releases, neither of which changes while a writer holds
    std::uint32_t in_a_row = 0;  // writers since readers were last let in
    std::uint32_t successor = 0;  // 0: not known
    bool granted = false;         // a hand-over came,
    bool must_drain = false;      // with readers ahead, who have left once `rel` is reached
    std::coroutine_handle<> waiter;
  };
  Task<Result<Hold>> acquire_shared(RemoteAddr lock, Op* object);
  Task<Result<Hold>> acquire_exclusive(RemoteAddr lock, Op* object);
  Task<Result<void>> drain(RemoteAddr lock, std::uint32_t rel);
  Task<Result<void>> release_exclusive(RemoteAddr lock, Op* object);

  void on_message(EndpointId from, const Message& message) override;
  Writing& writing_on(RemoteAddr lock);

  Endpoint& endpoint_;
  std::uint32_t me_;
  std::list<Writing> writings_;
  std::list<Writing> spare_;
};

}  // namespace declock::peers
