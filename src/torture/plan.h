// What a seed means: a cluster, a workload, and the faults that befall it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "base/time.h"
#include "hier/policy.h"

namespace declock::torture {

enum class FaultKind : std::uint8_t {
  crash,            // a compute node dies
  pause,            // a compute node stops, and goes on later as if nothing had been
  cut_coordinator,  // a compute node and the coordinator do not reach each other
  cut_memory,       // nor a compute node and a memory node
  cut_compute,      // nor two compute nodes
  cut_all,          // a compute node reaches nobody
  heal,             // all of these end
  restart_memory,   // a memory node restarts, with zeroes or with garbage in its memory
  join,             // a compute node comes, in the place of one that died or anew
  spurious_reset,   // somebody resets a lock for nothing
  // Drawn apart from those above, so that the seeds without them mean what they always meant.
  restart_coordinator,  // it is away for a while, and forgets nothing
  leave,                // a compute node's clients end what they are at, then it leaves
  close,                // a compute node ends as it is, with locks held and waited for, and says so
  break_connection,     // between two compute nodes: what is under way comes late, once and in order
};
inline constexpr std::uint64_t kFaultKinds = 14;
std::string_view to_string(FaultKind kind);

struct Fault {
  Time at;
  FaultKind kind;
  std::uint32_t node = 0;  // compute node; for restart_memory the memory node
  std::uint32_t other = 0;
  Duration lasts{};  // pause, restart, broken connection
};

struct Plan {
  std::uint64_t seed = 1;
  std::uint32_t nodes = 3;
  std::uint32_t nodes_max = 4;  // slots
  std::uint32_t visitors = 0;   // compute nodes beyond those, which come all at once and go again
  std::uint32_t clients = 2;    // per node
  std::uint32_t workers = 1;    // per node
  std::uint32_t mns = 1;
  std::uint32_t locks = 2;
  hier::Policy policy{};
  double read_ratio = 0.5;
  bool piggyback = false;
  bool at_once = false;  // in memory that all share: clients lock and unlock in one step where they can
  bool old_claim = false;  // locks start with a reset that somebody claimed four incarnations ago (H18)
  bool near_wrap = false;  // locks start shortly before their tickets do so again
  Duration lease = milliseconds(4);
  Duration patience = milliseconds(1);
  std::uint64_t delayed_one_in = 0;
  std::uint64_t unknown_one_in = 0;
  Duration duration = milliseconds(40);  // of the faults
  std::vector<Fault> faults;
};

Plan draw_plan(std::uint64_t seed);
// The same in shared memory, which does not restart, and to which no connection breaks.
Plan in_shared_memory(Plan plan);
std::string describe(const Plan& plan);

}  // namespace declock::torture
