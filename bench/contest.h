// One lock and those who use it, in processes of this machine and threads of theirs: what a lock and an unlock cost, and
// who comes first. DecLock stands beside the locks that a machine's processes and threads use otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace declock::bench {

struct Contest {
  std::string lock;  // of contest_locks()
  std::uint32_t processes = 1;
  std::uint32_t threads = 1;  // of each process
  double read_ratio = 0;
  Duration duration = milliseconds(100);
  std::uint64_t seed = 1;
  bool watched = false;  // counts overtakes, and that takes time
  std::string uri{};  // of the cluster that SharedMutex is in; empty: one of its own in shared memory
};

struct ContestResult {
  double mops = 0;                       // lock + unlock, of all together
  std::optional<double> instructions{};  // per lock + unlock, where the kernel counts them
  double overtakes =
      0;  // per acquisition: conflicting requests that had been made before it, and waited on
  std::uint64_t overtakes_max = 0;
  std::uint64_t lost_updates = 0;

  double ns() const { return 1e3 / mops; }
};

// The library's lock, those of the system, and DecLock's protocols without the library.
const std::vector<std::string>& contest_locks();
// Some locks have no processes, others no threads.
bool can_take_part(const Contest& contest);

// REQUIRES: can_take_part(contest), and this process has no other thread. Calls `progress` now and then; what it throws
// ends the contest. Throws std::runtime_error.
ContestResult run_contest(const Contest& contest, const std::function<void()>& progress);

}  // namespace declock::bench
