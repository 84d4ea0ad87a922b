// A queue entry: one 64-bit word in which a waiter says who it is (paper sections 4.2 and 5.1).
//
//    63   62      55 54        39  38   37   32 31                             0
//   +-----+---------+------------+------+-------+-------------------------------+
//   | odd | worker  | timestamp  | mode | epoch | ticket                        |
//   +-----+---------+------------+------+-------+-------------------------------+
//
//   ticket     which request this is. It names the request for good, so an entry that is left over from
//              an earlier wait is told from a new one without versions.
//   epoch      the lock's epoch in which the request was made (H6).
//   mode       0 shared, 1 exclusive.
//   timestamp  when the client asked, in microseconds. Of an exclusive request for the token (cql/token.h): kReadersToo if
//              readers wait in the same member as well.
//   worker     whom to wake inside the member, or one of these:
//                kWatching      whoever waits looks at this entry: it is granted the lock here, by a swap, and not by a
//                               message. Where operations take no time.
//                kGranted       it was. The timestamp is that of the first of those who wait behind it.
//                kGrantedLast   the same, and nobody is known to wait behind it.
//                kNobody        whoever waited there has left the queue (cql/leave.cc).
//   odd        the lowest bit of the member's incarnation: who still knows only its predecessor in the slot must
//              not send the grant there. One bit is enough where a slot is used again only after every member has
//              acknowledged a view in which it is free: then nobody knows the member before the predecessor.
//              docs/NETWORKS.md says which coordinators see to that.
//
// A zeroed entry names nobody: ticket 0 finds an empty queue and never waits.
//
// The ring layout is the paper's: an entry lies at position mod capacity, so the entry has to name its
// owner, and has a version where ours has the ticket. Both go into the ticket's 32 bits. Versions count
// from 1, so that in zeroed memory, too, nobody waits.
#pragma once

#include <cstdint>

#include "layout/ids.h"

namespace declock {

inline constexpr WorkerId kGrantedLast{252};
inline constexpr WorkerId kGranted{253};
inline constexpr WorkerId kWatching{254};
inline constexpr WorkerId kNobody{255};
inline constexpr std::uint32_t kWorkersMax = kGrantedLast.value;  // of a member
inline constexpr Timestamp kReadersToo{1};

struct Entry {
  std::uint32_t tag = 0;  // the ticket, or a RingTag
  Epoch epoch{};
  Mode mode = Mode::shared;
  Timestamp timestamp{};
  WorkerId worker{};
  bool odd = false;

  bool operator==(const Entry&) const = default;
};

constexpr std::uint64_t encode(const Entry& e) {
  return std::uint64_t{e.tag} | std::uint64_t{e.epoch.value} << 32 |
         std::uint64_t{e.mode == Mode::exclusive} << 38 | std::uint64_t{e.timestamp.value} << 39 |
         std::uint64_t{e.worker.value} << 55 | std::uint64_t{e.odd} << 63;
}

constexpr Entry decode_entry(std::uint64_t word) {
  return Entry{static_cast<std::uint32_t>(word),
               Epoch{static_cast<std::uint8_t>(word >> 32 & 0x3F)},
               word >> 38 & 1 ? Mode::exclusive : Mode::shared,
               Timestamp{static_cast<std::uint16_t>(word >> 39)},
               WorkerId{static_cast<std::uint8_t>(word >> 55)},
               word >> 63 != 0};
}

static_assert([] {
  constexpr Entry e{0xFFFFFFFF, Epoch{63}, Mode::shared, Timestamp{0xFFFF}, WorkerId{0}, true};
  constexpr Entry f{0, Epoch{0}, Mode::exclusive, Timestamp{0}, WorkerId{255}};
  return decode_entry(encode(e)) == e && decode_entry(encode(f)) == f && encode(Entry{}) == 0 &&
         (encode(e) & encode(f)) == 0;
}());

struct RingTag {
  std::uint16_t version = 0;  // how often the ring was traversed, plus one; 0 was never written
  Slot owner;

  constexpr std::uint32_t packed() const { return std::uint32_t{owner.value} << 16 | version; }
  static constexpr RingTag unpack(std::uint32_t tag) {
    return {static_cast<std::uint16_t>(tag), Slot{static_cast<std::uint16_t>(tag >> 16)}};
  }
};

}  // namespace declock
