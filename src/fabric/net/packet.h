// A message on a network, with where it comes from and goes to, and how it becomes bytes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/message.h"
#include "layout/ids.h"

namespace declock::net {

// A worker of a member, at one incarnation of that member.
struct PeerId {
  Slot slot{};
  std::uint32_t incarnation = 0;
  std::uint16_t worker = 0;

  constexpr auto operator<=>(const PeerId&) const = default;
};

struct Packet {
  std::uint64_t cookie = 0;  // that the receiver chose: whoever does not know it is not heard
  EndpointId from{};
  EndpointId to{};
  // Of streams.h:
  PeerId sender{};
  bool has_gap = false;            // a message from the receiver is missing
  std::uint64_t number = 0;        // counted from 1 per pair of workers; 0: an acknowledgement alone
  std::uint64_t acknowledged = 0;  // all up to this, of those that the receiver sent
  Message message{};
};

// Its bytes are those of a head and of the words of the message that are in use. How many these are is said by the length,
// which every network tells, and nowhere else.
inline constexpr std::size_t kHeadWords = 5;
inline constexpr std::size_t kPacketWordsMax = kHeadWords + MessageWords::kMax;
using PacketWords = std::array<std::uint64_t, kPacketWordsMax>;

// Puts it into the first words and says how many.
std::size_t pack(const Packet& packet, std::span<std::uint64_t, kPacketWordsMax> into);
// None: these bytes are none. Whatever anybody may send becomes a packet or is none.
std::optional<Packet> unpack(std::span<const std::byte> bytes);

}  // namespace declock::net
