// What is locked: addresses in the memory of memory nodes, locks at such addresses, tables of locks, and the token
// that an exclusive holder can show. Plain values.
//
// Thread-safety: as a plain value. Several threads may read one, none while another changes it.
#ifndef DECLOCK_LOCK_REF_H
#define DECLOCK_LOCK_REF_H

#include <compare>
#include <cstdint>

#include "declock/config.h"

namespace declock {

// A strong integer: a function never takes two bare numbers that can be swapped.
template <class Tag, class Rep>
struct Strong {
  Rep value{};

  constexpr Strong() = default;
  constexpr explicit Strong(Rep v) : value(v) {}
  constexpr auto operator<=>(const Strong&) const = default;
};

enum class Mode : std::uint8_t { shared, exclusive };

using MnId = Strong<struct MnTag, std::uint16_t>;        // a memory node
using Ticket = Strong<struct TicketTag, std::uint64_t>;  // names one acquisition of one lock

// Where a word lies: a memory node, and a byte offset in its memory.
struct RemoteAddr {
  MnId mn{};
  // Of the memory node, when it gave this address: after a restart other names come to lie there, and every use ends
  // with Errc::mn_restarted, for ever. 0: the application made the address, for the memory node that was there when the
  // cluster was opened.
  std::uint32_t mn_incarnation = 0;
  std::uint64_t offset = 0;

  constexpr RemoteAddr() = default;
  constexpr RemoteAddr(MnId at_mn, std::uint64_t at_offset, std::uint32_t incarnation = 0)
      : mn(at_mn), mn_incarnation(incarnation), offset(at_offset) {}

  constexpr auto operator<=>(const RemoteAddr&) const = default;

  constexpr RemoteAddr operator+(std::uint64_t bytes) const {
    return {mn, offset + bytes, mn_incarnation};
  }

  // One word, for messages, without the incarnation. Offsets have 48 bits.
  constexpr std::uint64_t packed() const { return offset << 16 | mn.value; }
  static constexpr RemoteAddr unpack(std::uint64_t word) {
    return {MnId{static_cast<std::uint16_t>(word & 0xFFFF)}, word >> 16};
  }
};

// A lock: Cluster::lock_bytes() bytes at an address, aligned to 8. Zeroed memory is a free lock. An application that
// embeds locks in its own objects makes these by itself; Cluster::named_lock() and LockTable give the others.
struct LockRef {
  RemoteAddr at{};
  std::uint32_t table = 0;  // under which its figures are counted: Cluster numbers the tables; 0: none

  constexpr auto operator<=>(const LockRef&) const = default;
};

// Locks side by side, by index.
class LockTable {
 public:
  LockTable() = default;
  LockTable(const LockRef& first, std::uint64_t count, std::uint64_t stride)
      : first_(first), count_(count), stride_(stride) {}

  std::uint64_t size() const { return count_; }
  // Bytes from one to the next.
  std::uint64_t stride() const { return stride_; }
  // REQUIRES: index < size().
  LockRef operator[](std::uint64_t index) const { return {first_.at + index * stride_, first_.table}; }

 private:
  LockRef first_{};
  std::uint64_t count_ = 0;
  std::uint64_t stride_ = 0;
};

// Grows strictly over the exclusive holders of a lock, resets and restarts of the memory node included.
// A resource that remembers the largest token it has seen can refuse a holder that lost the lock
// without knowing it.
struct Token {
  std::uint32_t mn_incarnation = 0;
  std::uint64_t wraps = 0;
  Ticket ticket{};
  std::uint32_t local_sequence = 0;

  constexpr auto operator<=>(const Token&) const = default;
};

}  // namespace declock

#endif
