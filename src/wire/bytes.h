// Numbers and strings as bytes of a message: little endian, on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/check.h"

namespace declock::wire {

// Appends to a string, which has to outlive it.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  Writer& u8(std::uint8_t value) { return number(value); }
  Writer& u16(std::uint16_t value) { return number(value); }
  Writer& u32(std::uint32_t value) { return number(value); }
  Writer& u64(std::uint64_t value) { return number(value); }
  // As they are; the reader has to know how many.
  Writer& bytes(std::string_view value) {
    out_.append(value);
    return *this;
  }
  // With its length before it. REQUIRES: at most 65,535 bytes.
  Writer& string(std::string_view value) {
    CHECK(value.size() <= std::numeric_limits<std::uint16_t>::max());
    return u16(static_cast<std::uint16_t>(value.size())).bytes(value);
  }

 private:
  template <class T>
  Writer& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<char>(static_cast<std::uint8_t>(value >> (8 * i))));
    }
    return *this;
  }

  std::string& out_;
};

// Reads what a stranger may have written: where something is missing or too long it returns zero or nothing, then and
// ever after, and ok() is false. So a message is read as a whole and judged once, by done().
class Reader {
 public:
  // The bytes have to outlive it.
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

  std::uint8_t u8() { return number<std::uint8_t>(); }
  std::uint16_t u16() { return number<std::uint16_t>(); }
  std::uint32_t u32() { return number<std::uint32_t>(); }
  std::uint64_t u64() { return number<std::uint64_t>(); }
  // A part of the bytes that are read.
  std::string_view bytes(std::size_t count) {
    if (!ok_ || count > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view value = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return value;
  }
  std::string string(std::size_t max) {
    const std::size_t size = u16();
    if (size > max) ok_ = false;
    return std::string{bytes(size)};
  }

 private:
  template <class T>
  T number() {
    const std::string_view value = bytes(sizeof(T));
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < value.size(); ++i) {
      sum |= std::uint64_t{static_cast<std::uint8_t>(value[i])} << (8 * i);
    }
    return static_cast<T>(sum);
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace declock::wire
