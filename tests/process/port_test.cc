// A port without a compute node: the test is its switchboard.
#include "net/port.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "member_net/messages.h"
#include "net/worker.h"
#include "networks/networks.h"

namespace declock::net {
namespace {

class NobodyAnswers final : public Switchboard {
 public:
  void attach(std::uint16_t, MnId, const Blob&) override {}
  void ask(std::uint16_t, const PeerId&, const Blob&) override {}
  std::uint32_t incarnation(MnId) const override { return 1; }
};

// Takes one batch, and says no more of it.
class TakesOne final : public Transport {
 public:
  Result<Blob, std::string> offer(MnId) override { return Blob{}; }
  Result<void, std::string> connect(MnId, const Blob&) override { return {}; }
  void drop(MnId) override {}
  bool post(Batch&) override { return !std::exchange(has_one_, true); }
  std::span<std::uint64_t> take(std::size_t words) override { return {words_.data(), words}; }
  void give_back(std::span<std::uint64_t>) override {}
  Blob address() const override { return {}; }
  bool send(const PeerId&, const Blob&, const Packet&) override { return true; }
  void forget(const PeerId&) override {}
  Result<Blob, std::string> accept(const PeerId&, const Blob&) override { return Blob{}; }
  void accepted(const PeerId&, const Blob&) override {}
  bool poll(Sink&) override { return false; }
  int wait_descriptor() const override { return -1; }
  bool may_wait() override { return true; }
  const TransportCounts& counts() const override { return counts_; }

 private:
  bool has_one_ = false;
  std::array<std::uint64_t, 8> words_{};
  TransportCounts counts_;
};

Task<void> add_one(NetEndpoint& endpoint, Result<void>& outcome) {
  Op add = Op::fetch_add({MnId{0}, 0}, 1, Purpose::data);
  outcome = co_await endpoint.post(add);
}

// Whoever does it again may do it twice, or must.
TEST(Port, WhatAnEvictedMemberHadPostedIsNotSaidToBeUndone) {
  NobodyAnswers switchboard;
  NetWorker worker{Prng{1, 1}, [](Time) {}};
  Port port{{}, std::make_unique<TakesOne>(), worker, switchboard};
  worker.set_port(&port);
  NetEndpoint endpoint{EndpointId{0}, worker, port};
  Result<void> posted = Failure{Errc::busy};
  Result<void> unposted = Failure{Errc::busy};
  worker.run([&]() -> Task<void> {
    port.attach(MnId{0});
    port.on_attached(MnId{0}, 1, {});
    Task<void> first = add_one(endpoint, posted);
    Task<void> second = add_one(endpoint, unposted);
    first.start();
    second.start();
    port.evict();
    co_return;
  });
  EXPECT_EQ(posted.error(), Errc::outcome_unknown);
  EXPECT_EQ(unposted.error(), Errc::evicted);
  worker.set_port(nullptr);
}

Task<void> wake_and_destroy(NetWorker& worker, Port& port) {
  {
    Task<Result<void>> waits = port.reconnect(worker, MnId{0});
    waits.start();
    port.evict();  // wakes it
  }
  co_await worker.sleep_for(milliseconds(1));  // meanwhile it would go on
}

TEST(Port, WhoIsDestroyedBetweenBeingWokenAndGoingOnIsForgotten) {
  NobodyAnswers switchboard;
  NetWorker worker{Prng{1, 1}, [](Time) {}};
  auto transport = open_transport({Fabric::tcp}, "127.0.0.1");
  ASSERT_TRUE(transport) << transport.error();
  Port port{{}, std::move(*transport), worker, switchboard};
  worker.set_port(&port);
  worker.run([&] { return wake_and_destroy(worker, port); });
  worker.set_port(nullptr);
}

// A view may be older than a message: who sent it may even have died before this port ever hears of it.
TEST(Port, ThanksForSomebodyWhoIsNotKnownDoNotKeepAWorkerAwake) {
  NobodyAnswers switchboard;
  NetWorker worker{Prng{1, 1}, [](Time) {}};
  auto transport = open_transport({Fabric::tcp}, "127.0.0.1");
  ASSERT_TRUE(transport) << transport.error();
  Port port{{}, std::move(*transport), worker, switchboard};
  Packet second{};
  second.sender = PeerId{.slot = Slot{3}, .incarnation = 1, .worker = 0};
  second.number = 2;  // the first is missing: its sender should hear that at once
  PacketWords words;
  Blob blob = "p";
  blob.append(reinterpret_cast<const char*>(words.data()), pack(second, words) * sizeof words[0]);
  ASSERT_TRUE(port.accept(second.sender, blob));
  EXPECT_TRUE(port.anything_unsent());
  port.poll();
  EXPECT_FALSE(port.anything_unsent());
}

// Through a memory node, whose control connection takes no longer ones.
TEST(Port, APacketOfAnyLengthIsRelayed) {
  struct Heard final : Receiver {
    void on_message(EndpointId, const Message& message) override {
      words.emplace_back(message.words.begin(), message.words.end());
    }
    std::vector<std::vector<std::uint64_t>> words;
  };
  NobodyAnswers switchboard;
  NetWorker worker{Prng{1, 1}, [](Time) {}};
  Port port{{}, std::make_unique<TakesOne>(), worker, switchboard};
  NetEndpoint endpoint{EndpointId{0}, worker, port};
  Heard heard;
  endpoint.set_receiver(&heard);
  Packet packet{};
  packet.sender = PeerId{.slot = Slot{3}, .incarnation = 1, .worker = 0};
  std::vector<std::vector<std::uint64_t>> expected;
  for (std::size_t count = 0; count <= MessageWords::kMax; ++count) {
    packet.number += 1;
    PacketWords words;
    member::Relay relay{};
    relay.blob = "p";
    relay.blob.append(reinterpret_cast<const char*>(words.data()),
                      pack(packet, words) * sizeof words[0]);
    const auto relayed = member::from_bytes<member::Relay>(member::to_bytes(relay));
    ASSERT_TRUE(relayed) << count;
    ASSERT_TRUE(port.accept(packet.sender, relayed->blob));
    expected.emplace_back(packet.message.words.begin(), packet.message.words.end());
    if (count < MessageWords::kMax) packet.message.words.push_back(count);
  }
  EXPECT_EQ(heard.words, expected);
  EXPECT_FALSE(port.accept(packet.sender, "p")) << "too short";
  EXPECT_FALSE(port.accept(packet.sender, "p" + std::string(sizeof(PacketWords) + 8, 'x')))
      << "too long";
  EXPECT_EQ(heard.words.size(), expected.size());
}

}  // namespace
}  // namespace declock::net
