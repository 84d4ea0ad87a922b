// The search: every state that a setup can reach, nearest first, so that the story of a violation is as
// short as it can be. A state is reached again by replaying the choices that led to it, from the start.
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
  std::uint64_t max_states = 50'000'000;
  const std::atomic<bool>* stop = nullptr;  // set from outside: end the search here
};

struct Finding {
  std::optional<Violation> violation;
  std::vector<sim::Choice> path;  // to the violation
  std::uint64_t states = 0;       // distinct
  bool complete = false;          // every state was visited; a violation ends the search before that
};

Finding search(const Setup& setup, const SearchLimits& limits,
               const std::function<void(std::uint64_t states, std::uint64_t waiting)>& progress);

// One line a step, in words.
std::vector<std::string> tell_story(const Setup& setup, const Finding& finding);

}  // namespace declock::explore
