// The bytes of messages, and sessions that are connected in memory.
#include <gtest/gtest.h>

#include <vector>

#include "wire/bytes.h"
#include "wire/pair.h"

namespace declock::wire {
namespace {

TEST(Bytes, ComeBackAsTheyWereWritten) {
  std::string text;
  Writer{text}.u8(0xfe).u16(0xfedc).u32(0xfedcba98).u64(0xfedcba9876543210).string("lock").bytes("!");
  EXPECT_EQ(text.substr(0, 3), "\xfe\xdc\xfe") << "little endian";
  Reader reader{text};
  EXPECT_EQ(reader.u8(), 0xfe);
  EXPECT_EQ(reader.u16(), 0xfedc);
  EXPECT_EQ(reader.u32(), 0xfedcba98);
  EXPECT_EQ(reader.u64(), 0xfedcba9876543210);
  EXPECT_EQ(reader.string(4), "lock");
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(reader.bytes(1), "!");
  EXPECT_TRUE(reader.done());
}

TEST(Bytes, AReaderThatFailedOnceReadsNothingMore) {
  Reader number{"\1\2\3"};
  EXPECT_EQ(number.u32(), 0u);
  EXPECT_FALSE(number.ok());
  EXPECT_EQ(number.u8(), 0);
  std::string text;
  Writer{text}.string("too long").u8(7);
  Reader too_long{text};
  EXPECT_EQ(too_long.string(7), "");
  EXPECT_EQ(too_long.u8(), 0);
  EXPECT_FALSE(too_long.ok());
  Reader cut{std::string_view{text}.substr(0, 5)};
  EXPECT_EQ(cut.string(100), "");
  EXPECT_FALSE(cut.ok());
}

TEST(Session, FramesArriveInOrderBothWaysInPiecesOfAnySize) {
  const std::vector<std::string> frames{"join", "", std::string(kFrameMax, 'x'),
                                        std::string(1000, '\0')};
  for (const std::size_t piece :
       {std::size_t{1}, std::size_t{3}, std::size_t{45}, std::size_t{100'000}}) {
    Pair pair;
    EXPECT_FALSE(pair.client.session.established());
    pair.talk(piece);
    ASSERT_TRUE(pair.client.session.established());
    ASSERT_TRUE(pair.server.session.established());
    for (const std::string& frame : frames) {
      pair.client.session.send(frame);
      pair.server.session.send(frame);
    }
    EXPECT_EQ(pair.client.session.outgoing().find("join"), std::string::npos) << "in clear";
    pair.talk(piece);
    for (const std::string& frame : frames) {
      EXPECT_EQ(pair.client.session.next_frame(), frame);
      EXPECT_EQ(pair.server.session.next_frame(), frame);
    }
    EXPECT_EQ(pair.client.session.next_frame(), std::nullopt);
    EXPECT_EQ(pair.client.error + pair.server.error, "");
  }
}

TEST(Session, BothSidesSayThatTheOtherHasAnotherSecret) {
  Pair pair{Side{Role::client, secret_of(1)}, Side{Role::server, secret_of(2)}};
  pair.talk();
  const std::string line = "has another secret; use the same secret file on all nodes";
  EXPECT_EQ(pair.client.error, line);
  EXPECT_EQ(pair.server.error, line);
  EXPECT_EQ(pair.client.recorded.substr(44), std::string(32, '\0'))
      << "an unproven server must not get a proof";
}

TEST(Session, BothSidesNameBothVersions) {
  Pair pair{Side{Role::client, secret_of(1), 2}, Side{Role::server, secret_of(1), 1}};
  pair.talk();
  EXPECT_EQ(pair.client.error,
            "speaks version 1, this is version 2; use the same release on all nodes");
  EXPECT_EQ(pair.server.error,
            "speaks version 2, this is version 1; use the same release on all nodes");
}

TEST(Session, AClientIsToldThatAServerHasNoRoom) {
  Side client{Role::client};
  for (const char byte : Session::full()) client.hear({&byte, 1});
  EXPECT_NE(client.error.find("too many files open"), std::string::npos) << client.error;
  Side server{Role::server};
  server.hear(Session::full());
  EXPECT_NE(server.error.find("not a DecLock peer"), std::string::npos) << "no client says so";
}

TEST(Session, AStrangerIsRefusedAtItsFirstWrongByte) {
  for (const Role role : {Role::client, Role::server}) {
    for (const std::string_view garbage : {"G", "GET / HTTP/1.1\r\n\r\n", "DecLocK", "DecLockX"}) {
      Side side{role};
      side.say();
      side.hear(garbage);
      EXPECT_EQ(side.error, "is not a DecLock peer; check the host and the port");
      EXPECT_EQ(side.say(), "");
    }
    Side echoed{role};
    Side same{role};
    same.hear(echoed.say());
    EXPECT_EQ(same.error.empty(), role == Role::server) << "a client is no peer of a client";
  }
}

TEST(Session, AnOversizedFrameIsRefusedByItsLength) {
  Pair pair;
  pair.talk();
  pair.server.hear({"\1\0\x10\0", 4});
  EXPECT_EQ(
      pair.server.error,
      "sent a frame of 1048577 bytes, or it was altered on its way; at most 1048576 are accepted: "
      "connect again");
  pair.server.session.send("to nobody");
  EXPECT_EQ(pair.server.say(), "");
}

TEST(Session, AFrameThatIsRepeatedReorderedReflectedOrLeftOutIsRefused) {
  Pair pair;
  pair.talk();
  pair.client.session.send("one");
  const std::string one = pair.client.say();
  pair.client.session.send("two");
  const std::string two = pair.client.say();
  pair.client.session.send("three");
  const std::string three = pair.client.say();
  const std::vector<std::pair<std::string, std::string>> streams{
      {one + one, "one"},
      {two + one, ""},
      {one + three, "one"},
      {one + two.substr(0, 8) + three, "one"}};
  for (const auto& [stream, accepted] : streams) {
    Session server = SessionCopies::copy(pair.server.session);
    const auto fed = server.feed(stream);
    ASSERT_FALSE(fed);
    EXPECT_EQ(fed.error(), "sent a frame that was altered on its way, or repeated; connect again");
    EXPECT_EQ(server.next_frame().value_or(""), accepted);
    EXPECT_EQ(server.next_frame(), std::nullopt);
    EXPECT_FALSE(server.feed(one)) << "it is over";
  }
  EXPECT_FALSE(pair.client.session.feed(one)) << "its own frame";
}

// Delivers the messages of a handshake and a frame each way, with one bit of one of them turned.
void expect_refusal_of_bit(std::size_t message, std::size_t bit, bool& beyond) {
  Pair pair;
  Side* from = &pair.client;
  Side* to = &pair.server;
  for (std::size_t i = 0; i < 5; ++i) {
    // The third message is the client's proof, then there is a frame of the client and one of the server.
    if (i >= 3 && from->session.established()) from->session.send("frame");
    std::string said = from->say();
    if (i == message) {
      beyond = bit / 8 >= said.size();
      if (beyond) return;
      said[bit / 8] = static_cast<char>(said[bit / 8] ^ (1 << (bit % 8)));
    }
    to->hear(said);
    if (i != 2) std::swap(from, to);
  }
  // A larger length is refused as soon as so much has arrived.
  if (pair.client.error.empty() && pair.server.error.empty()) {
    pair.client.session.send(std::string(kFrameMax, 'm'));
    pair.server.session.send(std::string(kFrameMax, 'm'));
    pair.talk();
  }
  EXPECT_NE(pair.client.error + pair.server.error, "") << message << ' ' << bit;
  Side& victim = message == 1 || message == 4 ? pair.client : pair.server;
  EXPECT_FALSE(victim.session.next_frame()) << message << ' ' << bit;
  EXPECT_FALSE(pair.client.session.established() && pair.server.session.established());
}

TEST(Session, EveryTurnedBitOfTheHandshakeAndOfAFrameIsRefused) {
  std::size_t bits = 0;
  for (std::size_t message = 0; message < 5; ++message) {
    bool beyond = false;
    for (std::size_t bit = 0;; ++bit) {
      expect_refusal_of_bit(message, bit, beyond);
      if (beyond) break;
      ++bits;
    }
  }
  EXPECT_EQ(bits, 8u * (44 + 76 + 32 + 25 + 25));
}

TEST(Session, ARecordedTalkIsWorthNothingToANewSession) {
  Pair pair;
  pair.talk();
  pair.client.session.send("release");
  pair.server.session.send("granted");
  pair.talk();
  Side server{Role::server};
  server.hear(pair.client.recorded);
  EXPECT_TRUE(server.error.starts_with("has another secret")) << server.error;
  EXPECT_FALSE(server.session.next_frame());
  Side client{Role::client};
  client.hear(pair.server.recorded);
  EXPECT_TRUE(client.error.starts_with("has another secret")) << client.error;
}

TEST(Session, AProofThatIsSentBackToItsMakerIsRefused) {
  Side server{Role::server};
  server.hear(Side{Role::client}.say());
  server.hear(server.say().substr(44));
  EXPECT_TRUE(server.error.starts_with("has another secret")) << server.error;
}

TEST(Session, AFrameBeforeTheEndOfTheHandshakeIsRefused) {
  Pair pair;
  pair.talk();
  pair.client.session.send(std::string(100, 'f'));
  const std::string frame = pair.client.say();
  Side at_once{Role::server};
  at_once.hear(frame);
  EXPECT_NE(at_once.error, "");
  Side client{Role::client};
  Side instead_of_proof{Role::server};
  instead_of_proof.hear(client.say());
  instead_of_proof.hear(frame);
  EXPECT_TRUE(instead_of_proof.error.starts_with("has another secret")) << instead_of_proof.error;
  EXPECT_FALSE(instead_of_proof.session.next_frame());
}

TEST(Session, AnUnprovenPeerCanMakeItKeepLittle) {
  Side client{Role::client};
  Side server{Role::server};
  const std::string hello = client.say() + std::string(31, 'p');
  for (const char byte : hello) {
    server.hear({&byte, 1});
    EXPECT_LE(SessionCopies::buffered(server.session), 64u);
  }
  EXPECT_EQ(server.error, "");
  EXPECT_EQ(server.session.outgoing().size(), 76u);
  server.hear(std::string(1 << 20, 'p'));
  EXPECT_NE(server.error, "");
  EXPECT_EQ(SessionCopies::buffered(server.session), 0u);
}

}  // namespace
}  // namespace declock::wire
