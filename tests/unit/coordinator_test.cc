#include "member/coordinator.h"

#include <gtest/gtest.h>

namespace declock::member {
namespace {

constexpr Duration kLease = milliseconds(10);
Time at(std::int64_t ms) {
  return Time{} + milliseconds(ms);
}

TEST(Coordinator, AdmitsAsManyAsThereAreSlots) {
  Coordinator coordinator{2, 1, kLease};
  EXPECT_TRUE(coordinator.join(EndpointId{0}, at(0)));
  const Result<Member> second = coordinator.join(EndpointId{4}, at(0));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->slot, Slot{1});
  const Result<Member> third = coordinator.join(EndpointId{8}, at(0));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error(), Errc::busy);
  EXPECT_EQ(coordinator.view().members.size(), 2u);
}

TEST(Coordinator, SuspectsOnceAndThereIsNoWayBack) {
  Coordinator coordinator{2, 1, kLease};
  const Member member = *coordinator.join(EndpointId{0}, at(0));
  EXPECT_TRUE(coordinator.renew(member, at(5)));
  EXPECT_TRUE(coordinator.suspects(at(14)).empty());
  EXPECT_EQ(coordinator.suspects(at(15)).size(), 1u);
  EXPECT_TRUE(coordinator.suspects(at(16)).empty()) << "one fence is enough";
  EXPECT_FALSE(coordinator.renew(member, at(16)));
  EXPECT_TRUE(coordinator.view().has(member)) << "until it is fenced everywhere";
  coordinator.remove(member);
  EXPECT_FALSE(coordinator.view().has(member));
  EXPECT_EQ(coordinator.view().removals, 1u);
}

TEST(Coordinator, WhoLeavesByItselfIsNotCountedAsRemoved) {
  Coordinator coordinator{2, 1, kLease};
  const Member member = *coordinator.join(EndpointId{0}, at(0));
  const Member silent = *coordinator.join(EndpointId{4}, at(0));
  EXPECT_TRUE(coordinator.end_lease(member, at(1)));
  EXPECT_EQ(coordinator.suspects(at(20)).size(), 1u) << "it is on its way out already";
  EXPECT_FALSE(coordinator.end_lease(silent, at(20)));
  coordinator.remove(member, false);
  EXPECT_FALSE(coordinator.view().has(member));
  EXPECT_EQ(coordinator.view().removals, 0u);
}

TEST(Coordinator, TheNextInASlotIsAnotherIncarnation) {
  Coordinator coordinator{1, 1, kLease};
  const Member first = *coordinator.join(EndpointId{0}, at(0));
  coordinator.remove(first);
  const Member second = *coordinator.join(EndpointId{1}, at(1));
  EXPECT_EQ(second.slot, first.slot);
  EXPECT_NE(second.incarnation, first.incarnation);
  EXPECT_FALSE(coordinator.view().has(first));
  EXPECT_FALSE(coordinator.renew(first, at(1)));
  EXPECT_EQ(coordinator.view().removals, 1u) << "a newcomer knows of it (H33)";
}

TEST(Coordinator, EveryChangeHasANumber) {
  Coordinator coordinator{2, 2, kLease};
  std::uint64_t last = coordinator.view().number;
  const auto grew = [&] { return std::exchange(last, coordinator.view().number) < last; };
  const Member member = *coordinator.join(EndpointId{0}, at(0));
  EXPECT_TRUE(grew());
  coordinator.restarted(MnId{1});
  EXPECT_TRUE(grew());
  EXPECT_EQ(coordinator.view().incarnation(MnId{1}), 2u);
  EXPECT_EQ(coordinator.view().incarnation(MnId{0}), 1u);
  coordinator.remove(member);
  EXPECT_TRUE(grew());
  coordinator.remove(member);
  EXPECT_FALSE(grew()) << "it was gone";
}

}  // namespace
}  // namespace declock::member
