// What the words of a lock say, for a person. Pure: words in, text out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "layout/entry.h"
#include "layout/lock_shape.h"
#include "layout/timestamp.h"

namespace declock::looks {

// A lock as it was read, twice.
struct LockWords {
  std::string name;  // as a person calls it
  RemoteAddr at{};
  std::uint32_t members = 0;           // that the cluster admits: as many slots
  std::vector<std::uint64_t> queue{};  // the header and the slots; the read may be torn
  std::uint64_t wraps = 0;
  std::vector<std::uint64_t> before{};  // the queue as it was `apart` earlier; empty: not known
  Duration apart{};
  std::optional<Timestamp> now{};  // of a clock that goes with those of the members
};

enum class Standing : std::uint8_t { holds, waits, unknown };

// A place in the queue.
struct Request {
  Ticket ticket{};
  Standing standing = Standing::unknown;
  // Who holds at once writes no entry; who waits does, a moment after it is counted.
  std::optional<Slot> slot{};
  std::optional<Entry> entry{};
  std::optional<Mode> mode{};     // also where it follows from the counts
  std::optional<Duration> age{};  // since it asked
  bool is_older = false;          // than `age`, which is as far as can be told
};

struct StaleEntry {
  Slot slot{};
  Entry entry{};
};

struct LockState {
  Header header{};
  std::vector<Request> queue{};     // in order of tickets
  std::vector<StaleEntry> stale{};  // of requests that came and went
  std::optional<Slot> claimant{};   // who resets it
  bool is_sound = true;             // false: no lock has such a header
};

// REQUIRES: words.queue has the header and words.members slots.
LockState decode(const LockWords& words);
// One line: free, held by whom, waited for by how many.
std::string headline(const LockState& state);
// All of it, in lines.
std::string describe(const LockWords& words);

std::string to_text(RemoteAddr at);

}  // namespace declock::looks
