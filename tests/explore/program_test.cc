#include "explore/program.h"

#include <gtest/gtest.h>

namespace declock::explore {
namespace {

TEST(Program, IsOperationsByClient) {
  const auto programs = parse_programs("w;r;rrrw");
  ASSERT_TRUE(programs);
  ASSERT_EQ(programs->size(), 1u);
  EXPECT_EQ(to_string(programs->front()), "w;r;rrrw");
}

TEST(Program, AnXStandsForBothUpToRenamingOfClients) {
  EXPECT_EQ(parse_programs("x")->size(), 2u);
  EXPECT_EQ(parse_programs("x;x")->size(), 3u);
  EXPECT_EQ(parse_programs("xxx;xxx")->size(), 36u);
  EXPECT_EQ(parse_programs("xx;xx;xx")->size(), 20u);
  EXPECT_EQ(parse_programs("x;x;x;xx")->size(), 16u);
  EXPECT_EQ(parse_programs("x+x;x")->size(), 8u) << "the clients of a node call in this order";
}

TEST(Program, SaysWhatIsWrongWithIt) {
  for (const char* wrong : {"", ";", "w;", ";w", "w;;r", "w;q", "E", "w r", "r;r;r;r;r;r;r;r;r",
                            "xxxxxxxxxxxxx", "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"}) {
    const auto programs = parse_programs(wrong);
    ASSERT_FALSE(programs) << wrong;
    EXPECT_NE(programs.error().find("w;r;rrrw"), std::string::npos);
  }
}

}  // namespace
}  // namespace declock::explore
