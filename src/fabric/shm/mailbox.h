// An endpoint's mailbox: a ring of message slots in shared memory, with many senders and one reader.
//
// A sender claims the slot of the next ticket in its own name, fills it, and publishes it. One that is killed in
// between leaves a claim of somebody who is no longer a member: the reader frees it. One that is merely slow holds up
// its own later messages and nobody else's, until the ring has come round to its slot: the reader goes on behind its claim.
//
//   state of a slot, in one word:
//     bits 0..1    free, claimed, published
//     bits 2..11   claimed and published: the sender's member slot,
//     bits 12..21  its endpoint there
//     bits 22..41  and the end of its incarnation
//     bits 42..63  round: how often the ring has come by here
//
//   free     -> claimed    by a sender, with one swap
//   claimed  -> published  by that sender; by the reader to free, if the sender was removed
//   published -> free of the next round, by the reader
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "fabric/fabric.h"
#include "layout/ids.h"

namespace declock::shm {

// As whom an endpoint sends.
struct Sender {
  Slot slot;
  std::uint16_t endpoint;  // of that member, counted from 0
  std::uint32_t incarnation;

  static constexpr std::uint32_t kIncarnationMask = 0xF'FFFF;
  constexpr bool operator==(const Sender&) const = default;
};

class Mailbox {
 public:
  static constexpr std::uint64_t kSlots = 64;

  // False: it is full.
  bool send(const Sender& sender, EndpointId from, const Message& message);

  // The reader's side. `alive(sender)` says whether a sender is still a member; `deliver(from, message)` gets what has
  // arrived.
  template <class Alive, class Deliver>
  bool receive(Alive alive, Deliver deliver) {
    bool any = false;
    std::array<Sender, kSlots> late;  // senders whose claims were passed over
    auto late_end = late.begin();
    const std::uint64_t first = head_.load(std::memory_order_relaxed);  // the reader's own
    for (std::uint64_t at = first; at < first + kSlots; ++at) {
      MessageSlot& slot = slots_[at % kSlots];
      State state = State::of(slot.state.load(std::memory_order_acquire));
      if (state.is_free(at)) break;  // nobody has claimed it, so none behind it
      if (state.round == round_of(at)) {
        const bool gone = state.status == Status::claimed && !alive(state.sender);
        // What it published before it went counts.
        if (gone) state = State::of(slot.state.load(std::memory_order_acquire));
        const bool published = state.status == Status::published;
        const bool behind = std::find(late.begin(), late_end, state.sender) != late_end;
        if (behind || (!published && !gone)) {
          *late_end++ = state.sender;
          continue;
        }
        const EndpointId from = slot.from;
        const Message message = slot.message;
        // Release: it was copied before the next sender may fill it.
        slot.state.store(State{round_of(at + kSlots), Status::free, {}}.word(),
                         std::memory_order_release);
        any = any || published;
        if (published) deliver(from, message);
      }
      // Those behind a slot that was held up have been read already.
      if (at == head_.load(std::memory_order_relaxed)) head_.store(at + 1, std::memory_order_relaxed);
    }
    return any;
  }

  // Mostly one look, at the line that the next sender writes. Sequentially consistent: it follows the reader's bell.
  bool anything_arrived() const {
    const std::uint64_t first = head_.load(std::memory_order_relaxed);
    for (std::uint64_t at = first; at < first + kSlots; ++at) {
      const State state = State::of(slots_[at % kSlots].state.load());
      if (state.is_free(at)) return false;
      if (state.round == round_of(at) && state.status == Status::published) return true;
    }
    return false;
  }

 private:
  enum class Status : std::uint8_t { free, claimed, published };

  struct State {
    std::uint32_t round;
    Status status;
    Sender sender;

    static constexpr State of(std::uint64_t word) {
      return {static_cast<std::uint32_t>(word >> 42),
              static_cast<Status>(word & 3),
              {Slot{static_cast<std::uint16_t>(word >> 2 & 0x3FF)},
               static_cast<std::uint16_t>(word >> 12 & 0x3FF),
               static_cast<std::uint32_t>(word >> 22 & Sender::kIncarnationMask)}};
    }
    constexpr bool is_free(std::uint64_t ticket) const {
      return round == round_of(ticket) && status == Status::free;
    }
    constexpr std::uint64_t word() const {
      return std::uint64_t{round} << 42 |
             std::uint64_t{sender.incarnation & Sender::kIncarnationMask} << 22 |
             std::uint64_t{sender.endpoint} << 12 | std::uint64_t{sender.slot.value} << 2 |
             static_cast<std::uint64_t>(status);
    }
  };

  static constexpr std::uint32_t round_of(std::uint64_t ticket) {
    return static_cast<std::uint32_t>(ticket / kSlots) & 0x3F'FFFF;
  }

  struct alignas(64) MessageSlot {
    std::atomic<std::uint64_t> state;
    EndpointId from;
    Message message;
  };

  // Where the next sender looks first; behind it everything is claimed.
  alignas(64) std::atomic<std::uint64_t> tail_;
  // What the reader has finished; kept here for whoever has this mailbox next.
  alignas(64) std::atomic<std::uint64_t> head_;
  std::array<MessageSlot, kSlots> slots_;
};

}  // namespace declock::shm
