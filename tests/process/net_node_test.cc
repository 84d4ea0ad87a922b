// Memory nodes and compute nodes over TCP: who is let in, what a fence stops, and what bad peers do to a memory node.
#include "member_net/net_node.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "memnode/memory_node.h"
#include "networks/networks.h"
#include "process/programs.h"

namespace declock::process {
namespace {

using member::NetNode;

wire::Secret secret_of(std::uint8_t byte) {
  wire::Secret secret;
  secret.key.fill(byte);
  return secret;
}

// A memory node on a thread of the test's, with memory that the test sees.
class MemoryNodeThread {
 public:
  MemoryNodeThread(std::size_t bytes, Duration lease, std::uint32_t members = 4) : memory_(bytes) {
    memnode::Config config;
    config.secret = secret_of(1);
    config.memory = memory_;
    config.shape.members = members;
    config.shape.lease = lease;
    config.expose = [](const std::string& host, std::span<std::byte> memory) {
      return net::open_exposure({net::Network::tcp}, host, memory);
    };
    config.log = [this](const std::string& line) {
      const std::lock_guard guard{mutex_};
      log_ += line + "\n";
    };
    auto node = memnode::MemoryNode::open(config);
    CHECK(node);
    node_ = std::move(*node);
    thread_ = std::jthread{[this] { (void)node_->run(); }};
  }
  ~MemoryNodeThread() { node_->stop(); }

  const wire::HostPort& address() const { return node_->address(); }
  std::span<const std::byte> memory() const { return memory_; }
  std::string log() {
    const std::lock_guard guard{mutex_};
    return log_;
  }
  bool logs(std::string_view text) {
    for (int i = 0; i < 20'000; ++i) {
      if (log().find(text) != std::string::npos) return true;
      usleep(1000);
    }
    return false;
  }

 private:
  std::vector<std::byte> memory_;
  std::mutex mutex_;
  std::string log_;
  std::unique_ptr<memnode::MemoryNode> node_;
  std::jthread thread_;
};

member::NetNodeConfig config_for(const MemoryNodeThread& mn) {
  member::NetNodeConfig config;
  config.coordinator = mn.address();
  config.secret = secret_of(1);
  config.transport = [](const std::string& host) {
    return net::open_transport({net::Network::tcp}, host);
  };
  return config;
}

Result<void> post(NetNode& node, Op op) {
  Endpoint& endpoint = node.endpoint(0);
  struct Once {
    static Task<Result<void>> run(Endpoint& over, Op& what) { co_return co_await over.post(what); }
  };
  return node.worker(0).run([&] { return Once::run(endpoint, op); });
}

TEST(NetNode, JoinsUsesMemoryAndLeaves) {
  MemoryNodeThread mn{1 << 20, seconds(2)};
  auto node = NetNode::join(config_for(mn));
  ASSERT_TRUE(node) << node.error();
  const auto first = (*node)->allocate(MnId{0}, "table", 4096, "64 locks");
  ASSERT_TRUE(first) << first.error();
  const auto again = (*node)->allocate(MnId{0}, "table", 4096, "64 locks");
  ASSERT_TRUE(again);
  EXPECT_EQ(*first, *again) << "a name means the same memory for everybody";
  EXPECT_NE(*(*node)->allocate(MnId{0}, "other", 8, "raw"), *first);
  EXPECT_NE((*node)->allocate(MnId{0}, "table", 8192, "64 locks").error().find("is there already"),
            std::string::npos);
  EXPECT_NE((*node)->allocate(MnId{0}, "large", 1 << 30, "raw").error().find("--size"),
            std::string::npos);
  EXPECT_NE((*node)->allocate(MnId{0}, "odd", 7, "raw").error().find("whole words"), std::string::npos);
  const auto locks = (*node)->allocate_locks(MnId{0}, "locks", 10);
  ASSERT_TRUE(locks) << locks.error();
  EXPECT_EQ(*locks, *(*node)->allocate_locks(MnId{0}, "locks", 10));
  EXPECT_FALSE((*node)->allocate_locks(MnId{0}, "locks", 11));
  const std::uint64_t word = 42;
  EXPECT_TRUE(post(**node, Op::write(first->at, {&word, 1}, Purpose::data)));
  EXPECT_EQ(reinterpret_cast<const std::uint64_t*>(mn.memory().data())[first->at.offset / 8], 42u);
  (*node)->leave();
}

// Large enough for both ways that an operation may go, and a chain of both.
TEST(NetNode, LargeReadsAndWritesKeepTheirOrder) {
  MemoryNodeThread mn{1 << 20, seconds(2)};
  auto node = NetNode::join(config_for(mn));
  ASSERT_TRUE(node) << node.error();
  std::vector<std::uint64_t> large(10'000), got(10'000), small(300), seen(300);
  struct Chain {
    static Task<Result<void>> run(Endpoint& over, Op& a, Op& b, Op& c, Op& d) {
      co_return co_await over.post(a, b, c, d);
    }
  };
  for (std::uint64_t round = 1; round <= 50; ++round) {
    std::fill(large.begin(), large.end(), round);
    std::fill(small.begin(), small.end(), round << 32);
    const RemoteAddr at{MnId{0}, 0};
    Op add = Op::fetch_add(at + 8 * 5000, 1, Purpose::data);
    Op write = Op::write(at, large, Purpose::data);
    Op over = Op::write(at + 8 * 100, small, Purpose::data);
    Op read = Op::read(at, got, Purpose::data);
    ASSERT_TRUE((*node)->worker(0).run(
        [&] { return Chain::run((*node)->endpoint(0), write, over, add, read); }));
    EXPECT_EQ(add.old, round);
    EXPECT_EQ(got[0], round);
    EXPECT_EQ(got[100], round << 32);
    EXPECT_EQ(got[399], round << 32);
    EXPECT_EQ(got[400], round);
    EXPECT_EQ(got[5000], round + 1);
    EXPECT_EQ(got[9999], round);
  }
  (*node)->leave();
}

// H4, H5: what a fence means. A 64 MiB write is under way when the memory node closes the access.
TEST(NetNode, NotOneByteLandsAfterTheMemoryNodeHasSaidThatItIsFenced) {
  constexpr std::size_t kBytes = 64 << 20;
  std::vector<std::byte> memory(kBytes);
  auto exposure = net::open_exposure({net::Network::tcp}, "127.0.0.1", memory);
  auto transport = net::open_transport({net::Network::tcp}, "127.0.0.1");
  ASSERT_TRUE(exposure && transport);
  struct Sink final : net::Transport::Sink {
    void on_complete(net::Batch&, Errc status) override { ended = status; }
    void on_broken(MnId) override { broken = true; }
    void on_packet(const net::Packet&) override {}
    void on_ask(const net::PeerId&, const net::Blob&) override {}
    std::optional<Errc> ended;
    bool broken = false;
  } sink;
  const net::PeerId peer{Slot{0}, 1, 0};
  for (int round = 0; round < 5; ++round) {
    std::fill(memory.begin(), memory.end(), std::byte{0});
    const auto answer = (*exposure)->open(peer, *(*transport)->offer(MnId{0}));
    ASSERT_TRUE(answer && (*transport)->connect(MnId{0}, *answer));
    net::Batch batch;
    batch.count = 1;
    batch.works[0] = {OpKind::write, 0, (*transport)->take(kBytes / 8)};
    std::memset(batch.works[0].local.data(), 0xAB, kBytes);
    ASSERT_TRUE((*transport)->post(batch));
    const auto landed = [&] {
      return memory.size() -
             static_cast<std::size_t>(std::count(memory.begin(), memory.end(), std::byte{0}));
    };
    const Time latest = monotonic_now() + seconds(20);
    while (memory[static_cast<std::size_t>(round) << 20] == std::byte{0} && monotonic_now() < latest) {
      (void)(*transport)->poll(sink);
      (void)(*exposure)->progress();
    }
    (*exposure)->close(peer);
    const std::size_t at_fence = landed();
    EXPECT_GT(at_fence, 0u);
    EXPECT_LT(at_fence, kBytes) << "it was not in the middle";
    for (int i = 0; i < 20'000 && !sink.ended; ++i) {
      (void)(*transport)->poll(sink);
      (void)(*exposure)->progress();
      if (i % 100 == 0) usleep(1000);
    }
    EXPECT_EQ(landed(), at_fence);
    EXPECT_TRUE(sink.broken || sink.ended == Errc::outcome_unknown) << "the writer must hear of it";
    (*transport)->drop(MnId{0});
    for (int i = 0; i < 1000 && !sink.ended; ++i) (void)(*transport)->poll(sink);
    sink = {};
    transport =
        net::open_transport({net::Network::tcp}, "127.0.0.1");  // the old one may still read the batch
  }
}

TEST(NetNode, AMemberThatIsNotHeardOfIsEvictedAndToldSo) {
  MemoryNodeThread mn{1 << 16, milliseconds(200)};
  auto node = NetNode::join(config_for(mn));
  ASSERT_TRUE(node) << node.error();
  struct Until {
    static Task<Result<void>> evicted(Worker& worker, member::Membership& m, Endpoint& over) {
      while (!m.evicted()) co_await worker.sleep_for(milliseconds(1));
      Op add = Op::fetch_add({MnId{0}, 0}, 1, Purpose::data);
      co_return co_await over.post(add);
    }
  };
  (*node)->fall_silent();
  const Result<void> told = (*node)->worker(0).run(
      [&] { return Until::evicted((*node)->worker(0), (*node)->membership(0), (*node)->endpoint(0)); });
  EXPECT_FALSE(told);
  EXPECT_EQ(told.error(), Errc::evicted);
  EXPECT_EQ(reinterpret_cast<const std::uint64_t*>(mn.memory().data())[0], 0u);
  EXPECT_TRUE(mn.logs("removed the compute node in slot 0"));
  auto next = NetNode::join(config_for(mn));
  ASSERT_TRUE(next) << next.error();
  EXPECT_EQ((*next)->self().incarnation.value, 2u);
  (*next)->leave();
}

// A new member is asked for answers from the moment it is in the view, before its locks are built.
TEST(NetNode, WhatIsSentToANewMemberWaitsUntilItListens) {
  MemoryNodeThread mn{1 << 16, seconds(2)};
  auto older = NetNode::join(config_for(mn));
  auto newer = NetNode::join(config_for(mn));
  ASSERT_TRUE(older && newer);
  struct Talk {
    static Task<void> until_known(Worker& worker, member::Membership& m, Endpoint& from,
                                  EndpointId to) {
      while (m.known().members.size() < 2) CHECK(co_await m.refresh(worker));
      for (std::uint64_t i = 1; i <= 3; ++i) from.send(to, {{i, 0, 0}});
    }
    static Task<void> be_busy(Worker& worker, Endpoint& over) {
      Op add = Op::fetch_add({MnId{0}, 0}, 1, Purpose::data);
      CHECK(co_await over.post(add));
      co_await worker.sleep_for(milliseconds(200));
    }
    static Task<void> pause(Worker& worker) { co_await worker.sleep_for(milliseconds(10)); }
  };
  (*older)->start();  // what cannot be sent at once is sent behind the worker's back
  (*older)->worker(0).run([&] {
    return Talk::until_known((*older)->worker(0), (*older)->membership(0), (*older)->endpoint(0),
                             (*newer)->endpoint(0).id());
  });
  (*newer)->worker(0).run([&] { return Talk::be_busy((*newer)->worker(0), (*newer)->endpoint(0)); });
  struct Ear final : Receiver {
    void on_message(EndpointId, const Message& message) override { heard.push_back(message.words[0]); }
    std::vector<std::uint64_t> heard;
  } ear;
  (*newer)->endpoint(0).set_receiver(&ear);
  (*newer)->worker(0).run([&] { return Talk::pause((*newer)->worker(0)); });
  EXPECT_EQ(ear.heard, (std::vector<std::uint64_t>{1, 2, 3}));
  (*newer)->endpoint(0).set_receiver(nullptr);
  (*older)->stop();
  (*older)->leave();
  (*newer)->leave();
}

// Its first message needs a connection, which takes a while; and others wait for what it says.
TEST(NetNode, WhoLeavesIsHeardToTheLastWord) {
  MemoryNodeThread mn{1 << 16, seconds(2)};
  auto stays = NetNode::join(config_for(mn));
  auto leaves = NetNode::join(config_for(mn));
  ASSERT_TRUE(stays && leaves);
  struct Ear final : Receiver {
    void on_message(EndpointId, const Message& message) override { heard = message.words[0]; }
    std::atomic<std::uint64_t> heard = 0;
  } ear;
  (*stays)->endpoint(0).set_receiver(&ear);
  (*stays)->start();
  const EndpointId to = (*stays)->endpoint(0).id();
  (*leaves)->worker(0).run_until([&] {
    (*leaves)->endpoint(0).send(to, {{7, 0, 0}});
    return true;
  });
  (*leaves)->leave();
  leaves->reset();
  for (int i = 0; i < 5000 && ear.heard == 0; ++i) usleep(1000);
  EXPECT_EQ(ear.heard, 7u);
  (*stays)->stop();
  (*stays)->endpoint(0).set_receiver(nullptr);
  (*stays)->leave();
}

// Tells the node of another member right behind the answer to its join, before it can have built anything.
class EagerCoordinator final : public member::ComputeLink {
 public:
  explicit EagerCoordinator(Events& events) : events_(events) {}
  void join(const member::Join& join) override {
    member::ClusterState state;
    state.incarnations.resize(state.shape.members);
    const auto self = state.join(join.workers, {});
    events_.on_joined({self->slot, self->incarnation}, state);
    CHECK(state.join(join.workers, {}));
    events_.on_state(0, state);
  }
  void fetch(std::uint64_t) override {}
  void leave() override { events_.on_left(); }
  void give_up() override {}
  void on_tick(Time) override {}

 private:
  Events& events_;
};

Task<std::size_t> members_known(Worker& worker, member::Membership& membership, std::size_t wanted) {
  for (int i = 0; i < 10'000 && membership.known().members.size() < wanted; ++i)
    co_await worker.sleep_for(milliseconds(1));
  co_return membership.known().members.size();
}

TEST(NetNode, HearsOfThoseWhoJoinedWhileItWasBeingBuilt) {
  member::NetNodeConfig config;
  config.coordinator.host = "127.0.0.1";
  config.transport = [](const std::string& host) {
    return net::open_transport({net::Network::tcp}, host);
  };
  config.other_coordinator = [](wire::Hub&, member::ComputeLink::Events& events) {
    return std::make_unique<EagerCoordinator>(events);
  };
  auto node = NetNode::join(config);
  ASSERT_TRUE(node) << node.error();
  ThreadWorker& worker = (*node)->worker(0);
  EXPECT_EQ(worker.run([&] { return members_known(worker, (*node)->membership(0), 2); }), 2u);
  (*node)->leave();
}

TEST(NetNode, AFullClusterRefusesOneMoreAndSaysWhatToDo) {
  MemoryNodeThread mn{1 << 16, seconds(2), 1};
  auto first = NetNode::join(config_for(mn));
  ASSERT_TRUE(first) << first.error();
  const auto second = NetNode::join(config_for(mn));
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().find("all 1 member slots are taken"), std::string::npos) << second.error();
  (*first)->leave();
  auto third = NetNode::join(config_for(mn));
  ASSERT_TRUE(third) << third.error();
  (*third)->leave();
}

TEST(NetNode, AnotherSecretIsRefusedOnBothSides) {
  MemoryNodeThread mn{1 << 16, seconds(2)};
  member::NetNodeConfig config = config_for(mn);
  config.secret = secret_of(2);
  const auto node = NetNode::join(config);
  ASSERT_FALSE(node);
  EXPECT_NE(node.error().find("has another secret"), std::string::npos) << node.error();
  EXPECT_TRUE(mn.logs("has another secret"));
}

// ---------------------------------------------------------------- peers that are none

// A plain connection, as a stranger would make one.
class Stranger {
 public:
  explicit Stranger(const wire::HostPort& at) : descriptor_(*wire::connect_to(at)) {
    pollfd connected{descriptor_, POLLOUT, 0};
    (void)::poll(&connected, 1, 5000);
  }
  ~Stranger() { close(descriptor_); }
  void send(std::string_view bytes) const {
    (void)!::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Whatever comes first.
  std::string receive(int patience_ms) const {
    char bytes[4096];
    pollfd readable{descriptor_, POLLIN, 0};
    if (::poll(&readable, 1, patience_ms) != 1) return {};
    const ssize_t got = read(descriptor_, bytes, sizeof bytes);
    return got > 0 ? std::string(bytes, static_cast<std::size_t>(got)) : std::string{};
  }
  // Until the other side closes it. False: it does not, in this time.
  bool is_closed(int patience_ms) const {
    char byte[256];
    pollfd readable{descriptor_, POLLIN, 0};
    while (::poll(&readable, 1, patience_ms) == 1) {
      if (read(descriptor_, byte, sizeof byte) <= 0) return true;
    }
    return false;
  }

 private:
  int descriptor_;
};

// The memory node goes on: somebody who belongs to it can join.
void expect_well(MemoryNodeThread& mn) {
  auto node = NetNode::join(config_for(mn));
  ASSERT_TRUE(node) << node.error();
  (*node)->leave();
}

TEST(NetNode, GarbageOnThePortIsRefusedAndTheNodeGoesOn) {
  MemoryNodeThread mn{1 << 16, seconds(2)};
  const Stranger stranger{mn.address()};
  stranger.send(
      "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\nand so on, at some length, so that it is more than a "
      "greeting");
  EXPECT_TRUE(stranger.is_closed(5000));
  EXPECT_TRUE(mn.logs("is not a DecLock")) << mn.log();
  expect_well(mn);
}

TEST(NetNode, AHalfOpenConnectionHoldsUpNobodyAndIsDropped) {
  MemoryNodeThread mn{1 << 16, seconds(2)};
  const Stranger stranger{mn.address()};
  stranger.send("DecLock");
  expect_well(mn);
  EXPECT_TRUE(stranger.is_closed(10'000));
}

TEST(NetNode, APeerOfAnotherVersionIsToldSoOnBothSides) {
  MemoryNodeThread mn{1 << 16, seconds(2)};
  const int descriptor = *wire::connect_to(mn.address());
  wire::Connection other{descriptor,
                         wire::Session{wire::Role::client, secret_of(1), wire::kVersion + 1}, "mn"};
  std::string error;
  for (int i = 0; i < 5000 && error.empty(); ++i) {
    pollfd ready{descriptor, other.wanted_events(), 0};
    (void)::poll(&ready, 1, 1);
    const auto handled = other.handle(ready.revents);
    if (!handled) error = handled.error();
  }
  EXPECT_NE(error.find("speaks version 2, this is version 3"), std::string::npos) << error;
  EXPECT_TRUE(mn.logs("speaks version 3, this is version 2")) << mn.log();
  expect_well(mn);
}

// Somebody who has the secret and breaks the rules all the same.
class Insider {
 public:
  explicit Insider(const wire::HostPort& at)
      : connection_(*wire::connect_to(at), wire::Session{wire::Role::client, secret_of(1)}, "mn") {
    while (!connection_.established()) turn();
  }
  void send(std::string_view frame) { connection_.send(frame); }
  // The next frame; empty: the connection is over.
  std::string next() {
    for (int i = 0; i < 10'000 && !is_over_; ++i) {
      if (auto frame = connection_.next_frame()) return *frame;
      turn();
    }
    return {};
  }
  bool is_over() const { return is_over_; }

 private:
  void turn() {
    pollfd ready{connection_.descriptor(), connection_.wanted_events(), 0};
    (void)::poll(&ready, 1, 1);
    if (ready.revents != 0) is_over_ = !connection_.handle(ready.revents);
  }
  wire::Connection connection_;
  bool is_over_ = false;
};

// What a member once said, word for word, from somebody who only listened.
TEST(NetNode, AReplayedHandshakeIsRefusedAndTheNodeGoesOn) {
  MemoryNodeThread mn{1 << 16, seconds(2)};
  wire::Session member{wire::Role::client, secret_of(1)};
  const Stranger first{mn.address()};
  std::string recorded = member.outgoing();
  first.send(recorded);
  const std::string answer = first.receive(5000);
  member.outgoing().clear();
  ASSERT_TRUE(member.feed(answer));
  ASSERT_TRUE(member.established());
  member.send(member::frame_of(member::Join{1, {{"address", 1}}}));
  recorded += member.outgoing();
  const Stranger second{mn.address()};
  second.send(recorded);
  EXPECT_TRUE(second.is_closed(5000));
  EXPECT_TRUE(mn.logs("has another secret")) << mn.log();
  expect_well(mn);
}

TEST(NetNode, MalformedMessagesAreRefusedAndTheNodeGoesOn) {
  MemoryNodeThread mn{1 << 16, seconds(2)};
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

TEST(NetNode, WhoIsNoMemberGetsNoAccess) {
  MemoryNodeThread mn{1 << 16, seconds(2)};
  Insider insider{mn.address()};
  insider.send(member::frame_of(member::Attach{{Slot{3}, member::Incarnation{7}}, 0, ""}));
  const std::string answer = insider.next();
  ASSERT_FALSE(answer.empty());
  const auto refused = member::from_bytes<member::Refused>(std::string_view{answer}.substr(1));
  ASSERT_TRUE(refused && answer[0] == static_cast<char>(member::Kind::refused));
  EXPECT_TRUE(refused->evicted);
}

TEST(NetNode, AnIdleMemoryNodeUsesNoCpu) {
  TemporaryDirectory directory;
  ASSERT_TRUE(wire::create_secret(directory / "secret"));
  Program mn{{DECLOCK_PROGRAM, "mn", "--listen", "127.0.0.1:0", "--size", "1MiB", "--secret",
              directory / "secret"}};
  ASSERT_TRUE(mn.says(" serves, incarnation ")) << mn.output();
  const auto cpu_ms = [&] {
    std::ifstream file{fmt::format("/proc/{}/stat", mn.pid())};
    std::string word;
    for (int i = 0; i < 13; ++i) file >> word;
    long user = 0, system = 0;
    file >> user >> system;
    return (user + system) * 1000 / sysconf(_SC_CLK_TCK);
  };
  const long before = cpu_ms();
  sleep(2);
  EXPECT_LT(cpu_ms() - before, 100);
  mn.send(SIGTERM);
  EXPECT_EQ(mn.wait(), 0);
  EXPECT_NE(mn.output().find("stopped"), std::string::npos);
}

}  // namespace
}  // namespace declock::process
