// What a lock protects, as it travels with the lock: the value that its last writer left, so that the next holder needs no READ.
// Only small objects do, and only those that are written with the release of the lock (ours, for the token lock).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "fabric/fabric.h"

namespace declock::cql {

struct Carried {
  static constexpr std::size_t kWordsMax = 16;

  RemoteAddr addr{};
  std::uint32_t size = 0;  // in words; 0: nothing is known
  std::array<std::uint64_t, kWordsMax> words;

  std::span<const std::uint64_t> value() const { return {words.data(), size}; }

  // Is this the object that `read` asks for?
  bool is(const Op* read) const {
    return size > 0 && read != nullptr && read->addr == addr && read->into.size() == size;
  }
  // May this WRITE of the object be followed by another, instead of being made?
  bool may_stand_for(const Op& write) const {
    return size > 0 && write.addr == addr && write.from.size() == size;
  }
  void note(RemoteAddr at, std::span<const std::uint64_t> now) {
    addr = at;
    size = now.size() <= kWordsMax ? static_cast<std::uint32_t>(now.size()) : 0;
    std::copy_n(now.begin(), size, words.begin());
  }
  void forget() { size = 0; }
  void fill(const Op& read) const { std::copy_n(words.begin(), size, read.into.begin()); }

  // At the end of a message, from this word on. Nothing if nothing is known.
  void append_to(Message& message) const {
    if (size == 0) return;
    message.words.push_back(addr.packed());
    for (const std::uint64_t word : value()) message.words.push_back(word);
  }
  static Carried at_end_of(const Message& message, std::size_t from) {
    Carried carried;
    if (message.words.size() <= from + 1) return carried;
    carried.note(RemoteAddr::unpack(message.words[from]), message.words.used().subspan(from + 1));
    return carried;
  }
};

}  // namespace declock::cql
