// Random faults: production code survives them, and without any single rule some seed shows why it is there.
#include "torture/torture.h"

#include <gtest/gtest.h>

namespace declock::torture {
namespace {

#ifdef NDEBUG
constexpr std::uint64_t kSeeds = 2000;
#else
constexpr std::uint64_t kSeeds = 60;
#endif

Plan as_drawn(Plan plan) {
  return plan;
}

void expect_clean(std::uint64_t first, std::uint64_t last, Plan (*where)(Plan) = as_drawn) {
  std::uint64_t resets = 0;
  std::uint64_t evictions = 0;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const Outcome outcome = run(where(draw_plan(seed)));
    ASSERT_EQ(outcome.kind, Outcome::Kind::clean) << "seed " << seed << ": " << outcome.text;
    resets += outcome.resets;
    evictions += outcome.evictions;
  }
  EXPECT_GT(resets, last - first) << "or nothing was tortured";
  EXPECT_GT(evictions, (last - first) / 4);
}

TEST(Torture, EverySeedIsClean) {
  expect_clean(1, kSeeds);
}
TEST(Torture, EverySeedIsCleanInSharedMemory) {
  expect_clean(1, kSeeds, in_shared_memory);
}

// A hundred thousand seeds, in parts that can run at the same time.
class TortureSoak : public testing::TestWithParam<std::uint64_t> {};
TEST_P(TortureSoak, EverySeedIsClean) {
  constexpr std::uint64_t kPart = 12'500;
  expect_clean(GetParam() * kPart + 1, (GetParam() + 1) * kPart);
}
TEST_P(TortureSoak, EverySeedIsCleanInSharedMemory) {
  constexpr std::uint64_t kPart = 12'500;
  expect_clean(GetParam() * kPart + 1, (GetParam() + 1) * kPart, in_shared_memory);
}
INSTANTIATE_TEST_SUITE_P(Parts, TortureSoak, testing::Range<std::uint64_t>(0, 8));

TEST(Torture, TheSameSeedGivesTheSameRun) {
  for (const std::uint64_t seed : {3u, 7u}) {
    EXPECT_EQ(run(draw_plan(seed)).trace_hash, run(draw_plan(seed)).trace_hash);
  }
}

// A rule, and the first seed that misses it (docs/PROTOCOL.md); of the token's rules, the first of those with that policy. H8 is
// missed only where clients keep coming for ever: Regress.AResetEndsAlthoughLocalClientsKeepComing. H40 to H42
// and H44 are missed in tests/explore.
struct Missed {
  const char* rule;
  std::uint64_t seed;
  Outcome::Kind kind;
  std::optional<hier::PolicyKind> policy{};
};
constexpr auto kToken = hier::PolicyKind::token;

TEST(Torture, EveryRuleIsMissed) {
  const Missed table[] = {
#include "torture/first_seeds.inc"
  };
  EXPECT_EQ(std::size(table) + 6, switches().size());
  for (const auto& [rule, seed, kind, policy] : table) {
    const auto found = find_switch(rule);
    ASSERT_TRUE(found) << rule;
    Plan plan = draw_plan(seed);
    plan.policy.kind = policy.value_or(plan.policy.kind);
    EXPECT_EQ(run(plan, *found).kind, kind) << rule << ", seed " << seed;
    EXPECT_EQ(run(plan).kind, Outcome::Kind::clean) << rule << ", seed " << seed;
  }
}

TEST(Torture, NamesOfRulesAreHazardsOrNames) {
  EXPECT_TRUE(find_switch("H4"));
  EXPECT_TRUE(find_switch("drain-self"));
  const auto wrong = find_switch("H99");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().find("fence"), std::string::npos);
}

}  // namespace
}  // namespace declock::torture
