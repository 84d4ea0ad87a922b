// Structures as bytes, and back: each says once, in fields(), what it consists of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/time.h"
#include "declock/lock_ref.h"
#include "wire/bytes.h"

namespace declock::member {

// Nothing that a peer sends has more elements than this.
inline constexpr std::size_t kElementsMax = 4096;
inline constexpr std::size_t kStringMax = 2048;

class ToBytes {
 public:
  explicit ToBytes(std::string& out) : writer_(out) {}

  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      writer_.u8(value ? 1 : 0);
    } else if constexpr (std::is_enum_v<T>) {
      writer_.u8(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_integral_v<T>) {
      writer_.u64(static_cast<std::uint64_t>(value));
    } else if constexpr (requires { value.ns; }) {
      writer_.u64(static_cast<std::uint64_t>(value.ns));
    } else if constexpr (requires { value.value; }) {
      writer_.u64(value.value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      writer_.string(value);
    } else if constexpr (requires { value.begin(); }) {
      writer_.u16(static_cast<std::uint16_t>(value.size()));
      for (const auto& element : value) put(element);
    } else {
      const_cast<T&>(value).fields(*this);
    }
  }

  wire::Writer writer_;
};

// Whatever the bytes are, the result is a structure in range, or ok() is false.
class FromBytes {
 public:
  explicit FromBytes(std::string_view bytes) : reader_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  bool done() const { return ok_ && reader_.done(); }

 private:
  template <class T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = number(1) != 0;
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(wide(static_cast<std::uint64_t>(std::numeric_limits<T>::max())));
    } else if constexpr (requires { value.ns; }) {
      value.ns = static_cast<std::int64_t>(wide(std::uint64_t{1} << 62));
    } else if constexpr (requires { value.value; }) {
      using Number = decltype(value.value);
      value.value = static_cast<Number>(wide(std::numeric_limits<Number>::max()));
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = reader_.string(kStringMax);
    } else if constexpr (requires { value.begin(); }) {
      const std::size_t count = reader_.u16();
      if (count > kElementsMax) ok_ = false;
      value.clear();
      for (std::size_t i = 0; i < count && ok_ && reader_.ok(); ++i) {
        value.emplace_back();
        get(value.back());
      }
    } else {
      value.fields(*this);
    }
  }
  std::uint64_t number(std::uint8_t max) { return in_range(reader_.u8(), max); }
  std::uint64_t wide(std::uint64_t max) { return in_range(reader_.u64(), max); }
  std::uint64_t in_range(std::uint64_t value, std::uint64_t max) {
    if (value > max) ok_ = false;
    return value > max ? 0 : value;
  }

  wire::Reader reader_;
  bool ok_ = true;
};

}  // namespace declock::member
