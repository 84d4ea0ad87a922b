// A script of bench/paths.h in its parts, and how it is walked in the simulator.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "bench/micro.h"

namespace declock::bench {

inline constexpr std::uint32_t kClientsPerNode = 2;

struct Step {
  std::uint32_t client;
  char what;
  Duration at;  // since the start of the script, in the simulator
};

struct Script {
  std::string_view text;
  std::vector<Step> steps;
  std::vector<Duration> ends;  // of each counted step
  std::uint32_t nodes = 1;
};

Script parse(std::string_view text);

// Without anything that comes by chance.
MicroConfig config_for(Fabric fabric, std::string_view lock, std::uint32_t nodes);

// Adds to `done` if it went well.
Task<bool> take_step(Worker& worker, const Step& step, RemoteAddr addr, LockClient& lock, Hold& hold,
                     std::atomic<std::uint32_t>& done);

[[noreturn]] void did_not_end(Fabric fabric, std::string_view lock, std::string_view script,
                              std::uint32_t done);

// At the end of a counted step.
struct Simulated {
  OpCounts cost;       // of this one
  std::uint32_t done;  // steps, of all
};
std::vector<Simulated> walk_simulated(std::string_view lock, const Script& script);

}  // namespace declock::bench
