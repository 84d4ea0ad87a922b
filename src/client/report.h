// What a process tells the others of its locks, for `declock top`: once a second each member writes a report into its
// place of a board, memory of memory node 0 that has a name. All words, so that it can be written and read as it is.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "declock/stats.h"

namespace declock::client {

inline constexpr std::string_view kBoardName = "declock/board";

// A lock that this process used much of late.
struct HotLock {
  static constexpr std::size_t kLabelBytes = 48;

  std::uint64_t lock = 0;      // RemoteAddr::packed()
  std::uint64_t acquired = 0;  // of late, about: since it is watched
  std::uint64_t waited = 0;    // of these, had to wait
  std::uint64_t wait_ns = 0;   // in all
  std::uint64_t held = 0;      // holds that were timed
  std::uint64_t hold_ns = 0;   // in all
  std::array<char, kLabelBytes>
      label{};  // "orders/42", "orders[17]", "mn0+0x1000"; cut off, zeros behind

  std::string name() const { return {label.data(), strnlen(label.data(), label.size())}; }
};

struct Report {
  static constexpr std::uint64_t kFormat = 0x4465634c'00000001;
  static constexpr std::size_t kHotLocks = 16;

  std::uint64_t format = 0;    // kFormat, or nobody has written here yet
  std::uint64_t sequence = 0;  // the same at both ends: not torn
  std::uint64_t pid = 0;
  std::uint64_t incarnation = 0;  // of the member: a report of somebody who is gone has another
  std::uint64_t at_ns = 0;        // its own monotonic clock
  std::uint64_t acquired_shared = 0;
  std::uint64_t acquired_exclusive = 0;
  std::uint64_t given_up = 0;  // busy, timed out, cancelled
  std::uint64_t failed = 0;
  std::uint64_t hand_overs_local = 0;
  std::uint64_t hand_overs_remote = 0;
  std::uint64_t resets = 0;
  std::uint64_t aborted = 0;
  std::uint64_t operations = 0;  // on memory nodes
  std::uint64_t messages = 0;
  std::uint64_t view = 0;
  std::uint64_t members = 0;
  std::uint64_t removals = 0;
  std::uint64_t waiting = 0;  // clients of this process that wait now
  std::uint64_t holding = 0;  // locks that they hold now
  Latency wait{};
  Latency hold{};
  std::array<HotLock, kHotLocks> hot{};  // hottest first; lock 0 and acquired 0: none
  std::uint64_t sequence_again = 0;

  bool is_whole() const { return format == kFormat && sequence == sequence_again; }
};
static_assert(sizeof(Report) % 8 == 0);
static_assert(std::is_trivially_copyable_v<Report>);

}  // namespace declock::client
