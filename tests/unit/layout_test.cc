#include <gtest/gtest.h>

#include "layout/entry.h"
#include "layout/header.h"
#include "layout/lock_shape.h"

namespace declock {
namespace {

TEST(Header, AThousandAcquisitionsLeaveNothingButTheTicket) {
  for (const unsigned members : {1u, 2u, 8u, 100u, 256u, 1024u}) {
    const HeaderLayout layout{members};
    std::uint64_t word = 0;
    for (unsigned i = 0; i < 1000; ++i) {
      const Mode mode = i % 3 == 0 ? Mode::exclusive : Mode::shared;
      word += layout.acquire_delta(mode);
      word += layout.release_delta(mode);
    }
    EXPECT_EQ(layout.decode(word), Header{.ticket = Ticket{1000}}) << members;
  }
}

TEST(Header, CountsFourTimesTheMembersWithoutTouchingTheTicket) {
  const HeaderLayout layout{8};
  std::uint64_t word = layout.encode(Header{.ticket = Ticket{5}, .epoch = Epoch{63}});
  for (int i = 0; i < 31; ++i) word += layout.acquire_delta(Mode::exclusive);
  EXPECT_EQ(layout.decode(word), (Header{Ticket{5}, 31, 31, Epoch{63}, ResetId{0}}));
}

TEST(Header, TheTicketStopsBeforeItRepeatsInAnEntry) {
  EXPECT_LT(HeaderLayout{8}.ticket_limit().value, std::uint64_t{1} << 32);
  EXPECT_LT(HeaderLayout{1024}.ticket_limit().value, std::uint64_t{1} << 21);
  EXPECT_GT(HeaderLayout{1024}.ticket_limit().value, 2'000'000u);
}

TEST(Header, RefusesMoreMembersThanItCanName) {
  EXPECT_DEATH(HeaderLayout{1025}, "invariant broken");
  EXPECT_DEATH(HeaderLayout{0}, "invariant broken");
}

TEST(Entry, AZeroedSlotIsAnEntryOfTicketZeroWhichNeverWaits) {
  EXPECT_EQ(decode_entry(0), Entry{});
  EXPECT_EQ(RingTag::unpack(decode_entry(0).tag).version, 0);
}

TEST(LockShape, LiesInWords) {
  const LockShape shape{8, 8, QueueLayout::owner};
  EXPECT_EQ(shape.bytes(), 80u);
  EXPECT_EQ(shape.queue_words(), 9u);
  const RemoteAddr lock{MnId{1}, 800};
  EXPECT_EQ(shape.slot_addr(lock, 7), (RemoteAddr{MnId{1}, 864}));
  EXPECT_EQ(shape.wraps_addr(lock), (RemoteAddr{MnId{1}, 872}));
  EXPECT_DEATH((LockShape{8, 7, QueueLayout::owner}), "invariant broken");
}

TEST(RemoteAddr, PacksIntoAWord) {
  const RemoteAddr addr{MnId{0xABCD}, 0x1234'5678'9ABC};
  EXPECT_EQ(RemoteAddr::unpack(addr.packed()), addr);
}

}  // namespace
}  // namespace declock
