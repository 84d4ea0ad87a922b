// The names of things: slots, epochs and the like; nodes, tickets and remote addresses are public.
#pragma once

#include <cstdint>

#include "declock/lock_ref.h"

namespace declock {

constexpr bool conflict(Mode a, Mode b) {
  return a == Mode::exclusive || b == Mode::exclusive;
}

using EndpointId = Strong<struct EndpointTag, std::uint32_t>;  // where a message is sent to
using Slot = Strong<struct SlotTag, std::uint16_t>;            // a member's place in every lock's queue
using WorkerId = Strong<struct WorkerTag, std::uint8_t>;       // whom to wake inside a member
using Epoch = Strong<struct EpochTag, std::uint8_t>;           // counts resets of one lock
using ResetId = Strong<struct ResetTag, std::uint16_t>;        // who resets a lock; 0: nobody
using Timestamp = Strong<struct TimestampTag, std::uint16_t>;  // microseconds, compared by half range

}  // namespace declock
