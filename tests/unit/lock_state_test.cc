// What `declock inspect` says of the words of a lock.
#include "looks/lock_state.h"

#include <gtest/gtest.h>

namespace declock::looks {
namespace {

constexpr std::uint32_t kMembers = 8;

LockWords words_of(const Header& header) {
  LockWords words{.name = "orders/42", .at = {MnId{1}, 0x1000}, .members = kMembers};
  words.queue.resize(1 + kMembers);
  words.queue[0] = HeaderLayout{kMembers}.encode(header);
  return words;
}

void put(LockWords& words, unsigned slot, std::uint32_t ticket, Mode mode, Epoch epoch = {},
         Timestamp asked = {}) {
  words.queue[1 + slot] =
      encode(Entry{.tag = ticket, .epoch = epoch, .mode = mode, .timestamp = asked});
}

void expect_said(const LockWords& words, std::initializer_list<const char*> parts) {
  const std::string text = describe(words);
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(LockState, Free) {
  const LockWords words = words_of({.ticket = Ticket{7}});
  expect_said(words, {"orders/42 at mn1+0x1000, 80 bytes", "is        free", "queue     empty",
                      "nobody resets it"});
  EXPECT_EQ(describe(words).find("stale"), std::string::npos);
}

TEST(LockState, HeldExclusivelyAtOnce) {
  const LockWords words = words_of({.ticket = Ticket{7}, .qsize = 1, .wcnt = 1});
  expect_said(words, {"held exclusively by a member that got it at once; nobody waits", "holding",
                      "such a holder writes no entry"});
  const LockState state = decode(words);
  ASSERT_EQ(state.queue.size(), 1u);
  EXPECT_EQ(state.queue[0].mode, Mode::exclusive);
  EXPECT_EQ(state.queue[0].standing, Standing::holds);
}

TEST(LockState, HeldExclusivelyByOneWhoWaited) {
  LockWords words = words_of({.ticket = Ticket{7}, .qsize = 3, .wcnt = 2});
  put(words, 5, 7, Mode::exclusive);
  put(words, 0, 8, Mode::shared);
  put(words, 3, 9, Mode::exclusive);
  put(words, 2, 4, Mode::shared);
  expect_said(words, {"held exclusively by the member in slot 5; 2 wait, 1 of them exclusively",
                      "slot 2: ticket 4, epoch 0"});
  const LockState state = decode(words);
  EXPECT_EQ(state.queue[1].standing, Standing::waits);
  EXPECT_EQ(state.queue[2].slot, Slot{3});
}

TEST(LockState, HeldSharedWithWaiters) {
  LockWords words = words_of({.ticket = Ticket{4}, .qsize = 5, .wcnt = 1});
  put(words, 1, 7, Mode::exclusive);  // before it three readers that got it at once
  put(words, 6, 8, Mode::shared);
  expect_said(words, {"held shared by 3; 2 wait, 1 of them exclusively", "readers leave in any order"});
  const LockState state = decode(words);
  EXPECT_EQ(state.queue[2].standing, Standing::holds);
  EXPECT_EQ(state.queue[3].standing, Standing::waits);
  EXPECT_EQ(state.queue[4].standing, Standing::waits);
}

TEST(LockState, BeingReset) {
  LockWords words = words_of(
      {.ticket = Ticket{4}, .qsize = 2, .wcnt = 1, .epoch = Epoch{3}, .reset_id = ResetId{4 << 2 | 1}});
  put(words, 1, 5, Mode::shared, Epoch{3});
  expect_said(words, {"being reset by the member in slot 3", "the member in slot 3 resets the lock",
                      "aborted"});
  EXPECT_EQ(decode(words).queue[1].standing, Standing::unknown);
}

TEST(LockState, AnEntryOfAnEarlierEpochIsStale) {
  LockWords words =
      words_of({.ticket = Ticket{4}, .qsize = 2, .wcnt = 2, .epoch = Epoch{3}, .reset_id = {}});
  put(words, 1, 5, Mode::exclusive, Epoch{2});
  const LockState state = decode(words);
  EXPECT_FALSE(state.queue[1].entry);
  ASSERT_EQ(state.stale.size(), 1u);
  EXPECT_EQ(state.queue[1].standing, Standing::waits) << "both are writers, by the counts";
  expect_said(words, {"slot 1: ticket 5, epoch 2"});
}

TEST(LockState, AMissingEntryIsSaidToBeMissing) {
  // Either a writer holds and a reader waits, or the other way round.
  const LockWords words = words_of({.ticket = Ticket{4}, .qsize = 2, .wcnt = 1});
  expect_said(words, {"entries are missing", "on its way, or its member died"});
  EXPECT_EQ(decode(words).queue[1].standing, Standing::unknown);
}

TEST(LockState, ATornReadIsNoLock) {
  const LockWords words = words_of({.ticket = Ticket{4}, .qsize = 1, .wcnt = 3});
  expect_said(words, {"no lock"});
}

TEST(LockState, MoreRequestsThanMembersAreGhosts) {
  expect_said(words_of({.ticket = Ticket{4}, .qsize = 11, .wcnt = 0}), {"members that died"});
}

TEST(LockState, TellsTheAgeAsFarAsItCan) {
  LockWords words = words_of({.ticket = Ticket{4}, .qsize = 3, .wcnt = 3});
  words.before = words.queue;
  words.apart = milliseconds(30);
  words.now = Timestamp{500};
  put(words, 1, 5, Mode::exclusive, {}, Timestamp{65'500});
  put(words, 2, 6, Mode::exclusive, {}, Timestamp{100});
  words.before[2] = words.queue[2];
  expect_said(words, {"asked more than 30ms ago", "asked 400us ago"});
  words.now.reset();
  expect_said(words, {"asked within the last 30ms"});
}

}  // namespace
}  // namespace declock::looks
