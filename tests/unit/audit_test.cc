#include <gtest/gtest.h>

#include "audit/fairness.h"
#include "audit/holders.h"

namespace declock::audit {
namespace {

TEST(Holders, SeesTwoHoldersThatExcludeEachOther) {
  Holders holders{2};
  EXPECT_TRUE(holders.enter(0, Mode::shared));
  EXPECT_TRUE(holders.enter(0, Mode::shared));
  EXPECT_TRUE(holders.enter(1, Mode::exclusive));
  EXPECT_FALSE(holders.enter(0, Mode::exclusive));
  EXPECT_FALSE(holders.enter(1, Mode::shared));
  EXPECT_FALSE(holders.enter(1, Mode::exclusive));
  EXPECT_EQ(holders.violations(), 3u);
}

TEST(Holders, ForgetsThoseWhoLeft) {
  Holders holders{1};
  EXPECT_TRUE(holders.enter(0, Mode::exclusive));
  holders.leave(0, Mode::exclusive);
  EXPECT_TRUE(holders.enter(0, Mode::shared));
  holders.leave(0, Mode::shared);
  EXPECT_TRUE(holders.enter(0, Mode::exclusive));
  EXPECT_EQ(holders.violations(), 0u);
}

TEST(Fairness, CountsConflictingRequestsThatAreOvertaken) {
  Fairness fairness{2, 5};
  fairness.called(0, 0, Mode::exclusive);
  fairness.called(0, 1, Mode::shared);
  fairness.called(0, 2, Mode::shared);
  fairness.called(1, 3, Mode::exclusive);
  fairness.enqueued(1);
  fairness.enqueued(0);
  fairness.enqueued(2);
  const auto second =
      fairness.granted(2);  // before 0, which called and enqueued earlier; 1 shares with it
  EXPECT_EQ(second.by_call, 1u);
  EXPECT_EQ(second.by_queue, 1u);
  const auto first = fairness.granted(0);  // before 1, which called later but enqueued earlier
  EXPECT_EQ(first.by_call, 0u);
  EXPECT_EQ(first.by_queue, 1u);
  EXPECT_EQ(fairness.granted(1).by_call, 0u);
  EXPECT_EQ(fairness.granted(3).by_call, 0u);
}

}  // namespace
}  // namespace declock::audit
