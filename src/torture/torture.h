// Random faults by seed: safety while they happen, then healing, then liveness. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "declock/result.h"
#include "torture/plan.h"

namespace declock::torture {

// A rule that can be left out: of the protocol (cql/rules.h), or of the cluster around it.
struct Switch {
  std::string_view hazard;
  std::string_view name;
  std::string_view without;
};
std::vector<Switch> switches();

// Which rule, by its place among switches(); nothing: the production code.
using LeftOut = std::optional<std::size_t>;
// Takes a hazard's id ("H4") or a rule's name ("fence").
Result<LeftOut, std::string> find_switch(std::string_view name);

struct Outcome {
  enum class Kind : std::uint8_t { clean, safety, liveness } kind = Kind::clean;
  std::string text;
  std::vector<std::string> story;  // the last of what happened
  std::uint64_t trace_hash = 0;
  std::uint64_t sections = 0;  // critical sections
  std::uint64_t resets = 0;
  std::uint64_t evictions = 0;
};

Outcome run(const Plan& plan, LeftOut left_out = {});

}  // namespace declock::torture
