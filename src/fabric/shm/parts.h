// What a slot of a mailbox carries, and how messages that are longer become whole again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fabric/message.h"
#include "layout/ids.h"

namespace declock::shm {

// As whom an endpoint sends.
struct Sender {
  Slot slot;
  std::uint16_t endpoint;  // of that member, counted from 0
  std::uint32_t incarnation;

  static constexpr std::uint32_t kIncarnationMask = 0xF'FFFF;
  constexpr bool operator==(const Sender&) const = default;
};

// A message, or some words of one that is too long for a slot.
struct Part {
  static constexpr std::size_t kWords = 6;

  EndpointId from;
  std::uint16_t size;   // of the message, in words
  std::uint16_t first;  // of its words, here; all are here that there is room for
  std::array<std::uint64_t, kWords> words;

  bool is_whole() const { return size <= kWords; }
  std::size_t count() const { return std::min<std::size_t>(kWords, size - first); }
  std::span<const std::uint64_t> used() const { return std::span{words}.first(count()); }
};

// A reader's, for one mailbox. The parts of a message come in their order (M3), and between them nothing else of their
// sender, but of others. What is incomplete may stay so: its sender was killed. It is dropped when whoever has that
// endpoint next sends something long. So there is at most one per endpoint, and none of them is ever joined with what
// another sender, or another incarnation of it, has sent.
class Parts {
 public:
  // The message, if that was the last of its parts.
  std::optional<Message> add(const Sender& sender, const Part& part) {
    auto at = std::find_if(incomplete_.begin(), incomplete_.end(), [&](const Incomplete& i) {
      return i.sender.slot == sender.slot && i.sender.endpoint == sender.endpoint;
    });
    if (part.first == 0) {
      if (at == incomplete_.end()) at = incomplete_.emplace(at);
      *at = {sender, {}};
    } else if (at == incomplete_.end() || at->sender != sender) {
      return {};  // somebody else had its beginning, or sent it
    }
    for (const std::uint64_t word : part.used()) at->message.words.push_back(word);
    if (at->message.words.size() < part.size) return {};
    std::optional<Message> whole = at->message;
    incomplete_.erase(at);
    return whole;
  }

 private:
  struct Incomplete {
    Sender sender;
    Message message;
  };
  std::vector<Incomplete> incomplete_;
};

}  // namespace declock::shm
