// The search: every state that a scenario can reach, nearest first, so that the story of a violation is
// as short as it can be. A state is reached again by replaying the choices that led to it, from the
// start.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "explore/world.h"

namespace declock::explore {

struct SearchLimits {
  std::uint64_t max_states = 100'000'000;   // per program
  const std::atomic<bool>* stop = nullptr;  // set from outside: end the search here
};

struct Finding {
  std::optional<Violation> violation;
  std::vector<sim::Choice> path;  // to the violation
  std::uint64_t states = 0;       // distinct
  bool complete = false;          // every state was visited; a violation ends the search before that
};

using Progress = std::function<void(std::uint64_t states)>;  // called now and then

Finding search(const Scenario& scenario, const SearchLimits& limits, const Progress& progress = {});

// One line a step, in words. REQUIRES: finding.violation.
std::vector<std::string> tell_story(const Scenario& scenario, const Finding& finding);

// Several programs, on several threads. Ends with the first, in their order, whose finding is a
// violation or incomplete; the result does not depend on the threads.
struct Survey {
  std::uint64_t states = 0;  // of all programs that count
  std::size_t explored = 0;  // how many those are
  Finding last;              // of the last of them: the violation, if there is one
};

Survey search_all(const Scenario& scenario, const std::vector<Program>& programs,
                  const SearchLimits& limits, unsigned threads, const Progress& progress = {});

}  // namespace declock::explore
