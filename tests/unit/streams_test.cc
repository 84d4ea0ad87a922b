#include "net/streams.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace declock::net {
namespace {

// Two workers, and a network between them that loses what the test wants it to.
class StreamsTest : public testing::Test {
 protected:
  struct End {
    PeerId id;
    std::deque<Packet> out;  // on its way from here
    std::vector<std::uint64_t> heard;
    std::deque<Packet> relayed;
    int reconnections = 0;
    bool network_takes = true;
    Streams streams{id,
                    [this](const PeerId&, Packet& packet) {
                      if (network_takes) out.push_back(packet);
                      return network_takes;
                    },
                    [this](const PeerId&) { reconnections += 1; },
                    [this](const PeerId&, Packet& packet) { relayed.push_back(packet); }};
    explicit End(PeerId self) : id(self) {}
  };

  void say(End& from, const End& to, std::uint64_t what) {
    from.streams.send(to.id, {.message = {{what, 0, 0}}}, now);
  }
  void deliver_one(End& from, End& to) {
    const Packet packet = from.out.front();
    from.out.pop_front();
    if (to.streams.arrives(packet, now)) to.heard.push_back(packet.message.words[0]);
  }
  void deliver_all() {
    while (!a.out.empty() || !b.out.empty()) {
      if (!a.out.empty()) deliver_one(a, b);
      if (!b.out.empty()) deliver_one(b, a);
    }
  }
  // As time goes by, with nothing lost.
  void settle(Duration for_so_long = seconds(3)) {
    for (const Time until = now + for_so_long; now < until; now = now + milliseconds(1)) {
      a.streams.pump(now);
      b.streams.pump(now);
      deliver_all();
    }
  }

  Time now{};
  End a{{Slot{0}, 1, 0}};
  End b{{Slot{1}, 1, 0}};
};

TEST_F(StreamsTest, WhatIsLostIsSentAgainAndHeardOnceInOrder) {
  for (std::uint64_t i = 1; i <= 5; ++i) say(a, b, i);
  a.out.erase(a.out.begin() + 1, a.out.begin() + 3);
  deliver_all();
  EXPECT_EQ(b.heard, std::vector<std::uint64_t>{1});
  settle();
  EXPECT_EQ(b.heard, (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_FALSE(a.streams.is_busy() || b.streams.is_busy());
}

TEST_F(StreamsTest, WhatArrivesTwiceIsHeardOnce) {
  say(a, b, 1);
  a.out.push_back(a.out.front());
  settle();
  EXPECT_EQ(b.heard, std::vector<std::uint64_t>{1});
}

TEST_F(StreamsTest, ALostAcknowledgementCostsNothingButARepetition) {
  say(a, b, 1);
  deliver_one(a, b);
  now = now + Streams::kAcknowledgeAfter;
  b.streams.pump(now);
  ASSERT_EQ(b.out.size(), 1u) << "an acknowledgement alone";
  b.out.clear();
  EXPECT_TRUE(a.streams.is_busy());
  settle();
  EXPECT_EQ(b.heard, std::vector<std::uint64_t>{1});
  EXPECT_FALSE(a.streams.is_busy());
}

TEST_F(StreamsTest, AcknowledgementsRideAlong) {
  for (std::uint64_t i = 1; i <= 3; ++i) {
    say(a, b, i);
    deliver_one(a, b);
    say(b, a, i);
    deliver_one(b, a);
  }
  EXPECT_TRUE(a.out.empty() && b.out.empty()) << "one packet for each message";
  settle(Streams::kAcknowledgeAfter * 2);
  EXPECT_FALSE(a.streams.is_busy() || b.streams.is_busy());
}

TEST_F(StreamsTest, OneThatDoesNotArriveAlthoughItIsSentAgainAsksForAnotherConnection) {
  say(a, b, 1);
  for (const Time until = now + seconds(1); now < until; now = now + milliseconds(1)) {
    a.streams.pump(now);
    a.out.clear();
  }
  EXPECT_GE(a.reconnections, 1);
  settle();
  EXPECT_EQ(b.heard, std::vector<std::uint64_t>{1});
}

TEST_F(StreamsTest, OneThatTheNetworkNeverTakesAsksForAnotherConnectionNowAndThen) {
  a.network_takes = false;
  say(a, b, 1);
  for (const Time until = now + seconds(10); now < until; now = now + milliseconds(1))
    a.streams.pump(now);
  EXPECT_GE(a.reconnections, 5);
  EXPECT_LE(a.reconnections, 15);
  ASSERT_FALSE(a.relayed.empty()) << "and it goes another way";
  EXPECT_TRUE(b.streams.arrives(a.relayed.front(), now));
  EXPECT_FALSE(a.streams.arrives(b.streams.thanks_to(a.id), now));
  EXPECT_FALSE(a.streams.is_busy());
}

TEST_F(StreamsTest, WhatTheNetworkDoesNotTakeWaitsInOrder) {
  a.network_takes = false;
  say(a, b, 1);
  EXPECT_TRUE(a.streams.is_urgent());
  a.network_takes = true;
  say(a, b, 2);
  settle();
  EXPECT_EQ(b.heard, (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(StreamsTest, BothWaysUnderHeavyLossNothingIsMissing) {
  std::uint64_t random = 1;
  std::vector<std::uint64_t> all;
  for (std::uint64_t i = 1; i <= 200; ++i) {
    all.push_back(i);
    say(a, b, i);
    say(b, a, i);
    for (End* end : {&a, &b}) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      if ((random >> 60) < 6 && !end->out.empty()) end->out.pop_front();
      end->streams.pump(now);
    }
    deliver_all();
    now = now + milliseconds(1);
  }
  settle();
  EXPECT_EQ(b.heard, all);
  EXPECT_EQ(a.heard, all);
}

}  // namespace
}  // namespace declock::net
