#include "verbs/card.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/check.h"
#include "base/mix.h"
#include "verbs/handles.h"

namespace declock::verbs {
namespace {

constexpr std::string_view kMagic = "DLv";
constexpr std::size_t kDigestAt = Card::kBytes - 8;
constexpr std::uint32_t k24Bits = 0xFF'FFFF;

class Writer {
 public:
  void put(std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) blob.push_back(static_cast<char>(number >> 8 * i & 0xFF));
  }
  net::Blob blob;
};

class Reader {
 public:
  explicit Reader(const net::Blob& blob) : blob_(blob) {}
  std::uint64_t get(int bytes) {
    std::uint64_t number = 0;
    for (int i = 0; i < bytes; ++i)
      number |= std::uint64_t{static_cast<std::uint8_t>(blob_[at_++])} << 8 * i;
    return number;
  }

 private:
  const net::Blob& blob_;
  std::size_t at_ = 0;
};

// Any change of a single byte changes it, as mix() is one to one.
std::uint64_t digest(std::string_view bytes) {
  std::uint64_t digest = 0;
  for (const char c : bytes) digest = mix(digest, static_cast<std::uint8_t>(c));
  return digest;
}

const char* name(Card::Kind kind) {
  static constexpr const char* kNames[] = {"?",          "an offer", "an answer",
                                           "an address", "an ask",   "a grant"};
  return kNames[std::min<std::size_t>(static_cast<std::size_t>(kind), 6) % 6];
}

// What is out of its range, or nullptr.
const char* wrong(const Card& card) {
  const bool has_queue_pair = card.kind != Card::Kind::address;
  // 0 and 1 are the network's own.
  if (has_queue_pair ? card.queue_pair < 2 || card.queue_pair > k24Bits : card.queue_pair != 0)
    return "queue pair";
  if (card.first_packet > k24Bits) return "first packet";
  if (card.mtu < IBV_MTU_256 || card.mtu > IBV_MTU_4096) return "MTU";
  if (card.reads < 1) return "number of reads";
  if (card.is_ethernet && card.gid == std::array<std::uint8_t, 16>{}) return "GID";
  if (!card.is_ethernet && card.lid == 0) return "local identifier";
  const bool has_memory = card.kind == Card::Kind::answer;
  if (has_memory != (card.memory_bytes > 0)) return "size of the memory";
  if (card.memory % 8 != 0 ||
      card.memory > std::numeric_limits<std::uint64_t>::max() - card.memory_bytes)
    return "address of the memory";
  return nullptr;
}

}  // namespace

net::Blob Card::blob() const {
  Writer to;
  to.blob = kMagic;
  to.put(kVersion, 1);
  to.put(static_cast<std::uint8_t>(kind), 1);
  to.put(is_ethernet ? 1 : 0, 1);
  to.put(mtu, 1);
  to.put(reads, 1);
  to.put(queue_pair, 4);
  to.put(first_packet, 4);
  to.put(lid, 4);
  to.put(key, 4);
  for (const std::uint8_t byte : gid) to.put(byte, 1);
  to.put(memory, 8);
  to.put(memory_bytes, 8);
  to.put(stream, 8);
  to.put(request, 8);
  to.put(digest(to.blob), 8);
  CHECK(to.blob.size() == kBytes);
  return std::move(to.blob);
}

Result<Card, std::string> Card::read(const net::Blob& blob, Kind expected) {
  if (blob.size() <= kMagic.size() || !blob.starts_with(kMagic)) {
    return Failure{
        std::string{"this is nothing of a verbs transport; does the other side use another fabric?"}};
  }
  Reader from{blob};
  from.get(static_cast<int>(kMagic.size()));
  if (const std::uint64_t version = from.get(1); version != kVersion) {
    return Failure{fmt::format(
        "the other side's verbs transport has version {}, this one {}; use the same program", version,
        kVersion)};
  }
  if (blob.size() != kBytes)
    return Failure{fmt::format("damaged: {} bytes instead of {}", blob.size(), kBytes)};
  Reader end{blob};
  for (std::size_t i = 0; i < kDigestAt; ++i) end.get(1);
  if (end.get(8) != digest(std::string_view{blob}.substr(0, kDigestAt)))
    return Failure{std::string{"damaged on its way"}};

  Card card;
  card.kind = static_cast<Kind>(from.get(1));
  if (card.kind != expected)
    return Failure{fmt::format("this is {}, not {}", name(card.kind), name(expected))};
  const std::uint64_t ethernet = from.get(1);
  card.is_ethernet = ethernet == 1;
  card.mtu = static_cast<std::uint8_t>(from.get(1));
  card.reads = static_cast<std::uint8_t>(from.get(1));
  card.queue_pair = static_cast<std::uint32_t>(from.get(4));
  card.first_packet = static_cast<std::uint32_t>(from.get(4));
  const std::uint64_t lid = from.get(4);
  card.lid = static_cast<std::uint16_t>(lid);
  card.key = static_cast<std::uint32_t>(from.get(4));
  for (std::uint8_t& byte : card.gid) byte = static_cast<std::uint8_t>(from.get(1));
  card.memory = from.get(8);
  card.memory_bytes = from.get(8);
  card.stream = from.get(8);
  card.request = from.get(8);
  const char* what = ethernet > 1 ? "kind of link" : lid > 0xFFFF ? "local identifier" : wrong(card);
  if (what != nullptr) return Failure{fmt::format("{} has a {} that cannot be", name(expected), what)};
  return card;
}

}  // namespace declock::verbs
