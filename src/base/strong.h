// Strong integers: a function never takes two bare numbers that can be swapped.
#pragma once

#include <compare>
#include <cstdint>

namespace declock {

template <class Tag, class Rep>
struct Strong {
  Rep value{};

  constexpr Strong() = default;
  constexpr explicit Strong(Rep v) : value(v) {}
  constexpr auto operator<=>(const Strong&) const = default;
};

}  // namespace declock
