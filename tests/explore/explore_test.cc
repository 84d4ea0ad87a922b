// Every interleaving of small programs on the production code; and with each rule left out, the
// violation that the rule prevents.
#include <gtest/gtest.h>

#include "explore/search.h"

namespace declock::explore {
namespace {

Survey explore(const std::string& program, QueueLayout layout = QueueLayout::owner,
               LeftOut left_out = {}, SearchLimits limits = {}) {
  Scenario scenario;
  scenario.layout = layout;
  scenario.left_out = left_out;
  const auto programs = parse_programs(program);
  EXPECT_TRUE(programs);
  return search_all(scenario, *programs, limits, 1);
}

class Clean : public testing::TestWithParam<const char*> {};

TEST_P(Clean, UnderEveryInterleaving) {
  const Survey survey = explore(GetParam());
  EXPECT_TRUE(survey.last.complete);
  EXPECT_FALSE(survey.last.violation) << survey.last.violation->text;
}
INSTANTIATE_TEST_SUITE_P(Owner, Clean, testing::Values("xx;xx", "x;x;x", "xx;x;x"));

#ifdef NDEBUG
INSTANTIATE_TEST_SUITE_P(OwnerInRelease, Clean,
                         testing::Values("xxx;xxx", "w;r;rrrw", "ww;rr;r", "rw;rw;rw", "w;r;w;r"));
#endif

struct Mutant {
  const char* rule;
  const char* program;
};
void PrintTo(const Mutant& mutant, std::ostream* out) {
  *out << mutant.rule;
}

class LeftOutRule : public testing::TestWithParam<Mutant> {};

TEST_P(LeftOutRule, IsMissed) {
  const auto [name, program] = GetParam();
  const auto rule = find_rule(name);
  ASSERT_TRUE(rule);
  const Survey mutated = explore(program, QueueLayout::owner, *rule);
  EXPECT_TRUE(mutated.last.violation);
  const Survey whole = explore(program);
  EXPECT_TRUE(whole.last.complete && !whole.last.violation);
}
INSTANTIATE_TEST_SUITE_P(Rules, LeftOutRule,
                         testing::Values(Mutant{"H27", "w;r;r"}, Mutant{"H28", "w;r;r"},
                                         Mutant{"H29", "rw;w;r"}, Mutant{"writers-counted", "wr;r"},
                                         Mutant{"ticket-match", "wr;rr"}));
#ifdef NDEBUG
INSTANTIATE_TEST_SUITE_P(RulesInRelease, LeftOutRule, testing::Values(Mutant{"H2", "ww;rr;r"}));
#endif

TEST(Mutants, EveryRuleHasATest) {
  EXPECT_EQ(cql::kRuleInfos.size(), 6u) << "a rule without a test above proves nothing";
}

#ifdef NDEBUG
TEST(Ring, LosesAWaiter) {  // H1
  const Survey survey = explore("w;r;rrrw", QueueLayout::ring);
  ASSERT_TRUE(survey.last.violation);
  EXPECT_EQ(survey.last.violation->kind, Violation::Kind::hang);
  Scenario scenario;
  scenario.layout = QueueLayout::ring;
  scenario.program = parse_programs("w;r;rrrw")->front();
  std::string story;
  for (const std::string& line : tell_story(scenario, survey.last)) story += line + "\n";
  // The late WRITE of version 0 lands on the newer entry.
  EXPECT_NE(story.find("slot 1 held version 1 client 2 exclusive, now version 0 client 1 shared"),
            std::string::npos)
      << story;
}
#endif

TEST(Ring, IsCleanWhereSlotsAreNotReused) {
  EXPECT_FALSE(explore("x;x", QueueLayout::ring).last.violation);
}

TEST(Search, FindsTheSameStatesEachTime) {
  const Survey first = explore("w;r;w");
  const Survey second = explore("w;r;w");
  EXPECT_EQ(first.states, second.states);
  EXPECT_GT(first.states, 1000u);
}

TEST(Search, SaysThatItDidNotReachTheEnd) {
  const Survey survey = explore("w;r;w", QueueLayout::owner, {}, {.max_states = 100});
  EXPECT_FALSE(survey.last.complete);
  EXPECT_FALSE(survey.last.violation);
}

TEST(Search, StopsWhenTold) {
  const std::atomic<bool> stop{true};
  EXPECT_FALSE(explore("w;r;w", QueueLayout::owner, {}, {.stop = &stop}).last.complete);
}

TEST(Search, ThreadsMakeNoDifference) {
  Scenario scenario;
  scenario.left_out = *find_rule("H28");
  const auto programs = parse_programs("x;x;x");
  const Survey one = search_all(scenario, *programs, {}, 1);
  const Survey many = search_all(scenario, *programs, {}, 4);
  EXPECT_EQ(one.states, many.states);
  EXPECT_EQ(one.explored, many.explored);
  scenario.program = programs->at(one.explored - 1);
  EXPECT_EQ(tell_story(scenario, one.last), tell_story(scenario, many.last));
}

}  // namespace
}  // namespace declock::explore
