// Every interleaving of small programs on the production code; and with each rule left out, the
// violation that the rule prevents.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "explore/search.h"

namespace declock::explore {
namespace {

Survey explore(const std::string& program, QueueLayout layout = QueueLayout::owner,
               const Protocol& protocol = {}, SearchLimits limits = {}, const char* lock = "cql") {
  Scenario scenario;
  scenario.lock = lock;
  scenario.layout = layout;
  scenario.protocol = protocol;
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
INSTANTIATE_TEST_SUITE_P(Owner, Clean, testing::Values("xx;xx", "x;x;x"));

#ifdef NDEBUG
INSTANTIATE_TEST_SUITE_P(OwnerInRelease, Clean,
                         testing::Values("xx;x;x", "xxx;xxx", "w;r;rrrw", "ww;rr;r", "rw;rw;rw",
                                         "w;r;w;r"));
#endif

// A rule, a program that misses it, and how.
struct Mutant {
  const char* rule;
  const char* program;
  Violation::Kind kind;
  const char* lock = "cql";
};
void PrintTo(const Mutant& mutant, std::ostream* out) {
  *out << mutant.rule;
}

constexpr Mutant kMutants[] = {
    {"gap", "w;r;r", Violation::Kind::hang},
    {"writer-owes", "w;r;r", Violation::Kind::hang},
    {"group-at-once", "rw;w;r", Violation::Kind::hang},
    {"writers-counted", "wr;r", Violation::Kind::hang},
    {"ticket-match", "w;w;w", Violation::Kind::order},
    {"passed-ticket", "ww;rr;r", Violation::Kind::hang},
    {"leave-behind-readers", "w;W;r", Violation::Kind::mutual_exclusion, "declock-slack"},
    {"look-behind-entry", "w;r", Violation::Kind::hang, "declock-token"},
    {"newcomers", "w;r", Violation::Kind::hang, "declock-token"},
    {"answers-awaited", "www+ww;r", Violation::Kind::mutual_exclusion, "declock-token"},
    {"ring-gaps", "ww+w;r;w", Violation::Kind::mutual_exclusion, "declock-token"},
    {"early-answers", "ww+w;r;w", Violation::Kind::hang, "declock-token"},
};

class LeftOutRule : public testing::TestWithParam<Mutant> {};

TEST_P(LeftOutRule, IsMissed) {
  const auto [name, program, kind, lock] = GetParam();
  const auto mutant = leave_out(name);
  ASSERT_TRUE(mutant);
  const Survey mutated = explore(program, QueueLayout::owner, *mutant, {}, lock);
  ASSERT_TRUE(mutated.last.violation);
  EXPECT_EQ(mutated.last.violation->kind, kind) << mutated.last.violation->text;
  // With the rule: nothing. Programs of the token lock are large: there, farther than the search without it went.
  SearchLimits limits;
  if (std::string_view{lock} == "declock-token") limits.max_states = 200'000;
  const Survey whole = explore(program, QueueLayout::owner, {}, limits, lock);
  EXPECT_FALSE(whole.last.violation);
  EXPECT_TRUE(whole.last.complete || whole.states >= limits.max_states);
}
#ifdef NDEBUG
INSTANTIATE_TEST_SUITE_P(Rules, LeftOutRule, testing::ValuesIn(kMutants));
#else  // the same code with a rule left out has nothing new for a sanitizer
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LeftOutRule);
#endif

TEST(Mutants, EveryRuleIsAmongThem) {
  for (const mutants::RuleInfo& rule : mutants::kRuleInfos) {
    if (rule.needs_faults) continue;
    EXPECT_TRUE(std::any_of(std::begin(kMutants), std::end(kMutants), [&](const Mutant& m) {
      return m.rule == rule.name;
    })) << rule.name;
  }
}

// Locks with a plain fault, for the checkers: each must see its own.
enum class Fault {
  lets_everybody_in,
  releases_in_the_wrong_mode,
  waits_for_ever,
  trusts_an_early_read
};

template <Fault kFault>
class FaultyLock final : public LockClient {
 public:
  FaultyLock(Endpoint& endpoint, const LockShape& shape)
      : endpoint_(endpoint),
        membership_(Slot{static_cast<std::uint16_t>(endpoint.id().value)}, 2, 1),
        lock_(endpoint, shape, {membership_, requests_}) {}
  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object) override {
    if (kFault == Fault::lets_everybody_in) co_return Hold{.lock = lock, .mode = mode};
    while (kFault == Fault::waits_for_ever) {  // a circle of several states: sleep, look, sleep
      co_await endpoint_.worker().sleep_for(microseconds(1));
      std::uint64_t word = 0;
      Op look = Op::read(lock, {&word, 1}, Purpose::acquire);
      const Result<void> posted = co_await endpoint_.post(look);
      EXPECT_TRUE(posted);
    }
    Result<Hold> hold = co_await lock_.acquire(lock, mode, object);
    if (hold && kFault == Fault::trusts_an_early_read) hold->object_read = object != nullptr;
    co_return hold;
  }
  Task<Result<void>> release(Hold hold, Op* object) override {
    if (kFault == Fault::lets_everybody_in) co_return Result<void>{};
    if (kFault == Fault::releases_in_the_wrong_mode) hold.mode = Mode::shared;  // H11
    co_return co_await lock_.release(hold, object);
  }
  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  Endpoint& endpoint_;
  member::FixedMembership membership_;
  cql::Requests requests_;
  cql::CqlLock lock_;
};

template <Fault kFault>
class FaultyFamily final : public locks::LockFamily {
 public:
  std::uint64_t stride() const override { return shape_.bytes(); }
  std::unique_ptr<LockClient> client(const locks::Seat& seat) override {
    return std::make_unique<FaultyLock<kFault>>(seat.endpoint, shape_);
  }

 private:
  LockShape shape_{2, 4, QueueLayout::owner};
};

template <Fault kFault>
void expect_seen(Violation::Kind kind, const char* program) {
  Scenario scenario;
  scenario.program = parse_programs(program)->front();
  scenario.family = [] { return std::make_unique<FaultyFamily<kFault>>(); };
  scenario.piggyback = kFault == Fault::trusts_an_early_read;
  const Finding finding = search(scenario, {});
  ASSERT_TRUE(finding.violation);
  EXPECT_EQ(finding.violation->kind, kind) << finding.violation->text;
}

TEST(Checkers, SeeTwoHolders) {
  expect_seen<Fault::lets_everybody_in>(Violation::Kind::mutual_exclusion, "w;r");
}
TEST(Checkers, SeeCountsThatAreLeftOver) {
  expect_seen<Fault::releases_in_the_wrong_mode>(Violation::Kind::left_over, "w");
}
TEST(Checkers, SeeAReadFromBeforeTheGrant) {
  expect_seen<Fault::trusts_an_early_read>(Violation::Kind::stale_read, "w;r");
}
TEST(Checkers, SeeACircleThatNobodyGetsOutOf) {
  expect_seen<Fault::waits_for_ever>(Violation::Kind::hang, "w;r");
}

struct Other {
  const char* lock;
  const char* program;
};
void PrintTo(const Other& other, std::ostream* out) {
  *out << other.lock << " " << other.program;
}

class EveryLock : public testing::TestWithParam<Other> {};

TEST_P(EveryLock, IsCleanWithTheDataInItsDoorbellsAndWithout) {
  for (const bool piggyback : {false, true}) {
    for (const auto read : {cql::ReleaseRead::adaptive, cql::ReleaseRead::always}) {
      Scenario scenario;
      scenario.lock = GetParam().lock;
      scenario.piggyback = piggyback;
      scenario.release_read = read;
      const Survey survey = search_all(scenario, *parse_programs(GetParam().program), {}, 1);
      EXPECT_TRUE(survey.last.complete);
      EXPECT_FALSE(survey.last.violation) << survey.last.violation->text;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(
    Locks, EveryLock,
    testing::Values(Other{"cql", "x;x"}, Other{"cql", "xx;x"}, Other{"caslock", "x;x"},
                    Other{"dslr", "xx;x"}, Other{"shiftlock", "xx;x"}, Other{"shiftlock", "x;x;x"},
                    Other{"declock-tf", "x+x;x"}, Other{"declock-pf", "x+x;x"},
                    Other{"declock-slack", "x+x;x"}, Other{"declock-remote-prefer", "x+x;x"},
                    Other{"declock-local-prefer", "x+x;x"}, Other{"declock-local-bound", "x+x;x"},
                    Other{"declock-token", "x;x"}, Other{"declock-token", "x+x;x"}));
#ifdef NDEBUG
INSTANTIATE_TEST_SUITE_P(LocksInRelease, EveryLock,
                         testing::Values(Other{"declock-remote-prefer", "xx+x;x"},
                                         Other{"declock-token", "xx;x"}));
#endif

class Impatient : public testing::TestWithParam<Other> {};

TEST_P(Impatient, ClientsGiveUpAtAnyMomentAndNothingIsLeft) {
  Scenario scenario;
  scenario.lock = GetParam().lock;
  const Survey survey = search_all(scenario, *parse_programs(GetParam().program), {}, 1);
  EXPECT_TRUE(survey.last.complete);
  EXPECT_FALSE(survey.last.violation) << survey.last.violation->text;
}
INSTANTIATE_TEST_SUITE_P(Locks, Impatient,
                         testing::Values(Other{"declock-tf", "W+x;x"}, Other{"declock-pf", "R+W;x"},
                                         Other{"declock-slack", "Wx+x;x"},
                                         Other{"declock-pf", "Wx+x;x"}, Other{"declock-pf", "s+x;x"},
                                         Other{"declock-slack", "ew+x;w"}, Other{"declock-tf", "W+e;x"},
                                         Other{"declock-token", "W+x;x"},
                                         Other{"declock-token", "R+W;x"},
                                         Other{"declock-token", "s+x;x"},
                                         Other{"declock-token", "ew+x;w"}));
#ifdef NDEBUG
INSTANTIATE_TEST_SUITE_P(LocksInRelease, Impatient, testing::Values(Other{"declock-pf", "W;e;w"}));
#endif

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
  scenario.protocol = *leave_out("H28");
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
