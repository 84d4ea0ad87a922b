#include "explore/mutants.h"

#include <fmt/format.h>

#include <utility>

#include "cql/acquire.h"
#include "cql/at_once.h"
#include "cql/release.h"
#include "cql/reset.h"
#include "locks/cql_family.h"

namespace declock::explore {
namespace {

template <cql::Rules kRules>
std::unique_ptr<locks::LockFamily> make(std::uint32_t members, const LockShape& shape,
                                        cql::Options options, Memberships memberships) {
  return std::make_unique<locks::CqlFamily<kRules>>(members, shape, options, memberships);
}

template <std::size_t... kIndex>
auto makers(std::index_sequence<kIndex...>) {
  return std::array{&make<cql::kRuleInfos[kIndex].rules>...};
}

}  // namespace

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
  if (!rule) return make<cql::kAllRules>(members, shape, options, memberships);
  static const auto kMakers = makers(std::make_index_sequence<cql::kRuleInfos.size()>{});
  return kMakers[*rule](members, shape, options, memberships);
}

}  // namespace declock::explore
