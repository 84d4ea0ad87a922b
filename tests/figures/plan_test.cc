// What is compared beyond the paper.
#include "figures/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "figures/sensitivity.h"

namespace declock::bench::figures {
namespace {

MicroConfig config_with(const Sweep& sweep, double x) {
  const auto at = std::find_if(sweep.begin(), sweep.end(), [&](const Setting& s) { return s.x == x; });
  EXPECT_NE(at, sweep.end()) << x;
  return at == sweep.end() ? MicroConfig{} : at->config;
}

TEST(Beyond, HasACurveForOurTokenLockAndForBothIdealsInEveryPanel) {
  const Plan plan = make_plan({}, {"beyond"});
  std::set<std::string> panels;
  for (const Panel& panel : plan.panels) {
    panels.insert(panel.id);
    for (const Contestant& contestant : beyond()) {
      EXPECT_TRUE(std::any_of(panel.series.begin(), panel.series.end(),
                              [&](const Series& series) { return series.label == contestant.label; }))
          << panel.id << " has no " << contestant.label;
    }
  }
  for (const char* over : {"section", "reads", "skew", "locks", "slow", "clients", "cns"}) {
    for (const char* metric : {"throughput", "p99"})
      EXPECT_TRUE(panels.contains(fmt::format("beyond-{}-{}", over, metric))) << over;
  }
  std::set<std::string> locks;
  for (const Contestant& contestant : beyond()) locks.insert(contestant.lock);
  for (const std::string& lock : {kTokenLock, std::string{"ideal-group"}, std::string{"ideal"}})
    EXPECT_TRUE(locks.contains(lock)) << lock;
}

TEST(Beyond, MessagesAreSlowerWhereItSaysSo) {
  EXPECT_EQ(config_with(slow_reads_sweep({}), 50).cn_latency, 4);
  EXPECT_EQ(config_with(reads_sweep({}), 50).cn_latency, 1);
}

TEST(Sensitivity, IsAskedOfOurTokenLockBesideShiftLock) {
  std::set<std::string> values;
  for (const Conclusion& conclusion : conclusions()) {
    if (conclusion.better.lock == kTokenLock && conclusion.worse.lock == "shiftlock" &&
        conclusion.name.starts_with("token"))
      values.insert(conclusion.value);
  }
  EXPECT_EQ(values, (std::set<std::string>{"/throughput_mops", "/latency_us/op/p99"}));
}

}  // namespace
}  // namespace declock::bench::figures
