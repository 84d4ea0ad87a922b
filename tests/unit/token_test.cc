// What the token decides: whom it takes in, who comes next, and what may be taken out of the header (cql/token.h).
#include "cql/token.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

namespace declock::cql {
namespace {

using Kind = Move::Kind;

// A node in the ring. Its slot is the number of its ticket.
RingPlace place(std::uint32_t ticket, bool writers, bool readers = false) {
  return {.slot = Slot{static_cast<std::uint16_t>(ticket)},
          .ticket = ticket,
          .writers = writers,
          .readers = readers};
}
RingPlace writer(std::uint32_t ticket) {
  return place(ticket, true);
}
RingPlace reader(std::uint32_t ticket) {
  return place(ticket, false, true);
}

LockToken token_of(std::initializer_list<RingPlace> ring) {
  LockToken token;
  token.ring = ring;
  for (const RingPlace& p : ring) token.writers += p.writers ? 1 : 0;
  token.accounted += static_cast<std::uint32_t>(ring.size());
  return token;
}

// As whoever has the token does at the end of its visit.
RingPlace visited(RingPlace own) {
  own.visited = own.met = true;
  return own;
}

std::vector<std::uint32_t> tickets(const LockToken& token) {
  std::vector<std::uint32_t> all;
  for (const RingPlace& p : token.ring) all.push_back(p.ticket);
  return all;
}
using Tickets = std::vector<std::uint32_t>;

// The queue of a lock, as a READ shows it.
struct Queue {
  void enter(std::uint16_t slot, std::uint32_t ticket, Mode mode, Timestamp asked = {}) {
    words[1u + slot] =
        encode(Entry{.tag = ticket, .mode = mode, .timestamp = asked, .worker = WorkerId{3}});
  }
  void show(LockToken& token, const Rules& rules = {}) const {
    token.merge(
        {rules, shape, words, Epoch{0}, token.known_end(), Ticket{token.known_end().value + 1000}});
  }
  LockShape shape{128, 128, QueueLayout::owner};
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(129);
};

TEST(Token, TakesInThoseWhoHaveComeInTheOrderOfTheirTickets) {
  Queue queue;
  queue.enter(5, 1, Mode::exclusive);
  queue.enter(2, 2, Mode::shared);
  queue.enter(9, 3, Mode::exclusive, kReadersToo);
  LockToken token{.unseen = 7};
  queue.show(token);
  EXPECT_EQ(tickets(token), (Tickets{1, 2, 3}));
  EXPECT_EQ(token.ring[0],
            (RingPlace{.slot = Slot{5}, .worker = WorkerId{3}, .ticket = 1, .writers = true}));
  EXPECT_TRUE(token.ring[1].readers && !token.ring[1].writers);
  EXPECT_TRUE(token.ring[2].readers && token.ring[2].writers);
  EXPECT_EQ(token.accounted, 4u);
  EXPECT_EQ(token.writers, 3u);
  EXPECT_EQ(token.unseen, 0u);
  queue.show(token);
  EXPECT_EQ(token.accounted, 4u) << "nobody is taken in twice";
}

TEST(Token, StopsAtAnEntryThatIsNotInSight) {  // H37
  Queue queue;
  queue.enter(1, 1, Mode::exclusive);
  queue.enter(3, 3, Mode::exclusive);
  LockToken token;
  queue.show(token);
  EXPECT_EQ(tickets(token), Tickets{1});
  EXPECT_EQ(token.known_end(), Ticket{2});
  queue.enter(2, 2, Mode::shared);
  queue.show(token);
  EXPECT_EQ(tickets(token), (Tickets{1, 2, 3}));
}

TEST(Token, TakesInNoMoreThanTravel) {
  Queue queue;
  for (std::uint16_t i = 0; i < 128; ++i) queue.enter(i, 1u + i, Mode::exclusive);
  LockToken token;
  queue.show(token);
  EXPECT_EQ(token.ring.size(), LockToken::kRingMax);
  EXPECT_EQ(token.known_end(), Ticket{1 + LockToken::kRingMax});
  (void)token.move_on();
  queue.show(token);
  EXPECT_EQ(token.ring.size(), LockToken::kRingMax) << "who did not fit comes in later";
  EXPECT_EQ(token.ring.back().ticket, 1 + LockToken::kRingMax);
}

TEST(Token, EndsWhenNobodyWaits) {
  LockToken token;
  EXPECT_EQ(token.move_on().kind, Kind::end);
}

TEST(Token, FreesThoseWhoWaitIfAllOfThemRead) {
  LockToken token = token_of({reader(1), reader(2)});
  EXPECT_EQ(token.move_on().kind, Kind::free);
  EXPECT_EQ(tickets(token), (Tickets{1, 2}));
}

TEST(Token, GoesFromWriterToWriterAndTellsItsMessagesApart) {
  LockToken token = token_of({writer(1), writer(2)});
  const std::uint32_t hop = token.hop;
  const Move move = token.move_on();
  EXPECT_EQ(move.kind, Kind::pass);
  EXPECT_EQ(move.next, writer(1));
  EXPECT_FALSE(move.phase || token.is_awaiting());
  EXPECT_EQ(tickets(token), Tickets{2});
  EXPECT_EQ(token.hop, hop + 1);
  EXPECT_EQ(token.unseen, 1u);
}

TEST(Token, NobodyIsVisitedTwiceWhileAnotherWaits) {
  LockToken token = token_of({writer(1), writer(2), visited(writer(7))});
  for (const std::uint32_t expected : {1u, 2u, 7u, 1u}) {
    const Move move = token.move_on();
    EXPECT_EQ(move.next.ticket, expected);
    token.ring.push_back(visited(writer(expected)));
  }
}

TEST(Token, WhoComesAnewIsBehindThoseWhoWait) {
  LockToken token = token_of({writer(1)});
  token.ring.push_back(visited(writer(0)));
  token.ring.push_back(writer(2));
  EXPECT_EQ(token.move_on().next.ticket, 1u);
  token.ring.push_back(visited(writer(1)));
  EXPECT_EQ(token.move_on().next.ticket, 0u) << "the next rotation";
  token.ring.push_back(visited(writer(0)));
  EXPECT_EQ(token.move_on().next.ticket, 2u);
}

TEST(Token, AReaderAtTheHeadBeginsAPhaseForAll) {
  LockToken token = token_of({reader(1), writer(2), place(3, true, true)});
  const Move move = token.move_on();
  EXPECT_TRUE(move.phase);
  EXPECT_EQ(move.next.ticket, 2u);
  EXPECT_EQ(tickets(token), (Tickets{1, 3}));
  EXPECT_TRUE(token.ring[0].awaited && token.ring[1].awaited);
}

TEST(Token, APhaseComesOncePerRotation) {
  LockToken token = token_of({writer(1), place(2, true, true)});
  EXPECT_FALSE(token.move_on().phase);
  token.ring.push_back(visited(writer(1)));
  EXPECT_FALSE(token.move_on().phase);
  token.ring.push_back(visited(place(2, true, true)));
  const Move move = token.move_on();
  EXPECT_TRUE(move.phase) << "all were visited";
  EXPECT_EQ(move.next.ticket, 1u);
  EXPECT_FALSE(token.ring[0].visited);
}

TEST(Token, ReadersWhoComeAfterARotationWithoutAPhaseNeedNotWaitForTheEndOfTheNext) {
  LockToken token = token_of({visited(writer(1)), visited(writer(2))});
  EXPECT_FALSE(token.move_on().phase);
  EXPECT_TRUE(token.no_phase);
  token.ring.push_back(visited(place(1, true, true)));
  const Move move = token.move_on();
  EXPECT_TRUE(move.phase);
  EXPECT_EQ(move.next.ticket, 2u);
  EXPECT_FALSE(token.no_phase);
}

TEST(Token, AnswersEndAPhase) {
  LockToken token = token_of({reader(1), writer(2), writer(3)});
  (void)token.move_on();
  RingPlace other = writer(3);
  other.ticket = 4;
  EXPECT_FALSE(token.take_answer(other)) << "of another request in that slot";
  EXPECT_TRUE(token.take_answer(place(1, false)));
  EXPECT_EQ(tickets(token), Tickets{3}) << "who wants the lock no longer leaves the ring";
  EXPECT_TRUE(token.is_awaiting());
  EXPECT_TRUE(token.take_answer(place(3, true, true)));
  EXPECT_FALSE(token.is_awaiting());
  EXPECT_TRUE(token.ring[0].met && token.ring[0].readers) << "who stays says what it waits for now";
  EXPECT_FALSE(token.take_answer(writer(3))) << "twice";
  EXPECT_FALSE(token.take_answer(reader(9))) << "nobody awaits that";
}

TEST(Token, AnAnswerDoesNotGiveASecondVisitInARotation) {
  LockToken token = token_of({reader(1), writer(2), writer(3)});
  (void)token.move_on();
  token.ring[1].visited = true;
  EXPECT_TRUE(token.take_answer(writer(3)));
  EXPECT_TRUE(token.ring[1].visited);
}

// Nodes 1 and 2 have left, 0 has the token.
LockToken with_two_departed() {
  LockToken token{.accounted = 5, .writers = 4};
  token.ring = {writer(3), visited(writer(4))};
  return token;
}

TEST(Token, TheHeaderStaysBelowThoseWhoMayYetLookAtIt) {  // H38
  LockToken token = with_two_departed();
  const Rules rules;
  EXPECT_EQ(token.departed(), 2u);
  EXPECT_EQ(token.may_settle(rules), 2u);
  token.ring[0].ticket = 2;  // one who came later was removed
  EXPECT_EQ(token.may_settle(rules), 1u);
  Rules without;
  without.base_below_unmet = false;
  EXPECT_EQ(token.may_settle(without), 2u) << "then 2 would take the lock for its own";
  token.ring[0].met = true;
  EXPECT_EQ(token.may_settle(rules), 2u) << "who was heard of does not look any more";
}

TEST(Token, TheHeaderCountsAWriterWhileATokenLives) {
  LockToken token = with_two_departed();
  EXPECT_EQ(token.writers_among(2), 2u);
  token.writers = 2;
  EXPECT_EQ(token.writers_among(2), 1u);
}

TEST(Token, WantsANewBaseBeforeTheSequenceRunsOut) {  // H24
  LockToken token = with_two_departed();
  token.sequence = LockToken::kSequenceMax - 1;
  EXPECT_FALSE(token.wants_a_new_base());
  token.sequence += 1;
  EXPECT_TRUE(token.wants_a_new_base());
  token.settled(1, 1);
  EXPECT_FALSE(token.wants_a_new_base());
}

TEST(Token, AccountsForThoseWhoAreLeftAfterSettling) {
  LockToken token = with_two_departed();
  token.base = Ticket{40};
  token.sequence = 9;
  const Ticket end = token.known_end();
  token.settled(2, 1);
  EXPECT_EQ(token.base, Ticket{42});
  EXPECT_EQ(token.known_end(), end);
  EXPECT_EQ(token.departed(), 0u);
  EXPECT_EQ(token.writers, 3u);
  EXPECT_EQ(token.sequence, 0u) << "the base counts for more";
}

TEST(Token, APlaceTravelsInAWord) {
  RingPlace full{.slot = Slot{1023}, .odd = true, .worker = WorkerId{255}, .ticket = 0xFFFF'FFFF};
  EXPECT_EQ(RingPlace::unpack(full.packed()), full);
  for (bool RingPlace::*flag : {&RingPlace::odd, &RingPlace::writers, &RingPlace::readers,
                                &RingPlace::visited, &RingPlace::met, &RingPlace::awaited}) {
    RingPlace one{.slot = Slot{17}, .worker = WorkerId{2}, .ticket = 5};
    one.*flag = true;
    EXPECT_EQ(RingPlace::unpack(one.packed()), one);
  }
}

}  // namespace
}  // namespace declock::cql
