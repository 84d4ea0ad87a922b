// Mailboxes in shared memory, and senders that are killed half-way.
#include "shm/mailbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "support/soon.h"

namespace declock::shm {
namespace {

constexpr Sender kAlive{Slot{1}, 0, 1};
constexpr Sender kDead{Slot{2}, 0, 7};

class MailboxTest : public testing::Test {
 protected:
  // What has arrived: the first word of each message.
  std::vector<std::uint64_t> receive() {
    std::vector<std::uint64_t> got;
    box_->receive(
        parts_, [](const Sender& s) { return s.slot != kDead.slot; },
        [&](EndpointId, const Message& m) { got.push_back(m.words[0]); });
    return got;
  }
  bool send_as(const Sender& sender, EndpointId from, const Message& message) {
    std::size_t sent = 0;
    return box_->send(sender, from, message, sent);
  }
  bool send(std::uint64_t what) { return send_as(kAlive, EndpointId{1}, {{what, 0, 0}}); }

  // The words of a mailbox, for what a killed sender leaves behind: its tail, its head, then a line per slot that begins
  // with the slot's state.
  std::atomic<std::uint64_t>& tail() { return word(0); }
  std::atomic<std::uint64_t>& state(std::size_t slot) { return word(16 + 8 * slot); }
  static constexpr std::uint64_t claimed_by(const Sender& s, std::uint64_t round) {
    return round << 42 | std::uint64_t{s.incarnation} << 22 | std::uint64_t{s.slot.value} << 2 | 1;
  }

  // The last step of a sender that was slow: from claimed to published, whether or not it was passed over meanwhile.
  void publish(std::size_t slot) { state(slot).fetch_add(1); }

  // Zeroed memory is an empty mailbox.
  std::unique_ptr<Mailbox> box_ = std::make_unique<Mailbox>();
  Parts parts_;

 private:
  std::atomic<std::uint64_t>& word(std::size_t i) {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(box_.get())[i];
  }
};

TEST_F(MailboxTest, HoldsSoManyAndNoMoreUntilTheyAreRead) {
  for (std::uint64_t round = 0; round < 3; ++round) {
    EXPECT_FALSE(box_->anything_arrived());
    for (std::uint64_t i = 0; i < Mailbox::kSlots; ++i) ASSERT_TRUE(send(i));
    EXPECT_FALSE(send(99));
    EXPECT_TRUE(box_->anything_arrived());
    const std::vector<std::uint64_t> got = receive();
    ASSERT_EQ(got.size(), Mailbox::kSlots);
    for (std::uint64_t i = 0; i < Mailbox::kSlots; ++i) EXPECT_EQ(got[i], i);
  }
}

TEST_F(MailboxTest, ASenderKilledAfterItsClaimJamsNobody) {
  for (std::uint64_t lap = 0; lap < 3; ++lap) {
    // Its claim is the last thing that it did: it has not even moved the tail on.
    ASSERT_TRUE(send(1));
    const std::uint64_t ticket = tail().load();
    state(ticket % Mailbox::kSlots).store(claimed_by(kDead, ticket / Mailbox::kSlots));
    ASSERT_TRUE(send(2));
    EXPECT_EQ(receive(), (std::vector<std::uint64_t>{1, 2}));
    for (std::uint64_t i = 0; i < Mailbox::kSlots; ++i) ASSERT_TRUE(send(i)) << i;
    EXPECT_EQ(receive().size(), Mailbox::kSlots);
  }
}

TEST_F(MailboxTest, AClaimThatWasCleanedUpBeforeTheTailMovedOnJamsNobody) {
  state(0).store(claimed_by(kDead, 0));
  EXPECT_TRUE(receive().empty());
  ASSERT_TRUE(send(5));
  EXPECT_EQ(receive(), std::vector<std::uint64_t>{5});
}

TEST_F(MailboxTest, ASlowSenderHoldsUpOnlyItself) {
  const std::uint64_t slow = claimed_by({Slot{3}, 0, 1}, 0);
  state(0).store(slow);
  ASSERT_TRUE(send(1));
  ASSERT_TRUE(send(2));
  ASSERT_TRUE(send_as({Slot{3}, 0, 1}, EndpointId{3}, {{30, 0, 0}}));
  ASSERT_TRUE(send_as({Slot{3}, 1, 1}, EndpointId{4}, {{4, 0, 0}}));
  EXPECT_EQ(receive(), (std::vector<std::uint64_t>{1, 2, 4}))
      << "its second message must not overtake its first";
  publish(0);
  EXPECT_TRUE(box_->anything_arrived());
  EXPECT_EQ(receive(), (std::vector<std::uint64_t>{0, 30}));
  for (std::uint64_t i = 0; i < Mailbox::kSlots; ++i) ASSERT_TRUE(send(i));
  EXPECT_EQ(receive().size(), Mailbox::kSlots);
}

// Its process lives, so its claim stays its own however long that takes.
TEST_F(MailboxTest, ASenderStoppedAfterItsClaimJamsNobody) {
  constexpr Sender kStopped{Slot{3}, 0, 1};
  ASSERT_TRUE(send(0));
  EXPECT_EQ(receive().size(), 1u);
  state(1).store(claimed_by(kStopped, 0));
  std::uint64_t sent = 0;
  std::uint64_t read = 0;
  for (std::uint64_t lap = 0; lap < 5; ++lap) {
    for (std::uint64_t i = 0; i + 1 < Mailbox::kSlots; ++i) ASSERT_TRUE(send(sent++)) << "lap " << lap;
    EXPECT_FALSE(send(99)) << "the slot of the stopped sender is nobody else's";
    EXPECT_TRUE(box_->anything_arrived());
    for (const std::uint64_t what : receive()) EXPECT_EQ(what, read++);
    EXPECT_FALSE(box_->anything_arrived());
  }
  EXPECT_EQ(read, sent);
  publish(1);
  EXPECT_TRUE(box_->anything_arrived());
  EXPECT_EQ(receive().size(), 1u) << "what it had to say counts";
  EXPECT_FALSE(box_->anything_arrived());
  for (std::uint64_t lap = 0; lap < 3; ++lap) {
    for (std::uint64_t i = 0; i < Mailbox::kSlots; ++i) ASSERT_TRUE(send(i)) << "lap " << lap;
    EXPECT_EQ(receive().size(), Mailbox::kSlots) << "its slot is in use again";
  }
}

// It was passed over before it, or anybody else, had moved the tail on. What is sent next must not come behind the reader.
TEST_F(MailboxTest, NothingIsLostInTheSlotOfASenderThatWasPassedOver) {
  for (const bool killed : {true, false}) {
    box_ = std::make_unique<Mailbox>();
    constexpr Sender kStopped{Slot{3}, 0, 1};
    std::vector<std::uint64_t> got;
    const auto receive_while = [&](bool lives) {
      box_->receive(
          parts_, [&](const Sender& s) { return lives || s.slot != kStopped.slot; },
          [&](EndpointId, const Message& m) { got.push_back(m.words[0]); });
    };
    state(0).store(claimed_by(kStopped, 0));
    receive_while(true);
    if (!killed) publish(0);
    receive_while(!killed);
    got.clear();
    for (std::uint64_t i = 1; i <= Mailbox::kSlots; ++i) ASSERT_TRUE(send(i)) << i;
    receive_while(true);
    ASSERT_EQ(got.size(), Mailbox::kSlots) << (killed ? "killed" : "stopped");
    EXPECT_EQ(got.front(), 1u);
  }
}

TEST_F(MailboxTest, ASenderThatIsStoppedAndThenKilledGivesItsSlotBack) {
  state(0).store(claimed_by({Slot{3}, 0, 1}, 0));
  ASSERT_TRUE(send(1));
  EXPECT_EQ(receive(), std::vector<std::uint64_t>{1});
  bool lives = true;
  const auto receive_all = [&] {
    std::size_t count = 0;
    box_->receive(
        parts_, [&](const Sender& s) { return lives || s.slot != Slot{3}; },
        [&](EndpointId, const Message&) { ++count; });
    return count;
  };
  for (std::uint64_t i = 0; i + 1 < Mailbox::kSlots; ++i) ASSERT_TRUE(send(i));
  EXPECT_EQ(receive_all(), Mailbox::kSlots - 1);
  lives = false;
  EXPECT_EQ(receive_all(), 0u);
  for (std::uint64_t lap = 0; lap < 2; ++lap) {
    for (std::uint64_t i = 0; i < Mailbox::kSlots; ++i) ASSERT_TRUE(send(i)) << "lap " << lap;
    EXPECT_EQ(receive_all(), Mailbox::kSlots);
  }
}

// What it sends after a late message is behind it, also where the ring puts it before.
TEST_F(MailboxTest, ALateMessageComesBeforeTheNextOfItsSender) {
  constexpr Sender kSlow{Slot{3}, 0, 1};
  for (std::uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(send(i));
  EXPECT_EQ(receive().size(), 40u);
  state(40).store(claimed_by(kSlow, 0));
  for (std::uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(send(i));
  EXPECT_EQ(receive().size(), 40u);
  publish(40);
  ASSERT_TRUE(send_as(kSlow, EndpointId{3}, {{7, 0, 0}}));
  EXPECT_EQ(receive(), (std::vector<std::uint64_t>{0, 7}));
}

TEST_F(MailboxTest, ManySendersAtOnceLoseNothing) {
  constexpr std::uint64_t kEach = 5'000;
  std::vector<std::jthread> senders;
  for (std::uint16_t who = 0; who < 3; ++who) {
    senders.emplace_back([this, who] {
      for (std::uint64_t i = 0; i < kEach;) {
        if (send_as({Slot{10}, who, 1}, EndpointId{who}, {{i, 0, 0}})) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::array<std::uint64_t, 3> next{};
  while (next != std::array<std::uint64_t, 3>{kEach, kEach, kEach}) {
    box_->receive(
        parts_, [](const Sender&) { return true; },
        [&](EndpointId from, const Message& m) { ASSERT_EQ(m.words[0], next[from.value]++); });
    if (HasFatalFailure()) break;
    std::this_thread::yield();
  }
}

// One of them dawdles between its claim and its message, again and again, by the steps that a sender takes.
TEST_F(MailboxTest, ASenderThatDawdlesUnderLoadLosesNothingAndStopsNobody) {
  constexpr std::uint64_t kEach = 20'000;
  constexpr Sender kSlow{Slot{11}, 0, 1};
  std::atomic<std::uint64_t> others_read{0};
  std::vector<std::jthread> senders;
  for (std::uint16_t who = 0; who < 2; ++who) {
    senders.emplace_back([this, who] {
      for (std::uint64_t i = 0; i < kEach;) {
        if (send_as({Slot{10}, who, 1}, EndpointId{who}, {{i, 0, 0}})) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::uint64_t slow_sent = 0;
  const std::jthread slow{[&] {
    while (others_read.load() < 2 * kEach) {
      const std::uint64_t ticket = tail().load();
      std::atomic<std::uint64_t>& at = state(ticket % Mailbox::kSlots);
      std::uint64_t free = ticket / Mailbox::kSlots << 42;
      if (!at.compare_exchange_strong(free, claimed_by(kSlow, ticket / Mailbox::kSlots))) continue;
      const std::uint64_t before = others_read.load();
      // Longer than the ring is, so that it comes round: only if nobody is held up does this end.
      while (others_read.load() < std::min(before + 200, 2 * kEach)) std::this_thread::yield();
      (&at)[1].store(2 | std::uint64_t{1} << 32);  // from endpoint 2, one word
      (&at)[2].store(slow_sent++);
      at.fetch_add(1);
    }
  }};
  std::array<std::uint64_t, 3> next{};
  const Time latest = monotonic_now() + kHangs;
  while (others_read.load() < 2 * kEach && monotonic_now() < latest) {
    box_->receive(
        parts_, [](const Sender&) { return true; },
        [&](EndpointId from, const Message& m) {
          EXPECT_EQ(m.words[0], next[from.value]++);
          if (from.value < 2) others_read.fetch_add(1);
        });
    std::this_thread::yield();
  }
  EXPECT_EQ(others_read.load(), 2 * kEach) << "somebody was held up";
  others_read.store(2 * kEach);
  for (std::jthread& sender : senders) sender.join();
  const_cast<std::jthread&>(slow).join();
  box_->receive(
      parts_, [](const Sender&) { return true; },
      [&](EndpointId from, const Message& m) { EXPECT_EQ(m.words[0], next[from.value]++); });
  EXPECT_EQ(next[2], slow_sent);
  EXPECT_GT(slow_sent, 0u);
}

// As if every slot had just been given back by a sender that was slow: whoever claims one while the reader passes by is heard.
TEST_F(MailboxTest, SlotsThatSlowSendersGaveBackLoseNoMessage) {
  constexpr std::uint64_t kEach = 100'000;
  constexpr std::uint64_t kLateFree = std::uint64_t{1} << 63;
  std::jthread sender{[&] {
    const Time latest = monotonic_now() + kHangs;
    for (std::uint64_t i = 0; i < kEach && monotonic_now() < latest;) {
      if (send(i)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  }};
  std::uint64_t next = 0;
  const Time latest = monotonic_now() + kHangs;
  while (next < kEach && monotonic_now() < latest) {
    for (const std::uint64_t what : receive()) ASSERT_EQ(what, next++);
    for (std::size_t i = 0; i < Mailbox::kSlots; ++i) {
      std::uint64_t word = state(i).load();
      if ((word & 3) == 0 && word >> 42 != 0) state(i).compare_exchange_strong(word, kLateFree);
    }
  }
  EXPECT_EQ(next, kEach) << "a message was passed over";
}

// ---------------------------------------------------------------- messages that are longer than a slot (M4)

using Words = std::vector<std::uint64_t>;

class LongMessages : public MailboxTest {
 protected:
  static Message message(std::uint64_t what, std::size_t words) {
    Message made;
    for (std::size_t i = 0; i < words; ++i) made.words.push_back(what + i);
    return made;
  }
  static Words words_of(const Message& m) { return {m.words.begin(), m.words.end()}; }
  // Into a mailbox with room for so many parts of it. REQUIRES: it was empty.
  void send_beginning(const Sender& sender, const Message& m, std::size_t parts, std::size_t& sent) {
    for (std::size_t i = 0; i < Mailbox::kSlots - parts; ++i) ASSERT_TRUE(send(0));
    EXPECT_FALSE(box_->send(sender, EndpointId{1}, m, sent));
  }
  void send_rest(const Sender& sender, const Message& m, std::size_t sent) {
    ASSERT_TRUE(box_->send(sender, EndpointId{1}, m, sent));
  }
  // What has arrived of what is no filling.
  std::vector<Words> receive_long() {
    std::vector<Words> got;
    box_->receive(
        parts_, [](const Sender&) { return true; },
        [&](EndpointId, const Message& m) {
          if (m.words.size() != 3) got.push_back(words_of(m));
        });
    return got;
  }
};

TEST_F(LongMessages, OfAnyLengthArriveWholeAndInOrder) {
  std::vector<Words> expected;
  std::vector<Words> got;
  const auto receive_all = [&] {
    box_->receive(
        parts_, [](const Sender&) { return true; },
        [&](EndpointId, const Message& m) { got.push_back(words_of(m)); });
  };
  for (std::size_t length = 0; length <= MessageWords::kMax; ++length) {
    for (const std::size_t words : {length, std::size_t{1}}) {
      const Message m = message(1000 * length, words);
      expected.push_back(words_of(m));
      std::size_t sent = 0;
      while (!box_->send(kAlive, EndpointId{1}, m, sent)) receive_all();  // ends: it makes room
    }
  }
  receive_all();
  EXPECT_EQ(got, expected);
}

TEST_F(LongMessages, OfSeveralSendersAtOnceAreNotMixed) {
  constexpr std::array<Sender, 3> kSenders{{{Slot{3}, 0, 1}, {Slot{3}, 1, 1}, {Slot{4}, 1, 1}}};
  std::array<std::size_t, 3> sent{};
  std::vector<Words> expected;
  for (std::size_t i = 0; i < kSenders.size(); ++i) {
    send_beginning(kSenders[i], message(100 * i, 20), 1 + i, sent[i]);
    EXPECT_TRUE(receive_long().empty());
  }
  for (std::size_t i = 0; i < kSenders.size(); ++i) {
    const Message whole = message(100 * i, 20);
    send_rest(kSenders[i], whole, sent[i]);
    expected.push_back(words_of(whole));
  }
  EXPECT_EQ(receive_long(), expected);
}

TEST_F(LongMessages, AFullMailboxTakesTheBeginningAndThenTheRest) {
  const Message longest = message(100, MessageWords::kMax);
  std::size_t sent = 0;
  send_beginning(kAlive, longest, 4, sent);
  EXPECT_EQ(sent, 4 * Part::kWords);
  EXPECT_FALSE(box_->send(kAlive, EndpointId{1}, longest, sent)) << "it is still full";
  EXPECT_TRUE(receive_long().empty());
  send_rest(kAlive, longest, sent);
  EXPECT_EQ(receive_long(), std::vector<Words>{words_of(longest)});
}

// It was killed in the middle, or was merely taken for dead and goes on.
TEST_F(LongMessages, OfSomebodyWhoWasRemovedAreNotJoinedWithThoseOfItsSuccessor) {
  constexpr Sender kOld{Slot{3}, 0, 1};
  constexpr Sender kNew{Slot{3}, 0, 2};
  const Message left = message(100, 12);
  const Message whole = message(200, 12);
  for (const bool goes_on : {false, true}) {
    std::size_t sent_left = 0;
    std::size_t sent_whole = 0;
    send_beginning(kOld, left, 1, sent_left);
    EXPECT_TRUE(receive_long().empty());
    send_beginning(kNew, whole, 1, sent_whole);
    EXPECT_TRUE(receive_long().empty());
    if (goes_on) send_rest(kOld, left, sent_left);
    send_rest(kNew, whole, sent_whole);
    EXPECT_EQ(receive_long(), std::vector<Words>{words_of(whole)});
  }
}

TEST_F(LongMessages, ANewReaderDropsWhatItHasNotSeenTheBeginningOf) {
  const Message half_read = message(100, 20);
  const Message whole = message(200, 20);
  for (const std::size_t parts_read : {1, 2, 3}) {
    std::size_t sent = 0;
    send_beginning(kAlive, half_read, parts_read, sent);
    EXPECT_TRUE(receive_long().empty());
    parts_ = {};
    send_rest(kAlive, half_read, sent);
    send_rest(kAlive, whole, 0);
    EXPECT_EQ(receive_long(), std::vector<Words>{words_of(whole)}) << parts_read;
  }
}

// The beginning is late, the rest is not.
TEST_F(LongMessages, WaitForTheirLateBeginning) {
  const Message slow = message(100, 12);
  std::size_t sent = 0;
  send_beginning(kAlive, slow, 1, sent);
  const std::size_t at = Mailbox::kSlots - 1;
  state(at).fetch_sub(1);  // not yet published
  EXPECT_TRUE(receive_long().empty());
  send_rest(kAlive, slow, sent);
  EXPECT_TRUE(receive_long().empty());
  publish(at);
  EXPECT_EQ(receive_long(), std::vector<Words>{words_of(slow)});
}

}  // namespace
}  // namespace declock::shm
