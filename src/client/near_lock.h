// A lock whose words lie in this process's memory, for whoever uses it again and again: its record stays.
#pragma once

#include <array>

#include "hier/hier.h"

namespace declock::client {

struct NearLock {
  cql::Record& record;
  std::uint64_t& words;          // the header, and the slots behind it
  std::uint32_t mn_incarnation;  // of a memory node that never restarts
  // So many hold it since they acquired it at once, by mode, and are not timed: what they hold the record knows. Under the
  // mutex of the requests.
  std::array<std::uint32_t, 2> plain{};

  std::uint32_t& plain_in(Mode mode) { return plain[mode == Mode::exclusive ? 1 : 0]; }
  hier::WordHere word() const { return {std::atomic_ref{words}}; }
};

}  // namespace declock::client
