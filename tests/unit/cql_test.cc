// The CQL lock in scripted sequences: what it costs, and what it does when the lock's words are odd.
#include <gtest/gtest.h>

#include "support/lab.h"

namespace declock {
namespace {

std::uint64_t acquire_ops(const Endpoint& e) {
  return e.counts().of(Purpose::acquire);
}
std::uint64_t release_ops(const Endpoint& e) {
  return e.counts().of(Purpose::release);
}

// As whom the member in this slot claims a reset.
ResetId claim_of(unsigned slot) {
  return ResetId{static_cast<std::uint16_t>((slot + 1) << 2 | 1)};
}

TEST(Cql, UncontendedCostsOneOperationToAcquireAndOneToRelease) {
  for (const auto read : {cql::ReleaseRead::adaptive, cql::ReleaseRead::always}) {
    Lab lab{2, {.release_read = read}};
    for (const Mode mode : {Mode::exclusive, Mode::shared}) {
      Visit seen;
      const OpCounts before = lab.nodes[0].endpoint.counts();
      lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, mode, {}, seen));
      lab.run(milliseconds(1));
      ASSERT_TRUE(seen.left);
      OpCounts cost = lab.nodes[0].endpoint.counts();
      cost -= before;
      EXPECT_EQ(cost.of(Purpose::acquire), 1u);
      // As in the paper, a READ of the queue goes along with the FAA; adaptively, only if somebody may
      // wait.
      EXPECT_EQ(cost.of(Purpose::release), read == cql::ReleaseRead::always ? 2u : 1u);
      EXPECT_EQ(cost.of(OpKind::fetch_add), 2u);
      EXPECT_EQ(cost.messages, 0u);
    }
    EXPECT_EQ(lab.header(), Header{.ticket = Ticket{2}});
  }
}

TEST(Cql, AWaiterCostsOneMoreWriteAndOneMessage) {
  Lab lab{2};
  Visit holder, waiter;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::exclusive, microseconds(50),
                  holder));
  lab.run(microseconds(10));
  lab.start(visit(lab.nodes[1].worker, lab.nodes[1].lock, Lab::kLock, Mode::exclusive, {}, waiter));
  lab.run(microseconds(30));
  EXPECT_TRUE(holder.entered);
  EXPECT_FALSE(waiter.entered);
  lab.run(milliseconds(1));
  ASSERT_TRUE(lab.all_done());
  EXPECT_EQ(acquire_ops(lab.nodes[1].endpoint), 2u);  // FAA, WRITE
  EXPECT_EQ(lab.nodes[0].endpoint.counts().messages, 1u);
  EXPECT_EQ(release_ops(lab.nodes[0].endpoint), 2u);
  EXPECT_EQ(lab.engine.counts().of(Purpose::refetch), 0u);
  EXPECT_EQ(lab.header(), Header{.ticket = Ticket{2}});
}

TEST(Cql, ReadersBehindAWriterEnterTogether) {
  Lab lab{4};
  std::array<Visit, 4> seen;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::exclusive, microseconds(50),
                  seen[0]));
  lab.run(microseconds(10));
  for (std::size_t i = 1; i < 4; ++i) {
    lab.start(visit(lab.nodes[i].worker, lab.nodes[i].lock, Lab::kLock, Mode::shared, microseconds(100),
                    seen[i]));
  }
  lab.run(microseconds(30));
  EXPECT_FALSE(seen[1].entered || seen[2].entered || seen[3].entered);
  lab.run(microseconds(40));
  EXPECT_TRUE(seen[1].entered && seen[2].entered && seen[3].entered);
  EXPECT_FALSE(seen[1].left || seen[2].left || seen[3].left);
  EXPECT_EQ(lab.nodes[0].endpoint.counts().messages, 3u);
  lab.run(milliseconds(1));
  EXPECT_TRUE(lab.all_done());
}

TEST(Cql, AReaderThatLeavesOutOfTurnDoesNotWaitForEntries) {
  // Readers 0 and 1 hold, writer 2 has enqueued but its entry is not there. Reader 1 leaves first: the
  // ticket behind the one it finished is its own, so it owes nothing and must not refetch.
  Lab lab{3};
  lab.set_header({.ticket = Ticket{0}, .qsize = 3, .wcnt = 1});
  Visit ghost;
  bool left = false;
  struct Leave {
    static Task<void> run(Worker&, cql::CqlLock& lock, bool& done) {
      const Result<void> released =
          co_await lock.release(Hold{Lab::kLock, Mode::shared, Epoch{0}, Ticket{1}});
      done = static_cast<bool>(released);
    }
  };
  lab.start(Leave::run(lab.nodes[1].worker, lab.nodes[1].lock, left));
  lab.run(microseconds(20));
  EXPECT_TRUE(left);
  EXPECT_EQ(lab.engine.counts().of(Purpose::refetch), 0u);
}

TEST(Cql, StrayGrantsWakeNobody) {  // H20
  Lab lab{3};
  Visit holder, waiter;
  lab.set_header({.epoch = Epoch{5}});
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::exclusive,
                  microseconds(100), holder));
  lab.run(microseconds(10));
  lab.start(visit(lab.nodes[1].worker, lab.nodes[1].lock, Lab::kLock, Mode::exclusive, {}, waiter));
  lab.run(microseconds(10));
  const cql::Grant right{{Lab::kLock, {Epoch{5}, 1}, Ticket{1}}, {}};
  cql::Grant other_ticket = right, other_epoch = right, other_lock = right, other_life = right;
  other_ticket.key.ticket = Ticket{2};
  other_epoch.key.era.epoch = Epoch{4};
  other_life.key.era.mn_incarnation = 2;
  other_lock.key.lock.offset += 80;
  for (const cql::Grant& stray : {other_ticket, other_epoch, other_lock, other_life}) {
    lab.nodes[2].endpoint.send(lab.nodes[1].endpoint.id(), stray.to_message());
    lab.run(microseconds(10));
    EXPECT_FALSE(waiter.entered);
  }
  lab.nodes[2].endpoint.send(lab.nodes[1].endpoint.id(), right.to_message());
  lab.run(microseconds(10));
  EXPECT_TRUE(waiter.entered);  // so the strays did arrive
}

TEST(Cql, WaitsForAResetWithReadsAndThenTriesAgain) {  // H7, H14
  Lab lab{2};
  lab.set_header({.epoch = Epoch{1}, .reset_id = claim_of(1)});
  Visit seen;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::exclusive, {}, seen));
  lab.run(milliseconds(1));
  EXPECT_FALSE(seen.entered);
  EXPECT_EQ(lab.nodes[0].endpoint.counts().of(OpKind::fetch_add), 1u);
  EXPECT_GT(lab.nodes[0].endpoint.counts().of(OpKind::read), 3u);
  lab.set_header({.ticket = Ticket{9}, .epoch = Epoch{2}});
  lab.run(milliseconds(5));
  ASSERT_TRUE(seen.left);
  EXPECT_EQ(seen.hold.epoch, Epoch{2});
  EXPECT_EQ(seen.hold.ticket, Ticket{9});
}

TEST(Cql, AClaimThatItsOwnerDoesNotRunIsAdoptedByIt) {  // H18
  Lab lab{2};
  lab.set_header({.qsize = 3, .wcnt = 1, .reset_id = claim_of(1)});
  Visit seen;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::shared, {}, seen));
  lab.run(milliseconds(10));
  EXPECT_TRUE(seen.left);
  EXPECT_EQ(lab.nodes[0].lock.resets().done, 0u);
  EXPECT_EQ(lab.nodes[1].lock.resets().done, 1u) << "it was asked";
  EXPECT_EQ(seen.hold.epoch, Epoch{1});
  EXPECT_EQ(seen.hold.ticket, Ticket{4}) << "above every ticket that was handed out";
}

TEST(Cql, AClaimOfSomebodyWhoIsNoMemberIsTakenOver) {
  Lab lab{2};
  lab.set_header({.qsize = 1, .wcnt = 1, .reset_id = ResetId{11}});
  Visit seen;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::shared, {}, seen));
  lab.run(milliseconds(10));
  EXPECT_TRUE(seen.left);
  EXPECT_EQ(lab.nodes[0].lock.resets().done, 1u);
}

TEST(Cql, AReleaseThatMeetsAResetIsDone) {
  Lab lab{2};
  Visit seen;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::exclusive, microseconds(50),
                  seen));
  lab.run(microseconds(10));
  lab.set_header({.qsize = 2, .wcnt = 2, .reset_id = claim_of(1)});
  lab.run(milliseconds(1));
  EXPECT_TRUE(seen.left);
  EXPECT_EQ(seen.error, Errc::ok);
  EXPECT_EQ(lab.engine.counts().of(Purpose::refetch), 0u);
}

TEST(Cql, ARefetchThatFindsAnotherEpochIsDone) {
  Lab lab{2};
  Visit seen;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::exclusive, microseconds(50),
                  seen));
  lab.run(microseconds(10));
  lab.set_header({.qsize = 2, .wcnt = 2});  // somebody who never writes its entry
  lab.run(microseconds(100));
  EXPECT_FALSE(seen.left);
  EXPECT_GT(lab.engine.counts().of(Purpose::refetch), 5u);
  lab.set_header({.ticket = Ticket{2}, .epoch = Epoch{1}});
  lab.run(microseconds(200));
  EXPECT_TRUE(seen.left);
  EXPECT_EQ(seen.error, Errc::ok);
}

TEST(Cql, ALongRefetchSlowsDown) {  // H15: the entry's owner is only slow
  Lab lab{2};
  Visit seen;
  lab.nodes[1].requests.use(Lab::kLock).outstanding = 1;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::exclusive, microseconds(50),
                  seen));
  lab.run(microseconds(10));
  lab.set_header({.qsize = 2, .wcnt = 2});
  lab.run(milliseconds(4));
  const std::uint64_t at_first = lab.engine.counts().of(Purpose::refetch);
  lab.run(milliseconds(100));
  EXPECT_FALSE(seen.left);
  EXPECT_LT(lab.engine.counts().of(Purpose::refetch) - at_first, 110u);
}

// H15, H35: its owner left the queue and asked again.
TEST(Cql, AnEntryThatNobodyIsAboutToWriteEndsInAReset) {
  Lab lab{2};
  Visit seen;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::exclusive, microseconds(50),
                  seen));
  lab.run(microseconds(10));
  lab.set_header({.qsize = 2, .wcnt = 2});
  lab.run(milliseconds(200));
  EXPECT_TRUE(seen.left);
  EXPECT_EQ(lab.header().epoch, Epoch{1});
}

TEST(Cql, AFullQueueIsResetAndNoEntryWritten) {  // H10
  Lab lab{2};
  lab.set_header({.qsize = 2, .wcnt = 2});
  Visit seen;
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::shared, {}, seen));
  lab.run(milliseconds(1));
  EXPECT_EQ(lab.engine.counts().of(OpKind::write), 0u);
  EXPECT_TRUE(seen.left);
  EXPECT_EQ(seen.hold.epoch, Epoch{1});
  EXPECT_EQ(seen.hold.ticket, Ticket{3});
}

TEST(Cql, TicketsStartAgainBeforeTheyRepeat) {  // H24
  Lab lab{2};
  const std::uint64_t limit = lab.shape.ticket_limit.value;
  Visit before, after;
  lab.set_header({.ticket = Ticket{limit - 1}});
  lab.engine.memory(MnId{0}).store(8, 77);  // an entry of long ago
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::shared, {}, before));
  lab.run(milliseconds(1));
  EXPECT_TRUE(before.left);
  lab.start(visit(lab.nodes[0].worker, lab.nodes[0].lock, Lab::kLock, Mode::shared, {}, after));
  lab.run(milliseconds(1));
  EXPECT_TRUE(after.left);
  EXPECT_EQ(after.hold.ticket, Ticket{0});
  EXPECT_EQ(after.hold.epoch, Epoch{1});
  EXPECT_EQ(lab.engine.memory(MnId{0}).load(8), 0u);
  EXPECT_EQ(lab.engine.memory(MnId{0}).load(lab.shape.wraps_addr(Lab::kLock).offset), 1u);
}

// Until node 0 has posted so many swaps, the last of which has not taken effect yet.
void until_swaps_are_posted(Lab& lab, std::uint64_t count) {
  while (lab.nodes[0].endpoint.counts().of(OpKind::compare_swap) < count) {
    ASSERT_TRUE(lab.engine.step());
  }
}
// As the fetch-and-add of somebody's acquisition does.
void add_a_request(Lab& lab) {
  Header header = lab.header();
  header.qsize += 1;
  lab.set_header(header);
}

TEST(Cql, AClaimantThatOthersComeBeforeTriesAgain) {  // H16
  Lab lab{2, {}, 8};
  lab.nodes[0].lock.reset_for_nothing(Lab::kLock);
  for (std::uint64_t i = 1; i <= 5; ++i) {
    until_swaps_are_posted(lab, i);
    add_a_request(lab);
  }
  lab.run(milliseconds(1));
  EXPECT_EQ(lab.nodes[0].lock.resets().done, 1u);
  EXPECT_EQ(lab.header(), (Header{.ticket = Ticket{5}, .epoch = Epoch{1}}));
}

Task<void> visit_until(Worker& worker, LockClient& lock, Mode mode, const bool& enough,
                       std::uint64_t& visits) {
  while (!enough) {
    const Result<Hold> hold = co_await lock.acquire(Lab::kLock, mode);
    EXPECT_TRUE(hold);
    const Result<void> released = co_await lock.release(*hold);
    EXPECT_TRUE(released);
    visits += 1;
    co_await worker.yield();
  }
}

TEST(Cql, AClaimantGetsThroughALockThatOthersKeepUsing) {  // H16
  Lab lab{4};
  bool enough = false;
  std::uint64_t visits = 0;
  for (std::size_t i = 1; i < lab.nodes.size(); ++i) {
    Lab::Node& node = lab.nodes[i];
    lab.start(visit_until(node.worker, node.lock, i % 2 == 0 ? Mode::shared : Mode::exclusive, enough,
                          visits));
  }
  for (std::uint64_t resets = 1; resets <= 20; ++resets) {
    lab.run(microseconds(100));
    const std::uint64_t before = visits;
    lab.nodes[0].lock.reset_for_nothing(Lab::kLock);
    lab.run(microseconds(500));
    EXPECT_EQ(lab.nodes[0].lock.resets().done, resets);
    EXPECT_GT(visits, before);
  }
  enough = true;
  lab.run(milliseconds(1));
  EXPECT_TRUE(lab.all_done());
  EXPECT_GT(lab.nodes[0].endpoint.counts().of(OpKind::compare_swap), 40u) << "no swap ever failed";
}

TEST(Cql, AnEpochThatSomebodyElseHasResetIsNotResetAgain) {  // H17
  Lab lab{2};
  lab.nodes[0].lock.reset_for_nothing(Lab::kLock);
  until_swaps_are_posted(lab, 1);
  lab.set_header({.ticket = Ticket{7}, .epoch = Epoch{1}});  // what another claimant's reset leaves
  lab.run(milliseconds(1));
  EXPECT_EQ(lab.header(), (Header{.ticket = Ticket{7}, .epoch = Epoch{1}}));
  EXPECT_EQ(lab.nodes[0].lock.resets().done, 0u);
  EXPECT_EQ(lab.nodes[0].endpoint.counts().of(OpKind::compare_swap), 1u);
}

TEST(Cql, ARestoreLosesNoRequestThatComesBeforeIt) {  // H7
  Lab lab{2, {}, 8};
  lab.nodes[0].lock.reset_for_nothing(Lab::kLock);
  until_swaps_are_posted(lab, 1);
  // Each time that it is about to restore somebody finds the claim, and the ticket behind all others.
  for (std::uint64_t i = 2; i <= 4; ++i) {
    until_swaps_are_posted(lab, i);
    EXPECT_NE(lab.header().reset_id, ResetId{0});
    add_a_request(lab);
  }
  lab.run(milliseconds(1));
  EXPECT_EQ(lab.header(), (Header{.ticket = Ticket{3}, .epoch = Epoch{1}})) << "no ticket names two";
  EXPECT_EQ(lab.nodes[0].endpoint.counts().of(OpKind::write), 0u);
}

Task<void> take_token(Worker&, cql::CqlLock& lock, Token& token) {
  const Result<Hold> hold = co_await lock.acquire(Lab::kLock, Mode::exclusive);
  const Result<std::uint64_t> wraps = co_await lock.wraps(Lab::kLock);
  token = lock.token(*hold, *wraps);
  const Result<void> released = co_await lock.release(*hold);
  EXPECT_TRUE(released);
}

TEST(Cql, TokensOfExclusiveHoldersGrowEvenWhenTheTicketWraps) {
  Lab lab{3};
  std::array<Token, 4> tokens;
  for (std::size_t i = 0; i < 3; ++i) {
    lab.start(take_token(lab.nodes[i].worker, lab.nodes[i].lock, tokens[i]));
  }
  lab.run(milliseconds(1));
  ASSERT_TRUE(lab.all_done());
  EXPECT_LT(tokens[0], tokens[1]);
  EXPECT_LT(tokens[1], tokens[2]);
  lab.set_header({.epoch = Epoch{1}});  // what a reset for a wrap leaves
  lab.engine.memory(MnId{0}).store(lab.shape.wraps_addr(Lab::kLock).offset, 1);
  lab.start(take_token(lab.nodes[0].worker, lab.nodes[0].lock, tokens[3]));
  lab.run(milliseconds(1));
  EXPECT_LT(tokens[2], tokens[3]);
}

TEST(Cql, AResetLeavesNoRecordInMembersThatDoNotUseTheLock) {
  Lab lab{2};
  constexpr std::uint64_t kLocks = 3'000;
  for (std::uint64_t i = 0; i < kLocks; ++i) {
    lab.nodes[0].lock.reset_for_nothing(Lab::kLock + i * 512);
    lab.run(microseconds(50));
  }
  ASSERT_EQ(lab.nodes[0].lock.resets().done, kLocks);
  for (Lab::Node& node : lab.nodes) {
    std::size_t records = 0;
    node.requests.for_each([&](const cql::Record&) { records += 1; });
    EXPECT_LE(records, 1'100u);
  }
}

}  // namespace
}  // namespace declock
