// Runs of the protocol with one rule left out. Each is an instantiation of everything, so they are spread over
// several files.
#pragma once

#include <array>
#include <utility>

#include "torture/world.h"

namespace declock::torture {

extern template class World<cql::kAllRules>;

using Runner = Outcome (*)(const Plan&);

template <cql::Rules kRules>
Outcome run_without(const Plan& plan) {
  return World<kRules>{plan, {}}.run();
}

inline constexpr std::size_t kRunnersPerFile = 7;

template <std::size_t kFirst, std::size_t... kIndex>
constexpr std::array<Runner, sizeof...(kIndex)> runners(std::index_sequence<kIndex...>) {
  return {&run_without<cql::kRuleInfos[kFirst + kIndex].rules>...};
}

// By the rule's place in cql::kRuleInfos; null in a build without them.
Runner runner(std::size_t rule);
Runner runner_0(std::size_t i);
Runner runner_1(std::size_t i);
Runner runner_2(std::size_t i);

}  // namespace declock::torture
