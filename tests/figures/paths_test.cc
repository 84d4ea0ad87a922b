// Every path through every lock costs what is documented, in the simulator and between processes.
#include "bench/paths.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace declock::bench {
namespace {

OpCounts counted(std::uint64_t adds, std::uint64_t reads, std::uint64_t messages) {
  OpCounts counts;
  for (std::uint64_t i = 0; i < adds; ++i) counts.add(OpKind::fetch_add, Purpose::acquire);
  for (std::uint64_t i = 0; i < reads; ++i) counts.add(OpKind::read, Purpose::acquire);
  counts.messages = messages;
  return counts;
}

TEST(Cost, IsAsManyOfEachKindAndNoOther) {
  const Cost cost{{{OpKind::fetch_add, 1}}, 1};
  EXPECT_TRUE(cost.matches(counted(1, 0, 1)));
  EXPECT_FALSE(cost.matches(counted(2, 0, 1)));
  EXPECT_FALSE(cost.matches(counted(1, 1, 1)));
  EXPECT_FALSE(cost.matches(counted(1, 0, 0)));
  EXPECT_FALSE(cost.exceeded_by(counted(1, 0, 1)));
  EXPECT_TRUE(cost.exceeded_by(counted(2, 0, 0)));
  EXPECT_TRUE(cost.exceeded_by(counted(0, 1, 0)));
  EXPECT_TRUE(cost.exceeded_by(counted(0, 0, 2)));
  EXPECT_EQ(cost.text(), "1 FAA, 1 message");
}

TEST(Cost, CountsPollsOfWhichThereIsAtLeastOne) {
  const Cost cost{{{OpKind::fetch_add, 1}, {OpKind::read, 1, 2}}};
  EXPECT_FALSE(cost.matches(counted(1, 1, 0)));
  EXPECT_FALSE(cost.matches(counted(1, 2, 0)));
  EXPECT_TRUE(cost.matches(counted(1, 3, 0)));
  EXPECT_TRUE(cost.matches(counted(1, 101, 0)));
  EXPECT_FALSE(cost.exceeded_by(counted(1, 102, 0))) << "one more may come";
  const Cost perhaps_none{{{OpKind::fetch_add, 1}, {OpKind::read, 1, 2}}, 0, 0};
  EXPECT_TRUE(perhaps_none.matches(counted(1, 1, 0)));
  EXPECT_FALSE(perhaps_none.matches(counted(1, 0, 0)));
  const Cost both{{{OpKind::fetch_add, 0, 1}, {OpKind::read, 0, 1}}};
  EXPECT_TRUE(both.matches(counted(4, 4, 0)));
  EXPECT_FALSE(both.matches(counted(4, 5, 0))) << "the same number of polls for both";
}

class PathsOn : public testing::TestWithParam<Fabric> {};

// What costs something else than documented; empty: all is as it should be.
std::string differences(const std::vector<WalkedPath>& all, std::size_t& seen) {
  std::string lines;
  seen = 0;
  for (const WalkedPath& walked : all) {
    seen += walked.seen.size();
    for (const auto& [fabric, counts] : walked.seen) {
      if (walked.path->cost.matches(counts)) continue;
      lines += fmt::format("{}: {}: {} instead of {}\n", walked.lock, walked.path->name, text(counts),
                           walked.path->cost.text());
    }
  }
  return lines;
}

TEST_P(PathsOn, CostWhatIsDocumented) {
  std::size_t seen = 0;
  const std::string lines = differences(walk_all({GetParam()}), seen);
  EXPECT_EQ(lines, "");
  EXPECT_GT(seen, 80u);
}

// What is said of each path here is too little, and every one of them is found.
TEST_P(PathsOn, CostNoLessThanTheyDo) {
  const std::vector<LockPaths> wrong{
      {"declock-pf",
       {{"acquire", "0X 2X 0U 2U", 0, {}},
        {"wait", "0X 2X 0U 2U", 1, {{{OpKind::fetch_add, 1}}}},
        {"hand over", "0X 2X 0U 2U", 2, {{{OpKind::fetch_add, 1}, {OpKind::read, 1}}}},
        {"release", "0X 2X 0U 2U", 3, {{{OpKind::fetch_add, 1}}}}}}};
  std::size_t seen = 0;
  EXPECT_EQ(differences(walk_all({GetParam()}, {}, wrong), seen),
            "declock-pf: acquire: 1 FAA instead of 0\n"
            "declock-pf: wait: 1 FAA + 1 WRITE instead of 1 FAA\n"
            "declock-pf: hand over: 1 FAA + 1 READ, 1 message instead of 1 FAA + 1 READ\n"
            "declock-pf: release: 1 FAA + 1 READ instead of 1 FAA\n");
}

INSTANTIATE_TEST_SUITE_P(Fabrics, PathsOn, testing::Values(Fabric::sim, Fabric::shm, Fabric::tcp),
                         [](const auto& fabric) { return std::string{to_string(fabric.param)}; });

}  // namespace
}  // namespace declock::bench
