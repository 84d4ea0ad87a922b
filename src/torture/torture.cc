#include "torture/torture.h"

#include <fmt/format.h>

#include "mutants/rule_infos.h"
#include "torture/world.h"

namespace declock::torture {
namespace {

constexpr std::array kClusterSwitches{
    Switch{"H4", "fence", "a member is removed although the memory nodes still let it in (H5 as well)"},
    Switch{"", "view-before-access", "a member has access before it is in the view"},
    Switch{"", "initialise", "a memory node serves what it finds in its memory"},
    Switch{"", "lateness", "a coordinator that was away takes its own absence for everybody's silence"},
};

}  // namespace

std::vector<Switch> switches() {
  std::vector<Switch> all(kClusterSwitches.begin(), kClusterSwitches.end());
  for (const mutants::RuleInfo& rule : mutants::kRuleInfos)
    all.push_back({rule.hazard, rule.name, rule.without});
  return all;
}

Result<LeftOut, std::string> find_switch(std::string_view name) {
  std::string accepted;
  const std::vector<Switch> all = switches();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (name == all[i].name || (!all[i].hazard.empty() && name == all[i].hazard)) return LeftOut{i};
    accepted += fmt::format("{}{}", i == 0 ? "" : ", ", all[i].name);
  }
  return Failure{fmt::format("'{}' is no rule that can be left out; accepted: {} (or its hazard id)",
                             name, accepted)};
}

Outcome run(const Plan& plan, LeftOut left_out) {
  ClusterRules cluster;
  cql::Rules protocol;
  if (left_out && *left_out < kClusterSwitches.size()) {
    const std::string_view name = kClusterSwitches[*left_out].name;
    cluster.fence = name != "fence";
    cluster.view_before_access = name != "view-before-access";
    cluster.initialise = name != "initialise";
    cluster.pardon_lateness = name != "lateness";
  } else if (left_out) {
    protocol = mutants::kRuleInfos[*left_out - kClusterSwitches.size()].rules;
  }
  return run_world(plan, cluster, protocol);
}

}  // namespace declock::torture
