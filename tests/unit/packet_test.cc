// Packets as bytes, and bytes that are none.
#include "net/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace declock::net {
namespace {

Packet packet_of(std::size_t words) {
  Packet packet{.cookie = ~std::uint64_t{1},
                .from = EndpointId{0xFFFF'FFFE},
                .to = EndpointId{0xFFFF'FFFD},
                .sender = {Slot{0xFFFC}, 0xFFFF'FFFB, 0xFFFA},
                .number = 7,
                .acknowledged = ~std::uint64_t{2}};
  for (std::size_t i = 0; i < words; ++i) packet.message.words.push_back(~std::uint64_t{i});
  return packet;
}

TEST(Packet, OfAnyLengthIsTheSameAfterwards) {
  for (std::size_t count = 0; count <= MessageWords::kMax; ++count) {
    Packet packet = packet_of(count);
    packet.has_gap = count % 2 == 1;
    PacketWords words;
    const std::size_t packed = pack(packet, words);
    EXPECT_EQ(packed, kHeadWords + count);
    const std::optional<Packet> got = unpack(std::as_bytes(std::span{words}.first(packed)));
    ASSERT_TRUE(got) << count;
    EXPECT_EQ(got->cookie, packet.cookie);
    EXPECT_EQ(got->from, packet.from);
    EXPECT_EQ(got->to, packet.to);
    EXPECT_EQ(got->sender, packet.sender);
    EXPECT_EQ(got->has_gap, packet.has_gap);
    EXPECT_EQ(got->number, packet.number);
    EXPECT_EQ(got->acknowledged, packet.acknowledged);
    EXPECT_TRUE(std::ranges::equal(got->message.words, packet.message.words)) << count;
  }
}

TEST(Packet, BytesOfAnotherLengthAreNone) {
  const std::vector<std::byte> bytes(2 * sizeof(PacketWords), std::byte{0xFF});
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    const bool fits = length % 8 == 0 && length / 8 >= kHeadWords && length / 8 <= kPacketWordsMax;
    EXPECT_EQ(unpack(std::span{bytes}.first(length)).has_value(), fits) << length;
  }
}

}  // namespace
}  // namespace declock::net
