// What may go wrong at any moment, on the production code; and with a rule left out, the harm that it does.
#include <gtest/gtest.h>

#include "explore/search.h"

namespace declock::explore {
namespace {

struct Failing {
  const char* program;
  Mishaps mishaps{};
  unsigned joins = 0;
  const char* lock = "cql";
  unsigned heirs = 0;
  bool at_once = false;
};
void PrintTo(const Failing& failing, std::ostream* out) {
  const Mishaps& m = failing.mishaps;
  *out << failing.lock << " " << failing.program << " faults " << m.faults << " resets " << m.resets
       << " breaks " << m.breaks << " restarts " << m.restarts << " losses " << m.losses << " repeats "
       << m.repeats << " joins " << failing.joins << " heirs " << failing.heirs
       << (failing.at_once ? " at once" : "");
}

Survey explore(const Failing& failing, const char* without = nullptr) {
  Scenario scenario;
  scenario.lock = failing.lock;
  scenario.mishaps = failing.mishaps;
  scenario.joins = failing.joins;
  scenario.heirs = failing.heirs;
  scenario.at_once = failing.at_once;
  if (without != nullptr) scenario.protocol = *leave_out(without);
  return search_all(scenario, *parse_programs(failing.program), {}, 1);
}

class CleanWhenFailing : public testing::TestWithParam<Failing> {};

TEST_P(CleanWhenFailing, UnderEveryInterleaving) {
  const Survey survey = explore(GetParam());
  EXPECT_TRUE(survey.last.complete);
  EXPECT_FALSE(survey.last.violation) << survey.last.violation->text;
}
INSTANTIATE_TEST_SUITE_P(Small, CleanWhenFailing,
                         testing::Values(Failing{"x;x", {.faults = 1}}, Failing{"r;w", {.breaks = 1}},
                                         Failing{"r+w;w", {.faults = 1}, 0, "declock-slack"}));

#ifdef NDEBUG
constexpr const char* kSlack = "declock-slack";
constexpr const char* kToken = "declock-token";

INSTANTIATE_TEST_SUITE_P(Flat, CleanWhenFailing,
                         testing::Values(Failing{"x;x", {.resets = 1}}, Failing{"x;x", {.breaks = 1}},
                                         Failing{"x;x", {.restarts = 1}}, Failing{"x;x", {.losses = 1}},
                                         Failing{"ww;ww", {.repeats = 1}},
                                         Failing{"w;w", {.resets = 1, .losses = 1}},
                                         Failing{"w;w;w;w", {}, 0, "cql", 2}));
INSTANTIATE_TEST_SUITE_P(OfComputeNodes, CleanWhenFailing,
                         testing::Values(Failing{"w+w;w", {.faults = 1}, 0, kSlack},
                                         Failing{"r+r;w", {.faults = 1}, 0, "declock-pf"},
                                         Failing{"w+w;w", {.resets = 1}, 0, kSlack},
                                         Failing{"w+w;w", {.breaks = 1}, 0, kSlack},
                                         Failing{"w+w;w", {.restarts = 1}, 0, kSlack},
                                         Failing{"x+x;x", {}, 1, kSlack},
                                         Failing{"w+w;w", {.losses = 1}, 0, kSlack},
                                         Failing{"w+w;w", {.repeats = 1}, 0, kSlack},
                                         Failing{"w;w;w", {}, 0, kSlack, 1}));
INSTANTIATE_TEST_SUITE_P(OfTheToken, CleanWhenFailing,
                         testing::Values(Failing{"w+w;w", {.faults = 1}, 0, kToken},
                                         Failing{"w;w", {.resets = 1}, 0, kToken},
                                         Failing{"w+w;w", {.breaks = 1}, 0, kToken},
                                         Failing{"w+w;w", {.losses = 1}, 0, kToken},
                                         Failing{"x+x;x", {.repeats = 1}, 0, kToken},
                                         Failing{"x+x;x", {}, 1, kToken},
                                         Failing{"x+x;x", {}, 0, kToken, 0, true}));
INSTANTIATE_TEST_SUITE_P(AtOnce, CleanWhenFailing,
                         testing::Values(Failing{"xx;xx", {}, 0, kSlack, 0, true},
                                         Failing{"x;x;x", {}, 0, kSlack, 0, true},
                                         Failing{"w;rw;r", {}, 0, kSlack, 0, true},  // H29
                                         Failing{"xx+x;x", {}, 0, kSlack, 0, true},
                                         Failing{"xx+x;x", {}, 0, "declock-pf", 0, true},
                                         Failing{"wW+e;x", {}, 0, kSlack, 0, true},
                                         Failing{"x;x", {.resets = 1}, 0, kSlack, 0, true},
                                         Failing{"x;x", {.losses = 1}, 0, kSlack, 0, true},
                                         Failing{"x;x", {.faults = 1}, 0, kSlack, 0, true},
                                         Failing{"w+w;w", {.faults = 1}, 0, kSlack, 0, true},
                                         Failing{"w;w", {.resets = 1}, 1, kSlack, 0, true}));

INSTANTIATE_TEST_SUITE_P(
    Soak, CleanWhenFailing,
    testing::Values(
        Failing{"xx;x", {.faults = 1}}, Failing{"r;w;r", {.faults = 1}},
        Failing{"w;w", {.resets = 1}, 1}, Failing{"xx;x", {.breaks = 1}},
        Failing{"x;x", {.resets = 1, .losses = 1}}, Failing{"x+x;x", {.faults = 1}, 0, kSlack},
        Failing{"x+x;x", {.resets = 1}, 0, kSlack}, Failing{"x+x;x", {.breaks = 1}, 0, kSlack},
        Failing{"w+r;x", {.restarts = 1}, 0, kSlack}, Failing{"x;x", {.resets = 1}, 1, kSlack},
        Failing{"x+x;x+x", {}, 0, kSlack, 0, true}, Failing{"w+w;w;x", {}, 0, kSlack, 0, true},
        Failing{"x+x;x", {.faults = 1}, 0, kSlack, 0, true},
        Failing{"w+w;w", {.resets = 1}, 0, kSlack, 0, true}, Failing{"x+x;x", {.resets = 1}, 0, kToken},
        Failing{"x+x;x", {.faults = 1}, 0, kToken}, Failing{"www+ww;rr+r", {.repeats = 1}, 0, kToken}));

// A rule, what it is missed by, and how.
struct Missed {
  const char* rule;
  Failing failing;
  Violation::Kind kind;
};
void PrintTo(const Missed& missed, std::ostream* out) {
  *out << missed.rule << ": ";
  PrintTo(missed.failing, out);
}

class WithoutARule : public testing::TestWithParam<Missed> {};

TEST_P(WithoutARule, FailuresDoHarm) {
  const auto& [rule, failing, kind] = GetParam();
  const Survey survey = explore(failing, rule);
  ASSERT_TRUE(survey.last.violation);
  EXPECT_EQ(survey.last.violation->kind, kind) << survey.last.violation->text;
}
using Kind = Violation::Kind;
INSTANTIATE_TEST_SUITE_P(
    Flat, WithoutARule,
    testing::Values(Missed{"fence", {"w;w", {.faults = 1}}, Kind::mutual_exclusion},
                    Missed{"answer-while-holding", {"w;w", {.resets = 1}}, Kind::mutual_exclusion},
                    Missed{"view-after-claim", {"w;w", {.resets = 1}, 1}, Kind::left_over},
                    Missed{"quiet", {"x;x", {.resets = 1}}, Kind::left_over},
                    Missed{"drain-self", {"w;w", {.resets = 1}}, Kind::mutual_exclusion},
                    Missed{"unknown-outcome", {"w;w", {.breaks = 1}}, Kind::hang},
                    Missed{"void-holds", {"ww;w", {.restarts = 1}}, Kind::mutual_exclusion},
                    Missed{"lost-grant", {"w;w", {.losses = 1}}, Kind::hang},
                    Missed{"ask-again", {"w;w", {.resets = 1, .losses = 1}}, Kind::hang},
                    Missed{"ticket-match", {"ww;ww", {.repeats = 1}}, Kind::mutual_exclusion},
                    Missed{"acknowledged-slots", {"w;w;w;w", {}, 0, "cql", 2}, Kind::hang}));
INSTANTIATE_TEST_SUITE_P(
    AtOnce, WithoutARule,
    testing::Values(Missed{"fence", {"w;w", {.faults = 1}, 0, kSlack, 0, true}, Kind::mutual_exclusion},
                    Missed{"sleep-by-swap", {"w;w", {}, 0, kSlack, 0, true}, Kind::hang},
                    Missed{"late-grant", {"w;w", {}, 0, kSlack, 0, true}, Kind::hang},
                    Missed{"at-once-owes", {"w;w", {}, 0, kSlack, 0, true}, Kind::hang},
                    Missed{"at-once-answers", {"w;w", {.resets = 1}, 0, kSlack, 0, true}, Kind::hang},
                    Missed{"lost-grant", {"w;w", {.losses = 1}, 0, kSlack, 0, true}, Kind::hang},
                    Missed{"answer-while-holding",
                           {"w+w;w", {.resets = 1}, 0, kSlack, 0, true},
                           Kind::mutual_exclusion}));
INSTANTIATE_TEST_SUITE_P(
    OfComputeNodes, WithoutARule,
    testing::Values(Missed{"fence", {"w+w;w", {.faults = 1}, 0, kSlack}, Kind::hang},
                    Missed{"answer-while-holding",
                           {"r+w;w", {.resets = 1}, 0, "declock-slack"},
                           Kind::mutual_exclusion},
                    Missed{"view-after-claim", {"w;w", {.resets = 1}, 1, kSlack}, Kind::left_over},
                    Missed{"unknown-outcome", {"w+w;w", {.breaks = 1}, 0, kSlack}, Kind::hang},
                    Missed{
                        "void-holds", {"w+w;w", {.restarts = 1}, 0, kSlack}, Kind::mutual_exclusion}));
INSTANTIATE_TEST_SUITE_P(
    OfTheToken, WithoutARule,
    testing::Values(
        Missed{"hop-match", {"www+ww;rr+r", {.repeats = 1}, 0, kToken}, Kind::mutual_exclusion},
        Missed{"hop-match", {"www+ww;ww+ww", {.repeats = 1}, 0, kToken}, Kind::mutual_exclusion}));
// The rule of the slots is enough: it does not need a waiter to ask for its lost grant.
TEST(Heirs, OfAcknowledgedSlotsLoseNoGrant) {
  const Survey survey = explore({"w;w;w;w", {}, 0, "cql", 2}, "lost-grant");
  EXPECT_TRUE(survey.last.complete);
  EXPECT_FALSE(survey.last.violation) << survey.last.violation->text;
}
#endif

}  // namespace
}  // namespace declock::explore
