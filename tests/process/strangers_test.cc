// Who is not a member, or breaks the rules, at the port of a memory node: refused, with a word why, and the node goes on.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <sstream>

#include "process/memory_node_thread.h"

namespace declock::process {
namespace {

using member::NetNode;

TEST(Strangers, AnotherSecretIsRefusedOnBothSides) {
  MemoryNodeThread mn{1 << 16};
  member::NetNodeConfig config = config_for(mn);
  config.secret = secret_of(2);
  const auto node = NetNode::join(config);
  ASSERT_FALSE(node);
  EXPECT_NE(node.error().find("has another secret"), std::string::npos) << node.error();
  EXPECT_TRUE(mn.logs("has another secret"));
}

// A plain connection, as a stranger would make one.
class Stranger {
 public:
  explicit Stranger(const wire::HostPort& at) : descriptor_(*wire::connect_to(at)) {
    pollfd connected{descriptor_, POLLOUT, 0};
    (void)::poll(&connected, 1, kPatienceMs);
  }
  ~Stranger() { close(descriptor_); }
  void send(std::string_view bytes) const {
    (void)!::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Whatever comes first.
  std::string receive() const {
    char bytes[4096];
    pollfd readable{descriptor_, POLLIN, 0};
    if (::poll(&readable, 1, kPatienceMs) != 1) return {};
    const ssize_t got = read(descriptor_, bytes, sizeof bytes);
    return got > 0 ? std::string(bytes, static_cast<std::size_t>(got)) : std::string{};
  }
  // Until the other side closes it. False: it hangs.
  bool is_closed() const {
    char byte[256];
    pollfd readable{descriptor_, POLLIN, 0};
    while (::poll(&readable, 1, kPatienceMs) == 1) {
      if (read(descriptor_, byte, sizeof byte) <= 0) return true;
    }
    return false;
  }

 private:
  static constexpr int kPatienceMs = kHangs.ns / 1'000'000;
  int descriptor_;
};

// The memory node goes on: somebody who belongs to it can join.
void expect_well(MemoryNodeThread& mn) {
  auto node = NetNode::join(config_for(mn));
  ASSERT_TRUE(node) << node.error();
  (*node)->leave();
}

TEST(Strangers, GarbageOnThePortIsRefusedAndTheNodeGoesOn) {
  MemoryNodeThread mn{1 << 16};
  const Stranger stranger{mn.address()};
  stranger.send(
      "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\nand so on, at some length, so that it is more than a "
      "greeting");
  EXPECT_TRUE(stranger.is_closed());
  EXPECT_TRUE(mn.logs("is not a DecLock")) << mn.log();
  expect_well(mn);
}

TEST(Strangers, ManyOfThemAreAllCountedAndGetAFewLines) {
  constexpr std::uint64_t kMany = 300;
  const Time began = monotonic_now();
  MemoryNodeThread mn{1 << 16, seconds(1)};
  for (std::uint64_t i = 0; i < kMany; ++i) {
    const Stranger stranger{mn.address()};
    stranger.send("GET / HTTP/1.1");
    EXPECT_TRUE(stranger.is_closed());
  }
  std::uint64_t lines = 0;
  std::uint64_t left_out = 0;
  EXPECT_TRUE(soon([&] {
    lines = left_out = 0;
    std::istringstream log{mn.log()};
    for (std::string line; std::getline(log, line);) {
      lines += line.find("is not a DecLock peer") != std::string::npos ? 1 : 0;
      if (line.find("were left out") != std::string::npos) left_out += std::stoull(line);
    }
    return lines + left_out == kMany;
  })) << mn.log();
  const auto seconds_ = static_cast<std::uint64_t>((monotonic_now() - began).ns / 1'000'000'000);
  EXPECT_LE(lines, 5 * (seconds_ + 2));
  EXPECT_EQ(mn.snapshot().connections_refused, kMany);
  expect_well(mn);
}

TEST(Strangers, AHalfOpenConnectionHoldsUpNobodyAndIsDropped) {
  MemoryNodeThread mn{1 << 16, seconds(4)};  // it looks eight times in a lease
  const Stranger stranger{mn.address()};
  stranger.send("DecLock");
  expect_well(mn);
  EXPECT_TRUE(stranger.is_closed());
}

TEST(Strangers, APeerOfAnotherVersionIsToldSoOnBothSides) {
  MemoryNodeThread mn{1 << 16};
  const int descriptor = *wire::connect_to(mn.address());
  wire::Connection other{descriptor,
                         wire::Session{wire::Role::client, secret_of(1), wire::kVersion + 1}, "mn"};
  std::string error;
  (void)soon([&] {
    pollfd ready{descriptor, other.wanted_events(), 0};
    (void)::poll(&ready, 1, 1);
    const auto handled = other.handle(ready.revents);
    if (!handled) error = handled.error();
    return !handled;
  });
  EXPECT_NE(error.find("speaks version 4, this is version 5"), std::string::npos) << error;
  EXPECT_TRUE(mn.logs("speaks version 5, this is version 4")) << mn.log();
  expect_well(mn);
}

// What a member once said, word for word, from somebody who only listened.
TEST(Strangers, AReplayedHandshakeIsRefusedAndTheNodeGoesOn) {
  MemoryNodeThread mn{1 << 16};
  wire::Session member{wire::Role::client, secret_of(1)};
  const Stranger first{mn.address()};
  std::string recorded = member.outgoing();
  first.send(recorded);
  const std::string answer = first.receive();
  member.outgoing().clear();
  ASSERT_TRUE(member.feed(answer));
  ASSERT_TRUE(member.established());
  member.send(member::frame_of(member::Join{1, {{"address", 1}}}));
  recorded += member.outgoing();
  const Stranger second{mn.address()};
  second.send(recorded);
  EXPECT_TRUE(second.is_closed());
  EXPECT_TRUE(mn.logs("has another secret")) << mn.log();
  expect_well(mn);
}

TEST(Strangers, MalformedMessagesAreRefusedAndTheNodeGoesOn) {
  MemoryNodeThread mn{1 << 16};
  for (const std::string& frame :
       {std::string{"\x7f nobody knows this"}, std::string{"\x01"}, std::string{},
        std::string(1 << 20, '\x01'),
        member::frame_of(member::Attach{{Slot{3}, member::Incarnation{7}}, 0, std::string(1000, 'x')})
            .substr(0, 20)}) {
    Insider insider{mn.address()};
    insider.send(frame);
    const std::string answer = insider.next();
    ASSERT_FALSE(answer.empty());
    EXPECT_EQ(answer[0], static_cast<char>(member::Kind::refused));
    EXPECT_EQ(insider.next(), "");
    EXPECT_TRUE(insider.is_over());
  }
  EXPECT_TRUE(mn.logs("hung up"));
  expect_well(mn);
}

TEST(Strangers, WhoIsNoMemberGetsNoAccess) {
  MemoryNodeThread mn{1 << 16};
  Insider insider{mn.address()};
  insider.send(member::frame_of(member::Attach{{Slot{3}, member::Incarnation{7}}, 0, ""}));
  const std::string answer = insider.next();
  ASSERT_FALSE(answer.empty());
  const auto refused = member::from_bytes<member::Refused>(std::string_view{answer}.substr(1));
  ASSERT_TRUE(refused && answer[0] == static_cast<char>(member::Kind::refused));
  EXPECT_TRUE(refused->evicted);
}

}  // namespace
}  // namespace declock::process
