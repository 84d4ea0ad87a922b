#include "explore/mutants.h"

#include <fmt/format.h>

#include "locks/cql_family.h"

namespace declock::explore {
Result<LeftOut, std::string> find_rule(std::string_view name) {
  std::string accepted;
  for (std::size_t i = 0; i < cql::kRuleInfos.size(); ++i) {
    const cql::RuleInfo& rule = cql::kRuleInfos[i];
    if (name == rule.name || (!rule.hazard.empty() && name == rule.hazard)) return LeftOut{i};
    accepted += fmt::format("{}{}", i == 0 ? "" : ", ", rule.name);
  }
  return Failure{fmt::format("'{}' is no rule that can be left out; accepted: {} (or its hazard id)",
                             name, accepted)};
}

std::unique_ptr<locks::LockFamily> make_cql_family(LeftOut rule, std::uint32_t members,
                                                   const LockShape& shape, cql::Options options,
                                                   Memberships memberships) {
  if (rule) options.rules = cql::kRuleInfos[*rule].rules;
  return std::make_unique<locks::CqlFamily>(members, shape, options, memberships);
}

}  // namespace declock::explore
