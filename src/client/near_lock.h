// A lock whose words lie in this process's memory, for whoever uses it again and again: its record stays.
#pragma once

#include <array>

#include "hier/hier.h"

namespace declock::client {

struct NearLock {
  LockRef lock;
  cql::Record& record;
  cql::WordsHere words;
  std::uint32_t mn_incarnation;  // of a memory node that never restarts
  // Under the mutex of the requests, by mode: so many clients hold it, with what the record knows as their hold.
  struct Holds {
    std::uint32_t now = 0;
    std::int64_t since_ns = 0;  // when the one of them that is timed got it; 0: none is
    // What the recorder has not been told of yet.
    std::uint32_t acquired = 0;
    std::uint32_t released = 0;
  };
  std::array<Holds, 2> by_mode{};

  Holds& in(Mode mode) { return by_mode[mode == Mode::exclusive ? 1 : 0]; }
};

}  // namespace declock::client
