// Random and damaged input. The damage is done to recorded talks behind any of their messages, so that it also reaches a
// session that is established. DECLOCK_FUZZ_INPUTS: how many inputs per test.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "base/prng.h"
#include "wire/bytes.h"
#include "wire/pair.h"

namespace declock::wire {
namespace {

std::uint64_t inputs() {
  const char* const wanted = std::getenv("DECLOCK_FUZZ_INPUTS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 20'000;
}

char random_byte(Prng& prng) {
  return static_cast<char>(prng.next());
}

std::string random_bytes(Prng& prng, std::size_t max) {
  std::string bytes(prng.below(max + 1), '\0');
  for (char& byte : bytes) byte = random_byte(prng);
  return bytes;
}

void damage(Prng& prng, std::string& text) {
  const std::size_t at = prng.below(text.size() + 1);
  const std::size_t count = std::min<std::size_t>(prng.below(40), text.size() - at);
  switch (prng.below(7)) {
    case 0:
      if (count > 0) text[at] = static_cast<char>(text[at] ^ (1 << prng.below(8)));
      break;
    case 1:
      if (count > 0) text[at] = random_byte(prng);
      break;
    case 2:
      text.resize(at);
      break;
    case 3:
      text.erase(at, count);
      break;
    case 4:
      text.insert(at, random_bytes(prng, 40));
      break;
    case 5:
      text.insert(at, text.substr(at, count));
      break;
    default: {  // a number at the edge of what is accepted
      constexpr std::array<std::uint32_t, 6> kEdges{0,          1,         kFrameMax, kFrameMax + 1,
                                                    0x7fffffff, 0xffffffff};
      std::string number;
      Writer{number}.u32(kEdges[prng.below(kEdges.size())]);
      text.replace(at, std::min(number.size(), text.size() - at), number);
    }
  }
}

// A session before some message of a talk, and what it heard from there on.
struct Moment {
  Session session;
  std::size_t frames_before;
  std::string rest;
  std::size_t until_established;  // bytes of the rest
};

// What one side hears in a good talk.
class Talk {
 public:
  explicit Talk(Role role) {
    Pair pair;
    Side& self = role == Role::client ? pair.client : pair.server;
    Side& other = role == Role::client ? pair.server : pair.client;
    for (int round = 0; round < 2; ++round) {
      hear(self, other.say(), 0);
      other.hear(self.say());
    }
    for (std::size_t i = 0; i < frames_.size(); ++i) {
      other.session.send(frames_[i]);
      hear(self, other.say(), i);
    }
  }

  const std::vector<Moment>& moments() const { return moments_; }
  const std::vector<std::string>& frames() const { return frames_; }

 private:
  void hear(Side& self, const std::string& message, std::size_t frames_before) {
    if (message.empty()) return;
    moments_.push_back({SessionCopies::copy(self.session), frames_before, {}, 0});
    for (Moment& moment : moments_) {
      moment.rest += message;
      if (!self.session.established()) moment.until_established = moment.rest.size();
    }
    self.hear(message);
    self.session.next_frame();
  }

  std::vector<std::string> frames_{"join", "", std::string(200, 'f')};
  std::vector<Moment> moments_;
};

std::size_t same_bytes(const std::string& a, const std::string& b) {
  const auto [end, unused] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end - a.begin());
}

void feed_in_pieces(Prng& prng, Session& session, std::string_view input) {
  while (!input.empty()) {
    const std::size_t piece = std::min<std::size_t>(1 + prng.below(200), input.size());
    // From a buffer of just this size, so that the sanitizer sees a read behind its end.
    const std::vector<char> exact(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(piece));
    const bool fed{session.feed({exact.data(), exact.size()})};
    ASSERT_TRUE(fed || !session.established());
    input.remove_prefix(piece);
  }
}

void fuzz(Role role) {
  const Talk talk{role};
  Prng prng{17, role == Role::client ? 1u : 2u};
  std::uint64_t established = 0;
  std::uint64_t frames = 0;
  for (std::uint64_t i = 0; i < inputs(); ++i) {
    const Moment& moment = talk.moments()[prng.below(talk.moments().size())];
    std::string input = prng.one_in(8) ? random_bytes(prng, 300) : moment.rest;
    for (std::uint64_t n = prng.below(4); n > 0; --n) damage(prng, input);
    Session session = SessionCopies::copy(moment.session);
    const std::size_t old = session.outgoing().size();
    feed_in_pieces(prng, session, input);

    ASSERT_LE(SessionCopies::buffered(session), kFrameMax + 16) << i;
    ASSERT_LE(session.outgoing().size() - old, 108u) << i;
    if (session.established()) {
      ++established;
      ASSERT_GE(same_bytes(input, moment.rest), moment.until_established) << i;
    }
    for (std::size_t next = moment.frames_before;; ++next) {
      const auto frame = session.next_frame();
      if (!frame) break;
      ASSERT_LT(next, talk.frames().size()) << i;
      ASSERT_EQ(*frame, talk.frames()[next]) << i;
      ++frames;
    }
  }
  EXPECT_GT(established, inputs() / 10);
  EXPECT_GT(frames, inputs() / 10);
}

TEST(WireFuzz, AClientAcceptsNothingButWhatTheServerSaid) {
  fuzz(Role::client);
}

TEST(WireFuzz, AServerAcceptsNothingButWhatTheClientSaid) {
  fuzz(Role::server);
}

TEST(WireFuzz, AReaderStaysInsideWhatItReads) {
  Prng prng{17, 3};
  std::string good;
  Writer{good}.u8(1).string("node").u16(2).string("").u32(3).u64(4).string(std::string(50, 'n'));
  for (std::uint64_t i = 0; i < inputs(); ++i) {
    std::string input = prng.one_in(4) ? random_bytes(prng, 100) : good;
    for (std::uint64_t n = prng.below(4); n > 0; --n) damage(prng, input);
    const std::vector<char> exact(input.begin(), input.end());
    Reader reader{{exact.data(), exact.size()}};
    for (int gets = 0; gets < 12; ++gets) {
      const bool was_ok = reader.ok();
      std::uint64_t got = 0;
      switch (prng.below(6)) {
        case 0:
          got = reader.u8();
          break;
        case 1:
          got = reader.u16();
          break;
        case 2:
          got = reader.u32();
          break;
        case 3:
          got = reader.u64();
          break;
        case 4:
          got = reader.string(prng.below(60)).size();
          break;
        default:
          got = reader.bytes(prng.below(20)).size();
      }
      ASSERT_TRUE(reader.ok() || got == 0) << i;
      ASSERT_TRUE(was_ok || !reader.ok()) << i;
    }
  }
}

}  // namespace
}  // namespace declock::wire
