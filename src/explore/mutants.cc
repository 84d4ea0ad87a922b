#include "explore/mutants.h"

#include <fmt/format.h>

namespace declock::explore {

Result<Protocol, std::string> leave_out(std::string_view name) {
  const auto is_meant = [&](const auto& rule) {
    return name == rule.name || (!rule.hazard.empty() && name == rule.hazard);
  };
  std::string accepted;
  for (const mutants::RuleInfo& rule : mutants::kRuleInfos) {
    if (is_meant(rule)) return Protocol{.rules = rule.rules};
    accepted += fmt::format("{}, ", rule.name);
  }
  for (const ExploredRule& rule : kExploredRules) {
    if (is_meant(rule)) return rule.protocol;
    accepted += fmt::format("{}, ", rule.name);
  }
  return Failure{fmt::format("'{}' is no rule that can be left out; accepted: {}or its hazard id", name,
                             accepted)};
}

}  // namespace declock::explore
