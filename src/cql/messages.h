// The messages between members: a grant hands a lock over; the others find out whether a reset is needed
// (watch.cc) and make it (reset.cc).
#pragma once

#include <cstdint>
#include <optional>

#include "fabric/fabric.h"
#include "layout/ids.h"
#include "member/membership.h"

namespace declock::cql {

// word 0: the lock
// word 1: kind (8 bits, at the top), epoch (8 bits, at the bottom), between them what the kind needs
// word 2: what the kind needs
enum class MessageKind : std::uint8_t {
  grant,     // you are a holder
  signal,    // I reset this epoch of the lock: abort your requests of it, and answer
  answer,    // I have nothing to do with that epoch any more
  question,  // the header says that you reset the lock; do you?
  inquiry,   // does this era of the lock wait for you?
  reply,     // to an inquiry: what the lock waits for
  // Of the token lock (token.h):
  token,  // the token is yours
  phase,  // your readers have the lock; answer to this node, which is next
  done,   // my readers are done
};

inline MessageKind kind_of(const Message& m) {
  return static_cast<MessageKind>(m.words[1] >> 56);
}

inline constexpr std::uint32_t kIncarnationMask = 0xFF'FFFF;  // as much of one as messages carry

// The life of a lock between two resets. A restarted memory node starts with the same epochs and tickets: without its
// incarnation, what was sent before the restart would be taken for something new.
struct Era {
  Epoch epoch;
  std::uint32_t mn_incarnation = 1;

  constexpr bool operator==(const Era&) const = default;
};

// Names one wait.
struct GrantKey {
  RemoteAddr lock;
  Era era;
  Ticket ticket;

  constexpr bool operator==(const GrantKey&) const = default;
};

struct Grant {
  GrantKey key;
  // When the first of those who still wait asked, as far as the releaser could see.
  std::optional<Timestamp> waiting_since;

  Message to_message() const {
    const std::uint64_t since = waiting_since ? 1 + std::uint64_t{waiting_since->value} : 0;
    const std::uint64_t incarnation = key.era.mn_incarnation & kIncarnationMask;
    return {
        {key.lock.packed(), key.era.epoch.value | since << 8 | incarnation << 32, key.ticket.value}};
  }
  static Grant from_message(const Message& m) {
    const std::uint64_t since = m.words[1] >> 8 & 0x1'FFFF;
    Grant grant{{RemoteAddr::unpack(m.words[0]),
                 {Epoch{static_cast<std::uint8_t>(m.words[1])},
                  static_cast<std::uint32_t>(m.words[1] >> 32) & kIncarnationMask},
                 Ticket{m.words[2]}},
                {}};
    if (since != 0) grant.waiting_since = Timestamp{static_cast<std::uint16_t>(since - 1)};
    return grant;
  }
};

// The token's messages name the wait that they are for, as a grant does, and the token's hop: so one that comes late or twice
// is told from the next.
//
// word 2: ticket (bits 0..31), hop (32..63)
struct TurnMessage {
  static constexpr std::size_t kWords = 3;
  MessageKind kind;
  GrantKey key;
  std::uint32_t hop;

  Message to_message() const {
    const std::uint64_t incarnation = key.era.mn_incarnation & kIncarnationMask;
    return {
        {key.lock.packed(),
         std::uint64_t{static_cast<std::uint8_t>(kind)} << 56 | incarnation << 24 | key.era.epoch.value,
         key.ticket.value | std::uint64_t{hop} << 32}};
  }
  static TurnMessage from_message(const Message& m) {
    return {kind_of(m),
            {RemoteAddr::unpack(m.words[0]),
             {Epoch{static_cast<std::uint8_t>(m.words[1])},
              static_cast<std::uint32_t>(m.words[1] >> 24) & kIncarnationMask},
             Ticket{m.words[2] & 0xFFFF'FFFF}},
            static_cast<std::uint32_t>(m.words[2] >> 32)};
  }
};

// Why a lock may wait for a member. Several can be true.
struct Part {
  static constexpr std::uint8_t kHolds = 1;
  static constexpr std::uint8_t kPosted = 2;  // an operation of its own is under way
  static constexpr std::uint8_t kHandsOver =
      4;  // it has released the lock, and looks for whom to grant it to
};

// A signal or an inquiry, and the answer to it. Both name the asker by its incarnation, and the member that is asked
// by its own: a successor in its slot cannot answer for it.
struct RoundMessage {
  MessageKind kind;
  RemoteAddr lock;
  Era era;
  Slot asked_slot;
  member::Incarnation asker;
  member::Incarnation asked;
  std::uint8_t part = 0;  // of a reply
  std::uint32_t hop = 0;  // of a reply: how far the token had moved when this member heard of it last

  Message to_message() const {
    const std::uint64_t mn = era.mn_incarnation & kIncarnationMask;
    return {{lock.packed(),
             std::uint64_t{static_cast<std::uint8_t>(kind)} << 56 | std::uint64_t{part} << 48 |
                 mn << 24 | std::uint64_t{asked_slot.value} << 8 | era.epoch.value,
             std::uint64_t{asker.value} << 32 | asked.value, hop}};
  }
  static RoundMessage from_message(const Message& m) {
    return {kind_of(m),
            RemoteAddr::unpack(m.words[0]),
            {Epoch{static_cast<std::uint8_t>(m.words[1])},
             static_cast<std::uint32_t>(m.words[1] >> 24) & kIncarnationMask},
            Slot{static_cast<std::uint16_t>(m.words[1] >> 8)},
            member::Incarnation{static_cast<std::uint32_t>(m.words[2] >> 32)},
            member::Incarnation{static_cast<std::uint32_t>(m.words[2])},
            static_cast<std::uint8_t>(m.words[1] >> 48),
            static_cast<std::uint32_t>(m.words[3])};
  }
};

// Asks whoever claimed this reset whether it runs it.
struct Question {
  RemoteAddr lock;
  Epoch epoch;
  ResetId claim;

  Message to_message() const {
    return {{lock.packed(),
             std::uint64_t{static_cast<std::uint8_t>(MessageKind::question)} << 56 | epoch.value,
             claim.value}};
  }
  static Question from_message(const Message& m) {
    return {RemoteAddr::unpack(m.words[0]), Epoch{static_cast<std::uint8_t>(m.words[1])},
            ResetId{static_cast<std::uint16_t>(m.words[2])}};
  }
};

}  // namespace declock::cql
