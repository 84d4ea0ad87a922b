#include <gtest/gtest.h>

#include "audit/fairness.h"
#include "audit/holders.h"
#include "audit/ledger.h"

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

// Client 1 of node 7 adds one to the counter; what the ledger makes of it depends on what it is told.
Ledger::Update write(Ledger& ledger, std::uint64_t counter, std::uint64_t who = 1) {
  ledger.enter(0, who, 7, Mode::exclusive, 1);
  ledger.read(0, who, counter);
  const Ledger::Update update = ledger.writes(0, who);
  ledger.leave(0, who);
  return update;
}
void read(Ledger& ledger, std::uint64_t counter) {
  ledger.enter(0, 9, 8, Mode::shared, 1);
  ledger.read(0, 9, counter);
  ledger.leave(0, 9);
}

TEST(Ledger, WhatIsDoneMustBeThere) {
  for (const std::uint64_t counter : {0u, 1u}) {
    Ledger told_before{1};
    told_before.done(0, write(told_before, 0));
    read(told_before, counter);
    EXPECT_EQ(told_before.violation().has_value(), counter == 0);
    Ledger told_after{1};
    const Ledger::Update update = write(told_after, 0);
    read(told_after, counter);
    told_after.done(0, update);
    EXPECT_EQ(told_after.violation().has_value(), counter == 0);
  }
}

TEST(Ledger, WhatIsCertainlyNotDoneMustNotBeThere) {
  for (const std::uint64_t counter : {0u, 1u}) {
    Ledger told_before{1};
    told_before.certainly_not_done(0, write(told_before, 0));
    read(told_before, counter);
    EXPECT_EQ(told_before.violation().has_value(), counter == 1);
    Ledger told_after{1};
    const Ledger::Update update = write(told_after, 0);
    read(told_after, counter);
    told_after.certainly_not_done(0, update);
    EXPECT_EQ(told_after.violation().has_value(), counter == 1);
  }
}

TEST(Ledger, WhatIsNotKnownMayBeThereUntilSomebodyHasRead) {
  for (const std::uint64_t counter : {0u, 1u}) {
    Ledger ledger{1};
    (void)write(ledger, 0);
    read(ledger, counter);
    EXPECT_FALSE(ledger.violation());
    read(ledger, 1 - counter);
    EXPECT_TRUE(ledger.violation()) << "it came or went later";
  }
}

TEST(Ledger, NothingIsDoneUnderAVoidHold) {
  Ledger ledger{1};
  ledger.fenced(7);
  const Ledger::Update update = write(ledger, 0);
  EXPECT_EQ(update, Ledger::Update::void_hold);
  ledger.certainly_not_done(0, update);
  EXPECT_FALSE(ledger.violation());
  ledger.done(0, update);
  EXPECT_TRUE(ledger.violation());
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
