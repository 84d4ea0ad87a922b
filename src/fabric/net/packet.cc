#include "net/packet.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace declock::net {
namespace {

static_assert(std::endian::native == std::endian::little);  // on all machines of a cluster
constexpr std::uint64_t kGap = std::uint64_t{1} << 63;      // beside the number

}  // namespace

std::size_t pack(const Packet& packet, std::span<std::uint64_t, kPacketWordsMax> into) {
  const PeerId& sender = packet.sender;
  into[0] = packet.cookie;
  into[1] = std::uint64_t{packet.from.value} << 32 | packet.to.value;
  into[2] =
      std::uint64_t{sender.incarnation} << 32 | std::uint64_t{sender.slot.value} << 16 | sender.worker;
  into[3] = packet.number | (packet.has_gap ? kGap : 0);
  into[4] = packet.acknowledged;
  const MessageWords& words = packet.message.words;
  std::copy(words.begin(), words.end(), into.begin() + kHeadWords);
  return kHeadWords + words.size();
}

std::optional<Packet> unpack(std::span<const std::byte> bytes) {
  PacketWords all;
  const std::size_t count = bytes.size() / sizeof all[0];
  if (bytes.size() % sizeof all[0] != 0 || count < kHeadWords || count > all.size()) return {};
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return Packet{
      .cookie = all[0],
      .from = EndpointId{static_cast<std::uint32_t>(all[1] >> 32)},
      .to = EndpointId{static_cast<std::uint32_t>(all[1])},
      .sender = {Slot{static_cast<std::uint16_t>(all[2] >> 16)},
                 static_cast<std::uint32_t>(all[2] >> 32), static_cast<std::uint16_t>(all[2])},
      .has_gap = (all[3] & kGap) != 0,
      .number = all[3] & ~kGap,
      .acknowledged = all[4],
      .message = {MessageWords{std::span{all}.subspan(kHeadWords, count - kHeadWords)}}};
}

}  // namespace declock::net
