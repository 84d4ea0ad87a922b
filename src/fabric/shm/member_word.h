// Who has a member slot, in one word: joining, leaving and being removed are one swap each, so that nobody can be
// killed half-way. All counts of a view follow from these words.
#pragma once

#include <cstdint>

#include "layout/ids.h"

namespace declock::shm {

//   bits 0..31   incarnation: how often the slot was given to somebody
//   bits 32..62  removals: how many of those died
//   bit  63      live: the last of them is a member
struct MemberWord {
  std::uint32_t incarnation = 0;
  std::uint32_t removals = 0;
  bool live = false;

  static constexpr MemberWord of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32 & 0x7FFF'FFFF),
            word >> 63 != 0};
  }
  constexpr std::uint64_t word() const {
    return std::uint64_t{incarnation} | std::uint64_t{removals} << 32 | std::uint64_t{live} << 63;
  }

  // REQUIRES: !live.
  constexpr MemberWord joined() const { return {incarnation + 1, removals, true}; }
  // REQUIRES: live.
  constexpr MemberWord left() const { return {incarnation, removals, false}; }
  constexpr MemberWord removed() const { return {incarnation, removals + 1, false}; }
  // Of this slot's joins, leaves and removals: what a view's number grows by.
  constexpr std::uint64_t changes() const { return std::uint64_t{incarnation} * 2 - (live ? 1 : 0); }
};
static_assert(MemberWord::of(MemberWord{7, 3, true}.word()).removed().word() ==
              MemberWord{7, 4, false}.word());
static_assert(MemberWord{}.word() == 0 && MemberWord{}.joined().changes() == 1);

}  // namespace declock::shm
