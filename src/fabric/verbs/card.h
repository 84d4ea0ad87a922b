// What one side of a connection tells the other about itself. It comes over a network, so every byte is looked at.
//
//   bytes 0..2    "DLv"
//         3       version
//         4       kind
//         5       1: Ethernet, 0: InfiniBand
//         6       path MTU, as verbs encode it
//         7       READs and atomics that it has under way, or takes, at once
//         8..11   queue pair
//        12..15   its first packet sequence number
//        16..19   local identifier (InfiniBand)
//        20..23   key of the memory
//        24..39   GID
//        40..47   address of the memory
//        48..55   and its size
//        56..63   stream of messages
//        64..71   number of the request for a connection
//        72..79   a digest of all this
//
// Numbers are little-endian. What a kind of card has no use for is 0.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "declock/result.h"
#include "net/transport.h"

namespace declock::verbs {

struct Card {
  enum class Kind : std::uint8_t {
    offer = 1,    // a worker to a memory node: my queue pair
    answer = 2,   // the memory node: mine, and where the memory is
    address = 3,  // a worker to everybody: where I am
    ask = 4,      // a worker to another: my queue pair, on which I want to send to you
    grant = 5,    // the other: mine, for that
  };
  static constexpr std::uint8_t kVersion = 1;
  static constexpr std::size_t kBytes = 80;

  Kind kind = Kind::offer;
  bool is_ethernet = false;
  std::uint8_t mtu = 0;
  std::uint8_t reads = 0;
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;
  std::uint16_t lid = 0;
  std::uint32_t key = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint64_t memory = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t stream = 0;
  std::uint64_t request = 0;

  net::Blob blob() const;
  // An error says what is wrong with it.
  static Result<Card, std::string> read(const net::Blob& blob, Kind expected);
};
static_assert(Card::kBytes <= net::kBlobMax);

}  // namespace declock::verbs
