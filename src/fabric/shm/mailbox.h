// An endpoint's mailbox: a ring of message slots in shared memory, with many senders and one reader.
//
// A sender claims the slot of the next ticket in its own name, fills it, and publishes it. One that is killed in
// between leaves a claim of somebody who is no longer a member: the reader frees it. One that is stopped in between, or
// merely slow, keeps its slot, since nobody can know when it will write into it; it holds up its own later messages, and
// costs the others that one slot. The reader marks its claim as late and goes on behind it, and from then on senders
// pass over the slot whenever the ring comes round to it.
//
//   state of a slot, in one word:
//     bits 0..1    free, claimed, published
//     bits 2..11   claimed and published: the sender's member slot,
//     bits 12..21  its endpoint there
//     bits 22..41  and the end of its incarnation
//     bits 42..62  round: how often the ring has come by here
//     bit  63      late: the reader has passed over it
//
//   free      -> claimed           by a sender, with one swap
//   claimed   -> published         by that sender; by the reader to free, if the sender was removed
//   published -> free of the next round, by the reader
//
//   claimed, published -> the same, late    by the reader: the claim is not published yet, or the message is behind such a claim
//   late claimed       -> late published    by its sender; by the reader to late free, if the sender was removed
//   late published     -> late free         by the reader, once it has read it
//   late free          -> claimed           by a sender; its round says nothing
//
// M1  The tail passes a ticket only when its slot was claimed for it, or was late and not free. So a slot that is free for
//     its ticket, and not late, has nobody behind it, and the reader stops there without a look at the tail.
// M2  A slot that is late and free belongs to whatever ticket comes next: who claims it looks at the tail once more, and
//     gives it back if the tail has moved on. So there is no message at a ticket that the reader has passed but those in
//     slots that it has marked, and remembers (late_).
// M3  The reader looks at those first, the oldest first, and marks what it finds behind them from the same sender. So the
//     messages of a sender arrive in their order (F4).
// M4  A message that is too long for a slot travels in parts, in one slot each, and its sender sends nothing else here before
//     the last of them. Each part says where in the message it belongs, so the reader, which puts them together by sender
//     (parts.h), knows a beginning, and drops what it has not seen the beginning of: somebody else has read that, who died.
//
// All senders together can stop a mailbox only if kSlots of them are stopped in these few instructions at once.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "shm/parts.h"

namespace declock::shm {

class Mailbox {
 public:
  static constexpr std::uint64_t kSlots = 64;

  // Sends the words of the message from number `sent` on, and moves that on. False: it is full. The rest is to be sent before
  // anything else of this sender (M4).
  bool send(const Sender& sender, EndpointId from, const Message& message, std::size_t& sent);

  // The reader's side. `parts` is the reader's own; `alive(sender)` says whether a sender is still a member;
  // `deliver(from, message)` gets what has arrived. A reader that is killed at any step leaves what the next one can go on with.
  template <class Alive, class Deliver>
  bool receive(Parts& parts, Alive alive, Deliver deliver) {
    Late late;
    bool any = late_.load(std::memory_order_relaxed) != 0 && receive_late(late, parts, alive, deliver);
    // Relaxed, here and below: head_ and late_ are the reader's own.
    const std::uint64_t first = head_.load(std::memory_order_relaxed);
    for (std::uint64_t at = first; at < first + kSlots; ++at) {
      MessageSlot& slot = slots_[at % kSlots];
      State state = State::of(slot.state.load(std::memory_order_acquire));
      if (state.is_free(at)) break;  // nobody has claimed it, so none behind it (M1)
      if (state.late || state.round != round_of(at)) {
        // Claimed for a ticket that the tail had passed already, by somebody who was stopped before it could find out (M2).
        if (!state.late && state.status == Status::claimed && is_before(state.round, round_of(at)))
          (void)mark_late(at, slot, state);
        if (at >= tail_.load()) break;
        // The tail first: whoever claims the slot from here on sees that the tail has moved on (M2). Whoever did so before
        // may have published a message for this ticket.
        if (slot.state.load() != state.word()) {
          at -= 1;
          continue;
        }
      } else if (state.status == Status::claimed) {
        const bool gone = !alive(state.sender);
        const State next{round_of(at + kSlots), Status::free, {}, false};
        // If that fails its sender has come to it: what it published before it went counts.
        if (!(gone ? swap(slot, state, next) : pass_over(at, slot, state))) {
          at -= 1;
          continue;
        }
        if (!gone) late.add(state.sender);
      } else if (late.has(state.sender)) {
        (void)pass_over(at, slot, state);
      } else {
        take(slot, state, State{round_of(at + kSlots), Status::free, {}, false}, parts, deliver);
        any = true;
      }
      head_.store(at + 1, std::memory_order_relaxed);
    }
    return any;
  }

  // Mostly one look, at the line that the next sender writes. Sequentially consistent: it follows the reader's bell.
  bool anything_arrived() const {
    for (std::uint64_t left = late_.load(std::memory_order_relaxed); left != 0; left &= left - 1) {
      const State state = State::of(slots_[index_of(left)].state.load());
      if (state.late && state.status == Status::published) return true;
    }
    const std::uint64_t first = head_.load(std::memory_order_relaxed);
    for (std::uint64_t at = first; at < first + kSlots; ++at) {
      const State state = State::of(slots_[at % kSlots].state.load());
      if (state.is_free(at)) return false;
      if (state.late || state.round != round_of(at)) {
        if (at >= tail_.load()) return false;
      } else if (state.status == Status::published) {
        return true;
      }
    }
    return false;
  }

 private:
  enum class Status : std::uint8_t { free, claimed, published };
  static constexpr std::uint64_t kRoundMask = 0x1F'FFFF;

  struct State {
    std::uint32_t round;
    Status status;
    Sender sender;
    bool late;

    static constexpr State of(std::uint64_t word) {
      return {static_cast<std::uint32_t>(word >> 42 & kRoundMask),
              static_cast<Status>(word & 3),
              {Slot{static_cast<std::uint16_t>(word >> 2 & 0x3FF)},
               static_cast<std::uint16_t>(word >> 12 & 0x3FF),
               static_cast<std::uint32_t>(word >> 22 & Sender::kIncarnationMask)},
              word >> 63 != 0};
    }
    constexpr bool is_free(std::uint64_t ticket) const {
      return round == round_of(ticket) && status == Status::free && !late;
    }
    constexpr std::uint64_t word() const {
      return std::uint64_t{late} << 63 | std::uint64_t{round} << 42 |
             std::uint64_t{sender.incarnation & Sender::kIncarnationMask} << 22 |
             std::uint64_t{sender.endpoint} << 12 | std::uint64_t{sender.slot.value} << 2 |
             static_cast<std::uint64_t>(status);
    }
    constexpr State as(Status next, bool is_late) const { return {round, next, sender, is_late}; }
  };
  static constexpr State kLateFree{0, Status::free, {}, true};

  static constexpr std::uint32_t round_of(std::uint64_t ticket) {
    return static_cast<std::uint32_t>(ticket / kSlots & kRoundMask);
  }
  // In the half of all rounds before it.
  static constexpr bool is_before(std::uint32_t round, std::uint32_t other) {
    const std::uint64_t behind = (other - round) & kRoundMask;
    return behind != 0 && behind <= kRoundMask / 2;
  }
  static std::size_t index_of(std::uint64_t bits) {
    return static_cast<std::size_t>(std::countr_zero(bits));
  }

  struct alignas(64) MessageSlot {
    std::atomic<std::uint64_t> state;
    Part part;
  };
  static_assert(sizeof(MessageSlot) == 64);

  // Senders whose claims were passed over.
  class Late {
   public:
    void add(const Sender& sender) { senders_[count_++] = sender; }
    bool has(const Sender& sender) const {
      return std::find(senders_.begin(), senders_.begin() + count_, sender) !=
             senders_.begin() + count_;
    }

   private:
    std::array<Sender, kSlots> senders_;  // each has a slot that no other has
    std::ptrdiff_t count_ = 0;
  };

  // The part that begins with word `first`. False: it is full.
  bool send_part(const Sender& sender, EndpointId from, const MessageWords& words, std::size_t first);
  static void end_claim(MessageSlot& slot, const State& claim, const State& ended,
                        const State& ended_late);

  // The slots that were passed over, the oldest first.
  template <class Alive, class Deliver>
  bool receive_late(Late& late, Parts& parts, Alive alive, Deliver deliver) {
    struct Passed {
      std::uint64_t age;  // in tickets
      std::size_t index;
    };
    std::array<Passed, kSlots> oldest_first;
    auto end = oldest_first.begin();
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    for (std::uint64_t left = late_.load(std::memory_order_relaxed); left != 0; left &= left - 1) {
      const std::size_t i = index_of(left);
      const std::uint64_t ticket = State::of(slots_[i].state.load()).round * kSlots + i;
      *end++ = {(head - ticket) % (kSlots * (kRoundMask + 1)), i};
    }
    std::sort(oldest_first.begin(), end,
              [](const Passed& a, const Passed& b) { return a.age > b.age; });
    bool any = false;
    for (auto passed = oldest_first.begin(); passed != end;) {
      MessageSlot& slot = slots_[passed->index];
      const State state = State::of(slot.state.load(std::memory_order_acquire));
      const std::size_t index = passed->index;
      if (state.late && state.status == Status::claimed) {
        const bool gone = !alive(state.sender);
        if (gone && !swap(slot, state, kLateFree)) continue;  // published before it went
        ++passed;
        if (!gone) {
          late.add(state.sender);
          continue;
        }
      } else {
        ++passed;
        if (state.late && state.status == Status::published) {
          if (late.has(state.sender)) continue;
          take(slot, state, kLateFree, parts, deliver);
          any = true;
        }
      }
      late_.store(late_.load(std::memory_order_relaxed) & ~(std::uint64_t{1} << index),
                  std::memory_order_relaxed);
    }
    return any;
  }

  // False: its sender has changed it meanwhile.
  static bool swap(MessageSlot& slot, const State& state, const State& next) {
    std::uint64_t found = state.word();
    return slot.state.compare_exchange_strong(found, next.word());
  }
  bool mark_late(std::uint64_t at, MessageSlot& slot, const State& state) {
    // Remembered first: if this reader is killed now, the next one finds that it is not late, and forgets it.
    late_.store(late_.load(std::memory_order_relaxed) | std::uint64_t{1} << at % kSlots,
                std::memory_order_relaxed);
    return swap(slot, state, state.as(state.status, true));
  }

  // Its sender may not have moved the tail on yet, and may never. Once the slot is free again nobody is to find it there:
  // what came into it would be behind this reader.
  bool pass_over(std::uint64_t at, MessageSlot& slot, const State& state) {
    std::uint64_t ticket = at;
    tail_.compare_exchange_strong(ticket, at + 1);
    return mark_late(at, slot, state);
  }

  // REQUIRES: published.
  template <class Deliver>
  static void take(MessageSlot& slot, const State& state, const State& next, Parts& parts,
                   Deliver deliver) {
    const EndpointId from = slot.part.from;
    // Release: it was copied before the next sender may fill it.
    const auto give_back = [&] { slot.state.store(next.word(), std::memory_order_release); };
    if (slot.part.is_whole()) {
      const Message message{MessageWords{slot.part.used()}};
      give_back();
      deliver(from, message);
    } else {
      const std::optional<Message> message = parts.add(state.sender, slot.part);
      give_back();
      if (message) deliver(from, *message);
    }
  }

  // Where the next sender looks first; behind it everything is claimed.
  alignas(64) std::atomic<std::uint64_t> tail_;
  // What the reader has finished or passed over, and which slots it has passed over and not finished, a bit each; kept
  // here for whoever has this mailbox next.
  alignas(64) std::atomic<std::uint64_t> head_;
  std::atomic<std::uint64_t> late_;
  std::array<MessageSlot, kSlots> slots_;
};

}  // namespace declock::shm
