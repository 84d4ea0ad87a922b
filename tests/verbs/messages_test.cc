// Verbs between workers: messages, what is wrong with blobs, and waiting. On a verbs device, as verbs_test.cc.
#include <poll.h>
#include <unistd.h>

#include "base/prng.h"
#include "verbs/peer.h"

namespace declock::verbs {
namespace {

// Of all lengths, one after the other.
Message message_of(std::uint64_t what) {
  Message message;
  for (std::uint64_t i = 0; i < what % (MessageWords::kMax + 1); ++i)
    message.words.push_back(what + ~i);
  return message;
}

// Two workers, and the channel between them.
struct Pair {
  explicit Pair(std::optional<bool> repeats = {}) : a{1, repeats}, b{2, repeats} {}

  Peer a, b;
  std::uint64_t asked = 0;
  Blob last_ask_of_a;

  void poll() {
    for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      from->poll();
      for (const auto& [peer, blob] : std::exchange(from->asks, {})) {
        EXPECT_EQ(peer, to->id);
        if (from == &a) last_ask_of_a = blob;
        from->transport->accepted(to->id, value(to->transport->accept(from->id, blob)));
        asked += 1;
      }
    }
  }
  bool try_send(Peer& from, Peer& to, std::uint64_t what) {
    const Packet packet{.cookie = 77,
                        .from = EndpointId{from.id.slot.value},
                        .to = EndpointId{to.id.slot.value},
                        .message = message_of(what)};
    return from.transport->send(to.id, to.transport->address(), packet);
  }
  void send(Peer& from, Peer& to, std::uint64_t what) {
    ASSERT_TRUE(soon([&] { poll(); }, [&] { return try_send(from, to, what); }));
  }
};

void expect_all(Pair& pair, const Peer& from, Peer& to, std::uint64_t count) {
  ASSERT_TRUE(soon([&] { pair.poll(); }, [&] { return to.packets.size() >= count; }))
      << to.packets.size();
  ASSERT_EQ(to.packets.size(), count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Packet& got = to.packets[i];
    const Message expected = message_of(i);
    ASSERT_TRUE(std::ranges::equal(got.message.words, expected.words)) << i;
    ASSERT_EQ(got.cookie, 77u);
    ASSERT_EQ(got.from.value, from.id.slot.value);
    ASSERT_EQ(got.to.value, to.id.slot.value);
  }
}

TEST_F(Verbs, MessagesArriveOnceAndInOrderBothWays) {
  constexpr std::uint64_t kMessages = 1200;  // more than a receiver has room for
  Pair pair;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    pair.send(pair.a, pair.b, i);
    pair.send(pair.b, pair.a, i);
  }
  expect_all(pair, pair.a, pair.b, kMessages);
  expect_all(pair, pair.b, pair.a, kMessages);
  EXPECT_EQ(pair.asked, 2u) << "a connection per direction";
}

TEST_F(Verbs, AReceiverThatDoesNotLookHoldsUpTheSender) {
  Pair pair;
  pair.send(pair.a, pair.b, 0);
  std::uint64_t sent = 1;
  const auto send_what_goes = [&] {
    pair.a.poll();
    while (pair.try_send(pair.a, pair.b, sent)) sent += 1;
  };
  ASSERT_TRUE(soon(send_what_goes, [&] { return sent > 1000; })) << sent;
  for (int i = 0; i < 2000; ++i) {  // and not for ever
    send_what_goes();
    usleep(100);
  }
  EXPECT_LT(sent, 1200u);
  expect_all(pair, pair.a, pair.b, sent);
}

TEST_F(Verbs, AMessageConnectionThatBreaksLosesAndRepeatsNothing) {
  Pair pair{kRepeats};
  std::uint64_t sent = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 100; ++i) pair.send(pair.a, pair.b, sent++);
    // Closes the queue pair on which they arrive, and makes one that nobody knows.
    value(pair.b.transport->accept(pair.a.id, pair.last_ask_of_a));
    for (int i = 0; i < 100; ++i) pair.send(pair.a, pair.b, sent++);
    expect_all(pair, pair.a, pair.b, sent);
  }
  EXPECT_GE(pair.asked, 4u);
}

TEST_F(Verbs, WhoWasForgottenCanComeBack) {
  Pair pair;
  for (std::uint64_t i = 0; i < 10; ++i) pair.send(pair.a, pair.b, i);
  expect_all(pair, pair.a, pair.b, 10);
  pair.a.transport->forget(pair.b.id);
  for (std::uint64_t i = 10; i < 20; ++i) pair.send(pair.a, pair.b, i);
  expect_all(pair, pair.a, pair.b, 20);
}

TEST_F(Verbs, MalformedBlobsAreRefused) {
  connect(64);
  Pair pair;
  pair.send(pair.a, pair.b, 0);
  const Blob offer = value(peer_->transport->offer(kMn));
  const Blob answer = value(exposure_->open(peer_->id, offer));
  const Blob ask = pair.last_ask_of_a;
  const Blob address = pair.b.transport->address();
  ASSERT_LE(offer.size(), net::kBlobMax);
  const PeerId nobody{Slot{9}, 1, 0};
  const auto expect_refused = [&](const Blob& bad) {
    EXPECT_FALSE(exposure_->open(nobody, bad));
    EXPECT_FALSE(peer_->transport->connect(kMn, bad));
    EXPECT_FALSE(pair.b.transport->accept(nobody, bad));
    EXPECT_FALSE(pair.a.transport->send(nobody, bad, {}));
    pair.a.transport->accepted(pair.b.id, bad);
    pair.a.transport->accepted(nobody, bad);
  };
  Prng random{1, 2};
  constexpr std::size_t kLongest = 3 * Card::kBytes;
  for (std::size_t length = 0; length <= kLongest; ++length) {
    Blob bad(length, '\0');
    for (char& c : bad) c = static_cast<char>(random.next());
    expect_refused(bad);
    for (const Blob& good : {offer, answer, ask, address}) {
      Blob resized = good;
      resized.resize(length, '\0');
      if (resized.size() != good.size()) expect_refused(resized);
    }
  }
  for (const Blob& good : {offer, answer, ask, address}) {
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      Blob bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      expect_refused(bad);
    }
  }
  for (const Blob& wrong : {answer, ask, address}) EXPECT_FALSE(exposure_->open(nobody, wrong));
  for (const Blob& wrong : {offer, ask, address}) EXPECT_FALSE(peer_->transport->connect(kMn, wrong));
  // And nothing has suffered.
  EXPECT_TRUE(peer_->transport->connect(kMn, answer));
  EXPECT_EQ(peer_->run({peer_->add(0, 1)}), Errc::ok);
  expect_all(pair, pair.a, pair.b, 1);
}

TEST_F(Verbs, TheDescriptorWakesWhoWaits) {
  connect(64);
  Pair pair;
  pair.send(pair.a, pair.b, 0);
  expect_all(pair, pair.a, pair.b, 1);
  const auto is_woken = [](Peer& peer, int timeout_ms) {
    pollfd waits{peer.transport->wait_descriptor(), POLLIN, 0};
    return ::poll(&waits, 1, timeout_ms) == 1;
  };
  const auto expect_silence = [&](Peer& peer, int timeout_ms) {
    EXPECT_TRUE(soon([&] { peer.poll(); }, [&] { return peer.transport->may_wait(); }));
    EXPECT_FALSE(is_woken(peer, timeout_ms)) << "there is nothing";
  };
  const auto wait_until = [&](Peer& peer, auto done) {
    while (!done()) {
      if (peer.transport->may_wait()) {
        ASSERT_TRUE(is_woken(peer, static_cast<int>(kHangs.ns / 1'000'000)));
      }
      peer.poll();
    }
  };
  for (std::uint64_t i = 1; i <= 50; ++i) {
    expect_silence(*peer_, i == 1 ? 200 : 0);
    Batch& add = peer_->batch({peer_->add(0, 1)});
    peer_->post(add);
    wait_until(*peer_, [&] { return peer_->is_told(add); });
    expect_silence(pair.b, 0);
    ASSERT_TRUE(pair.try_send(pair.a, pair.b, i));
    wait_until(pair.b, [&] { return pair.b.packets.size() > i; });
    expect_silence(pair.a, 0);
  }
}

}  // namespace
}  // namespace declock::verbs
