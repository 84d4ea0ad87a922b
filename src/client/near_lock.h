// A lock whose words lie in this process's memory, for whoever uses it again and again: its record stays.
#pragma once

#include <array>

#include "hier/hier.h"

namespace declock::client {

struct NearLock {
  LockRef lock;
  cql::Record& record;
  cql::WordsHere words;
  ShortLock& mutex;  // of the requests; all that follows is under it
  std::uint32_t untimed = 1;  // so many acquisitions until the next one that is timed
  struct Holds {
    std::uint32_t now = 0;       // so many clients hold it, with what the record knows as their hold
    std::uint32_t acquired = 0;  // in one step, and not counted by the recorder yet
    std::uint32_t released = 0;
    std::int64_t since_ns = 0;  // when the one of them that is timed got it; 0: none is
  };
  std::array<Holds, 2> by_mode{};

  Holds& in(Mode mode) { return by_mode[mode == Mode::exclusive ? 1 : 0]; }
};

}  // namespace declock::client
