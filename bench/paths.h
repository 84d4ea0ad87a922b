// What each path through a lock costs: a few clients follow a script, one step at a time, and the MN operations and
// messages of each step are counted. The same scripts run in the simulator and between processes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bench/micro.h"

namespace declock::bench {

// So many operations of each kind, some of them as often as a waiting client polls.
struct Cost {
  struct Ops {
    OpKind kind;
    std::uint32_t always = 0;
    std::uint32_t per_poll = 0;
  };
  std::vector<Ops> ops;
  std::uint64_t messages = 0;
  std::uint64_t polls_at_least = 1;  // where there are polls

  // "1 FAA + n READ, 1 message"
  std::string text() const;
  // With one number of polls for all kinds.
  bool matches(const OpCounts& counts) const;
  // It is more: that does not match, whatever else comes.
  bool exceeded_by(const OpCounts& counts) const;

 private:
  Ops of(OpKind kind) const;
};

// One path: what to do, and which of its steps is meant.
struct Path {
  std::string_view name;
  // Steps, one after the other when everything is at rest: a client's number and X (lock exclusively), S (lock shared),
  // U (unlock), P or Q (32,767 times lock, shared or exclusively, and unlock). "@N" behind a step: it starts N ns after the one before and
  // counts with it. Client i is on compute node i / 2.
  std::string_view script;
  std::size_t step;
  Cost cost;
};

struct LockPaths {
  std::string_view lock;
  std::vector<Path> paths;
};

// Those that are documented of each lock: of the peers from their authors' code, of DecLock from docs/PROTOCOL.md.
const std::vector<LockPaths>& lock_paths();

// Whether a path can be walked there: steps that start nanoseconds apart, or take thousands of tickets, need the simulator.
bool exists_on(Fabric fabric, std::string_view lock, const Path& path);

// What each step of a script costs in the simulator. Throws std::runtime_error if it does not come to its end.
std::vector<OpCounts> simulate(std::string_view lock, std::string_view script);

// The same for all scripts of a lock that can be walked there, by script. Between processes the next step begins when the
// last has cost what is documented of it, or has not done so for 10 s.
using Costs = std::map<std::string_view, std::vector<OpCounts>>;
Costs walk(Fabric fabric, const LockPaths& of_lock);
// In paths_real.cc.
Costs walk_real(Fabric fabric, const LockPaths& of_lock, const std::set<std::string_view>& scripts);

struct WalkedPath {
  std::string_view lock;
  const Path* path;
  std::map<Fabric, OpCounts> seen;

  bool agrees() const;
  // What was seen there. Between processes how often a client polls is a matter of chance: "n", if all is as documented.
  std::string text(Fabric fabric) const;
};

// All paths on each of these fabrics that has them. `progress` is told of each part, from 0 to 1. `documented` must outlive
// the result.
std::vector<WalkedPath> walk_all(const std::vector<Fabric>& fabrics,
                                 const std::function<void(double)>& progress = {},
                                 const std::vector<LockPaths>& documented = lock_paths());

std::string text(const OpCounts& counts);
std::string paths_table(const std::vector<WalkedPath>& walked, const std::vector<Fabric>& fabrics);
std::string paths_json(const std::vector<WalkedPath>& walked, std::string_view commit);

}  // namespace declock::bench
