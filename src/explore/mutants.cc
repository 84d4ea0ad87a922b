#include "explore/mutants.h"

#include <fmt/format.h>

#include <utility>

#include "cql/acquire.h"
#include "cql/release.h"

namespace declock::explore {
namespace {

template <cql::Rules kRules>
std::unique_ptr<LockClient> make(Endpoint& endpoint, const LockShape& shape, cql::Membership self) {
  return std::make_unique<cql::CqlLock<kRules>>(endpoint, shape, self);
}

template <std::size_t... kIndex>
auto makers(std::index_sequence<kIndex...>) {
  return std::array{&make<cql::without(cql::kRuleInfos[kIndex].member)>...};
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

std::unique_ptr<LockClient> make_cql(LeftOut rule, Endpoint& endpoint, const LockShape& shape,
                                     cql::Membership self) {
  if (!rule) return make<cql::kAllRules>(endpoint, shape, self);
  static const auto kMakers = makers(std::make_index_sequence<cql::kRuleInfos.size()>{});
  return kMakers[*rule](endpoint, shape, self);
}

}  // namespace declock::explore
