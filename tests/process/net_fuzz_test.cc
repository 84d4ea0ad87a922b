// Whatever the network, a disk or a coordinator gives us to read: a structure in range, or a refusal; never more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/prng.h"
#include "member_net/coordinator_server.h"
#include "ofi/exposure.h"
#include "ofi/transport.h"

namespace declock::member {
namespace {

std::uint64_t inputs() {
  const char* asked = std::getenv("DECLOCK_FUZZ_INPUTS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : 20'000;
}

ClusterState some_state() {
  ClusterState state = ClusterState::empty({.id = 7, .members = 4});
  (void)state.join({{"address", 1}, {"another", 2}}, {});
  (void)state.join({{"third", 3}}, {}, "session");
  (void)state.mn_comes(0, "10.0.0.1:7400");
  (void)state.mn_comes(2, "10.0.0.2:7400");
  return state;
}

// One of each, as they are in real life.
std::vector<std::string> good_frames() {
  const MemberId member{Slot{1}, Incarnation{1}};
  return {frame_of(Join{2, {{"address", 1}, {"another", 2}}}),
          frame_of(Joined{member, some_state()}),
          frame_of(Renew{member}),
          frame_of(Fetch{3}),
          frame_of(StateIs{3, some_state()}),
          frame_of(Changed{3, some_state().change_from(1, {Slot{0}, Slot{3}})}),
          frame_of(Leave{member}),
          frame_of(Left{}),
          frame_of(RegisterMn{1, 7, 1, "10.0.0.3:7400"}),
          frame_of(Registered{2, some_state()}),
          frame_of(RenewMn{1}),
          frame_of(Fence{member}),
          frame_of(Fenced{1, member}),
          frame_of(Attach{member, 1, "offer"}),
          frame_of(Attached{1, 2, "answer"}),
          frame_of(Relay{member, 0, {Slot{0}, Incarnation{1}}, 1, true, "blob"}),
          frame_of(Allocate{9, "table", 4096, "locks"}),
          frame_of(Allocated{9, 64, 8, 1, "error"}),
          frame_of(Refused{true, "why"})};
}

std::string mutated(std::string frame, Prng& random) {
  const std::uint64_t changes = 1 + random.below(4);
  for (std::uint64_t i = 0; i < changes && !frame.empty(); ++i) {
    const std::size_t at = random.below(frame.size());
    switch (random.below(5)) {
      case 0:
        frame[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        frame[at] = static_cast<char>(frame[at] ^ (1 << random.below(8)));
        break;
      case 2:
        frame.resize(at);
        break;
      case 3:
        frame.insert(at, random.below(20), static_cast<char>(random.below(256)));
        break;
      default:
        frame[at] = '\xff';
    }
  }
  return frame;
}

template <class T>
bool reads(const std::string& frame) {
  const std::optional<T> message = from_bytes<T>(std::string_view{frame}.substr(frame.empty() ? 0 : 1));
  // What is read is what would be written: nothing is made up.
  if (message) {
    EXPECT_EQ(to_bytes(*message), frame.substr(1));
  }
  return message.has_value();
}

TEST(NetFuzz, EveryMessageIsReadAsItIsOrRefused) {
  const std::vector<std::string> good = good_frames();
  for (const std::string& frame : good) {
    const bool understood =
        dispatch<Join, Joined, Renew, Fetch, StateIs, Leave, Left, RegisterMn, Registered, RenewMn,
                 Fence, Fenced, Attach, Attached, Relay, Allocate, Allocated, Refused, Changed>(
            frame, [](const auto&) {});
    EXPECT_TRUE(understood) << static_cast<int>(frame[0]);
  }
  Prng random{1, 0};
  std::uint64_t understood = 0;
  for (std::uint64_t i = 0; i < inputs(); ++i) {
    const std::string frame = mutated(good[random.below(good.size())], random);
    if (frame.empty()) continue;
    understood += reads<Join>(frame) + reads<Joined>(frame) + reads<StateIs>(frame) +
                  reads<RegisterMn>(frame) + reads<Registered>(frame) + reads<Attach>(frame) +
                  reads<Relay>(frame) + reads<Allocate>(frame) + reads<Fenced>(frame) +
                  reads<Refused>(frame) + reads<Changed>(frame);
  }
  EXPECT_GT(understood, 0u) << "the mutations never reach far";
}

// The whole coordinator, with senders that say anything in any order: it goes on, and its state stays one of a cluster.
TEST(NetFuzz, ACoordinatorSurvivesWhateverItIsTold) {
  ClusterShape shape;
  shape.members = 4;
  shape.lease = milliseconds(20);
  auto server = CoordinatorServer::open(
      shape, {}, [](wire::LineId, const std::string&) {}, [](const std::string&) {});
  ASSERT_TRUE(server);
  const std::vector<std::string> good = good_frames();
  Prng random{2, 0};
  Time now{};
  for (std::uint64_t i = 0; i < inputs(); ++i) {
    now = now + microseconds(static_cast<std::int64_t>(random.below(2000)));
    const wire::LineId line = 1 + random.below(8);
    const std::string& frame = good[random.below(good.size())];
    (void)(*server)->on_frame(line, random.one_in(2) ? frame : mutated(frame, random));
    if (random.one_in(20)) (*server)->on_down(line);
    if (random.one_in(10)) (*server)->on_tick(now);
    if (random.one_in(3)) (*server)->flush();
    if (i % 64 == 0) {
      ASSERT_TRUE((*server)->state().is_valid()) << i;
    }
  }
  EXPECT_TRUE((*server)->state().is_valid());
}

TEST(NetFuzz, AStateThatIsChangedStaysOneOfACluster) {
  Prng random{3, 0};
  std::uint64_t applied = 0;
  const ClusterState before = some_state();
  const std::string good =
      frame_of(Changed{0, before.change_from(before.number, {Slot{0}, Slot{1}, Slot{2}})});
  for (std::uint64_t i = 0; i < inputs(); ++i) {
    ClusterState state = before;
    (void)dispatch<Changed>(mutated(good, random), [&](const Changed& changed) {
      const bool done = state.apply(changed.change);
      applied += done ? 1 : 0;
      if (!done) {
        EXPECT_EQ(to_bytes(state), to_bytes(before));
      }
    });
    ASSERT_TRUE(state.is_valid()) << i;
  }
  EXPECT_GT(applied, 0u) << "the mutations never reach far";
}

TEST(NetFuzz, AnAddressFromTheNetworkIsCheckedBeforeItIsUsed) {
  const auto network = ofi::Network::open("127.0.0.1");
  ASSERT_TRUE(network) << network.error();
  const auto endpoint = (*network)->make_endpoint();
  ASSERT_TRUE(endpoint);
  const net::Blob good = ofi::AccessAnswer{5, ofi::Network::name_of(endpoint->get())}.to_blob();
  EXPECT_TRUE(ofi::AccessAnswer::from_blob(good, **network));
  Prng random{3, 0};
  for (std::uint64_t i = 0; i < inputs(); ++i) {
    net::Blob blob = mutated(good, random);
    const auto answer = ofi::AccessAnswer::from_blob(blob, **network);
    if (answer) {
      EXPECT_TRUE((*network)->is_address(answer->address));
    }
  }
}

}  // namespace
}  // namespace declock::member
