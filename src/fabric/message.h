// A message between endpoints: a few words, and copied. What they mean is between sender and receiver.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "base/check.h"

namespace declock {

// Up to kMax words in place. A copy costs no more than the words in use.
class MessageWords {
 public:
  static constexpr std::size_t kMax = 128;

  MessageWords() = default;
  MessageWords(std::initializer_list<std::uint64_t> words) {
    for (const std::uint64_t word : words) push_back(word);
  }
  explicit MessageWords(std::span<const std::uint64_t> words) : size_(words.size()) {
    CHECK(size_ <= kMax);
    std::copy(words.begin(), words.end(), words_.begin());
  }
  MessageWords(const MessageWords& other) : MessageWords(other.used()) {}
  MessageWords& operator=(const MessageWords& other) {
    if (this == &other) return *this;
    size_ = other.size_;
    std::copy(other.begin(), other.end(), words_.begin());
    return *this;
  }

  void push_back(std::uint64_t word) {
    CHECK(size_ < kMax);
    words_[size_++] = word;
  }
  std::size_t size() const { return size_; }
  std::span<const std::uint64_t> used() const { return {words_.data(), size_}; }
  const std::uint64_t* begin() const { return words_.data(); }
  const std::uint64_t* end() const { return words_.data() + size_; }
  // 0 behind the last: whoever sent it may have sent fewer words than the receiver looks at.
  constexpr std::uint64_t operator[](std::size_t i) const { return i < size_ ? words_[i] : 0; }

 private:
  std::size_t size_ = 0;
  std::array<std::uint64_t, kMax> words_;  // those in use; the rest is not initialised
};

struct Message {
  MessageWords words{};
};

}  // namespace declock
