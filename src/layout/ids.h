// The names of things: nodes, slots, tickets, epochs, remote addresses.
#pragma once

#include <cstdint>

#include "base/strong.h"

namespace declock {

enum class Mode : std::uint8_t { shared, exclusive };

constexpr bool conflict(Mode a, Mode b) {
  return a == Mode::exclusive || b == Mode::exclusive;
}

using MnId = Strong<struct MnTag, std::uint16_t>;              // a memory node
using EndpointId = Strong<struct EndpointTag, std::uint32_t>;  // where a message is sent to
using Slot = Strong<struct SlotTag, std::uint16_t>;            // a member's place in every lock's queue
using WorkerId = Strong<struct WorkerTag, std::uint8_t>;       // whom to wake inside a member
using Ticket = Strong<struct TicketTag, std::uint64_t>;        // names one acquisition of one lock
using Epoch = Strong<struct EpochTag, std::uint8_t>;           // counts resets of one lock
using ResetId = Strong<struct ResetTag, std::uint16_t>;        // who resets a lock; 0: nobody
using Timestamp = Strong<struct TimestampTag, std::uint16_t>;  // microseconds, compared by half range

// Where a word lies: a memory node, and a byte offset in its memory.
struct RemoteAddr {
  MnId mn{};
  std::uint64_t offset = 0;

  constexpr auto operator<=>(const RemoteAddr&) const = default;

  constexpr RemoteAddr operator+(std::uint64_t bytes) const { return {mn, offset + bytes}; }

  // One word, for messages. Offsets have 48 bits.
  constexpr std::uint64_t packed() const { return offset << 16 | mn.value; }
  static constexpr RemoteAddr unpack(std::uint64_t word) {
    return {MnId{static_cast<std::uint16_t>(word & 0xFFFF)}, word >> 16};
  }
};

}  // namespace declock
