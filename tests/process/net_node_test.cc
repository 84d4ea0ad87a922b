// Memory nodes and compute nodes over TCP: how they join and leave, and what a fence stops.
#include "member_net/net_node.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <set>
#include <thread>

#include "process/memory_node_thread.h"
#include "process/programs.h"

namespace declock::process {
namespace {

using member::NetNode;

Result<void> post(NetNode& node, Op op) {
  Endpoint& endpoint = node.endpoint(0);
  struct Once {
    static Task<Result<void>> run(Endpoint& over, Op& what) { co_return co_await over.post(what); }
  };
  return node.worker(0).run([&] { return Once::run(endpoint, op); });
}

// False: it hangs.
template <class Done>
Task<bool> until(Worker& worker, Done done) {
  const Time latest = worker.now() + kHangs;
  while (!done() && worker.now() < latest) co_await worker.sleep_for(milliseconds(1));
  co_return done();
}
template <class Done>
bool works_until(ThreadWorker& worker, Done done) {
  return worker.run([&] { return until(worker, done); });
}

TEST(NetNode, JoinsUsesMemoryAndLeaves) {
  MemoryNodeThread mn{1 << 20};
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
  MemoryNodeThread mn{1 << 20};
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
  auto exposure = net::open_exposure({Fabric::tcp}, "127.0.0.1", memory);
  auto transport = net::open_transport({Fabric::tcp}, "127.0.0.1");
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
    const auto turn = [&] {
      (void)(*transport)->poll(sink);
      (void)(*exposure)->progress();
    };
    const Time latest = monotonic_now() + kHangs;
    while (memory[static_cast<std::size_t>(round) << 20] == std::byte{0} && monotonic_now() < latest)
      turn();
    (*exposure)->close(peer);
    const std::vector<std::byte> at_fence = memory;
    EXPECT_NE(at_fence.front(), std::byte{0});
    EXPECT_EQ(at_fence.back(), std::byte{0}) << "it was not in the middle";
    (void)soon([&] {
      turn();
      return sink.broken || sink.ended;
    });
    EXPECT_TRUE(sink.broken || sink.ended == Errc::outcome_unknown) << "the writer must hear of it";
    for (int i = 0; i < 1000; ++i) turn();
    EXPECT_EQ(std::memcmp(memory.data(), at_fence.data(), kBytes), 0);
    (*transport)->drop(MnId{0});
    for (int i = 0; i < 1000 && !sink.ended; ++i) (void)(*transport)->poll(sink);
    sink = {};
    transport =
        net::open_transport({Fabric::tcp}, "127.0.0.1");  // the old one may still read the batch
  }
}

TEST(NetNode, AMemberThatIsNotHeardOfIsEvictedAndToldSo) {
  MemoryNodeThread mn{1 << 16, seconds(1)};
  auto node = NetNode::join(config_for(mn));
  ASSERT_TRUE(node) << node.error();
  (*node)->fall_silent();
  ASSERT_TRUE(works_until((*node)->worker(0), [&] { return (*node)->membership(0).evicted(); }));
  const Result<void> told = post(**node, Op::fetch_add({MnId{0}, 0}, 1, Purpose::data));
  EXPECT_FALSE(told);
  EXPECT_EQ(told.error(), Errc::evicted);
  EXPECT_EQ(reinterpret_cast<const std::uint64_t*>(mn.memory().data())[0], 0u);
  EXPECT_TRUE(mn.logs("removed the compute node in slot 0"));
  auto next = NetNode::join(config_for(mn));
  ASSERT_TRUE(next) << next.error();
  EXPECT_NE((*next)->self(), (*node)->self());
  (*next)->leave();
}

// A new member is asked for answers from the moment it is in the view, before its locks are built.
TEST(NetNode, WhatIsSentToANewMemberWaitsUntilItListens) {
  MemoryNodeThread mn{1 << 16};
  auto older = NetNode::join(config_for(mn));
  auto newer = NetNode::join(config_for(mn));
  ASSERT_TRUE(older && newer);
  struct Talk {
    static Task<void> until_known(Worker& worker, member::Membership& m, Endpoint& from,
                                  EndpointId to) {
      while (m.known().members.size() < 2) CHECK(co_await m.refresh(worker));
      for (std::uint64_t i = 1; i <= 3; ++i) from.send(to, {{i, 0, 0}});
    }
    // Mostly what was sent comes meanwhile.
    static Task<void> be_busy(Worker& worker, Endpoint& over) {
      Op add = Op::fetch_add({MnId{0}, 0}, 1, Purpose::data);
      CHECK(co_await over.post(add));
      co_await worker.sleep_for(milliseconds(200));
    }
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
  EXPECT_TRUE(works_until((*newer)->worker(0), [&] { return ear.heard.size() >= 3; }));
  EXPECT_EQ(ear.heard, (std::vector<std::uint64_t>{1, 2, 3}));
  (*newer)->endpoint(0).set_receiver(nullptr);
  (*older)->stop();
  (*older)->leave();
  (*newer)->leave();
}

// Its first message needs a connection, which takes a while; and others wait for what it says.
TEST(NetNode, WhoLeavesIsHeardToTheLastWord) {
  MemoryNodeThread mn{1 << 16};
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
  EXPECT_TRUE(soon([&] { return ear.heard == 7; }));
  (*stays)->stop();
  (*stays)->endpoint(0).set_receiver(nullptr);
  (*stays)->leave();
}

// Decides for itself, and at once.
class FakeCoordinator : public member::ComputeLink {
 public:
  explicit FakeCoordinator(Events& events) : events_(events) {
    state_ = member::ClusterState::empty(state_.shape);
  }
  void fetch(std::uint64_t) override {}
  void leave() override { events_.on_left(); }
  void give_up() override {}
  void on_tick(Time) override {}

 protected:
  void admit(const member::Join& join) {
    const auto self = state_.join(join.workers, {});
    events_.on_joined({self->slot, self->incarnation}, state_);
  }
  Events& events_;
  member::ClusterState state_;
};

template <class Make>
member::NetNodeConfig config_with(Make coordinator) {
  member::NetNodeConfig config;
  config.coordinator.host = "127.0.0.1";
  config.transport = [](const std::string& host) { return net::open_transport({Fabric::tcp}, host); };
  config.other_coordinator = std::move(coordinator);
  return config;
}

// Tells the node of another member right behind the answer to its join, before it can have built anything.
class EagerCoordinator final : public FakeCoordinator {
 public:
  using FakeCoordinator::FakeCoordinator;
  void join(const member::Join& join) override {
    admit(join);
    CHECK(state_.join(join.workers, {}));
    events_.on_state(0, state_);
  }
};

TEST(NetNode, HearsOfThoseWhoJoinedWhileItWasBeingBuilt) {
  auto node = NetNode::join(config_with([](wire::Hub&, member::ComputeLink::Events& events) {
    return std::make_unique<EagerCoordinator>(events);
  }));
  ASSERT_TRUE(node) << node.error();
  EXPECT_TRUE(works_until((*node)->worker(0),
                          [&] { return (*node)->membership(0).known().members.size() == 2; }));
  (*node)->leave();
}

TEST(NetNode, WithoutDescriptorsItCannotBeOpenedAndSaysSo) {
  const auto join = [] {
    return NetNode::join(config_with([](wire::Hub&, member::ComputeLink::Events& events) {
      return std::make_unique<EagerCoordinator>(events);
    }));
  };
  ASSERT_TRUE(join());  // what is loaded once is there
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<std::string> errors;
  for (rlim_t more = 0;; ++more) {  // until there are enough
    const int next = dup(0);
    close(next);
    const rlimit few{static_cast<rlim_t>(next) + more, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto node = join();
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (node) break;
    EXPECT_FALSE(node.error().empty());
    errors.push_back(node.error());
  }
  EXPECT_NE(errors.front().find("too many files open"), std::string::npos) << "the hub's";
  EXPECT_NE(errors.back().find("too many files open"), std::string::npos) << "a worker's";
}

// Takes the node for dead before that can have reached its memory node; the second time it refuses it.
class HastyCoordinator final : public FakeCoordinator {
 public:
  HastyCoordinator(Events& events, int attempt) : FakeCoordinator(events), attempt_(attempt) {}
  void join(const member::Join& join) override {
    if (attempt_ > 1) return events_.on_refused("the second attempt", true);
    (void)state_.mn_comes(0, "127.0.0.1:1");
    admit(join);
    events_.on_evicted();
  }

 private:
  int attempt_;
};

TEST(NetNode, JoinsAgainIfItIsTakenForDeadWhileItJoins) {
  int attempts = 0;
  const auto node = NetNode::join(config_with([&](wire::Hub&, member::ComputeLink::Events& events) {
    return std::make_unique<HastyCoordinator>(events, ++attempts);
  }));
  ASSERT_FALSE(node);
  EXPECT_EQ(attempts, 2);
  EXPECT_EQ(node.error(), "the second attempt");
}

TEST(NetNode, AFullClusterRefusesOneMoreAndSaysWhatToDo) {
  MemoryNodeThread mn{1 << 16, seconds(20), 1};
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

// The only free slot changes hands while somebody who stays must say each time that it knows.
TEST(NetNode, ASlotChangesHandsAsSoonAsEveryWorkerKnows) {
  MemoryNodeThread mn{1 << 16, seconds(20), 2};
  member::NetNodeConfig config = config_for(mn);
  config.patience = kHangs;
  config.workers = config.endpoints = 2;
  auto stays = NetNode::join(config);
  ASSERT_TRUE(stays) << stays.error();
  (*stays)->start();
  for (std::uint32_t i = 1; i <= 20; ++i) {
    auto comes = NetNode::join(config);
    ASSERT_TRUE(comes) << comes.error();
    EXPECT_EQ((*comes)->self().slot.value, 1u);
    EXPECT_EQ((*comes)->self().incarnation.value, i);
    (*comes)->leave();
  }
  (*stays)->stop();
  (*stays)->leave();
}

// Which takes its loop longer than the lease. Compute nodes may be late themselves here, and be taken for dead.
TEST(NetNode, AMemoryNodeDoesNotTakeItselfForDeadInAStormOfJoins) {
  constexpr std::uint32_t kMany = 60;
  MemoryNodeThread mn{1 << 16, milliseconds(40), kMany};
  std::vector<std::unique_ptr<NetNode>> nodes(kMany);
  {
    std::vector<std::jthread> joining;
    for (std::uint32_t i = 0; i < kMany; ++i) {
      joining.emplace_back([&, i] {
        auto node = NetNode::join(config_for(mn));
        if (node) nodes[i] = std::move(*node);
      });
    }
  }
  EXPECT_EQ(mn.log().find("memory node 0 is gone"), std::string::npos) << mn.log();
}

// All of them ask at the same moment.
TEST(NetNode, AStormOfJoinsFinishesAndNobodyIsEvicted) {
  constexpr std::uint32_t kMany = 500;
  MemoryNodeThread mn{1 << 16, seconds(60), kMany};
  std::deque<Insider> joining;
  for (std::uint32_t i = 0; i < kMany; ++i) joining.emplace_back(mn.address());
  for (Insider& one : joining) one.send(member::frame_of(member::Join{1, {{"address", 1}}}));
  std::set<Slot> slots;
  std::uint64_t removals = 0;
  for (Insider& one : joining) {
    EXPECT_TRUE((member::dispatch<member::Joined>(one.next(), [&](const member::Joined& joined) {
      slots.insert(joined.self.slot);
      removals = std::max(removals, joined.state.removals);
      EXPECT_EQ(joined.state.mns[0].incarnation, 1u) << "the memory node has voided itself";
    })));
  }
  EXPECT_EQ(slots.size(), kMany);
  EXPECT_EQ(removals, 0u);
}

// Of memory nodes: does with one, at each of its ticks, what the test says.
class Whim final : public member::MemoryLink {
 public:
  using OnTick = std::function<void(int tick, Events&, member::ClusterState&)>;
  Whim(Events& events, OnTick on_tick, std::vector<std::uint32_t>& registered)
      : events_(events), on_tick_(std::move(on_tick)), registered_(registered) {
    state_ = member::ClusterState::empty(state_.shape);
  }
  void register_as(std::uint16_t, const std::string&, std::uint32_t incarnation) override {
    registered_.push_back(incarnation);
  }
  void fetch(std::uint64_t) override {}
  void fenced(const member::MemberId&) override {}
  void on_tick(Time) override { on_tick_(ticks_++, events_, state_); }

 private:
  Events& events_;
  OnTick on_tick_;
  std::vector<std::uint32_t>& registered_;  // as which incarnations
  member::ClusterState state_;
  int ticks_ = 0;
};

class MemoryNodeAtAWhim : public testing::Test {
 protected:
  void open(Whim::OnTick on_tick) {
    memnode::Config config;
    config.memory = memory_;
    config.secret = secret_of(1);
    config.shape.lease = milliseconds(80);
    config.expose = [](const std::string& host, std::span<std::byte> memory) {
      return net::open_exposure({Fabric::tcp}, host, memory);
    };
    config.other_coordinator = [&](wire::Hub&, member::MemoryLink::Events& events) {
      return std::make_unique<Whim>(events, on_tick, registered_);
    };
    auto node = memnode::MemoryNode::open(config);
    ASSERT_TRUE(node) << node.error();
    node_ = std::move(*node);
  }
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
  std::vector<std::uint32_t> registered_;
  std::unique_ptr<memnode::MemoryNode> node_;
};

TEST_F(MemoryNodeAtAWhim, RegistersOnceEachTimeItIsGivenUp) {
  open([&](int tick, auto& events, member::ClusterState& state) {
    events.on_registered(state.mn_comes(0, "127.0.0.1:1"), state);
    state.mn_goes(0);
    for (int i = 0; i < 3; ++i) events.on_state(0, state);
    if (tick == 1) node_->stop();
  });
  ASSERT_TRUE(node_->run());
  EXPECT_EQ(registered_, (std::vector<std::uint32_t>{0, 1, 2})) << "with the incarnation that it had";
}

// It counts incarnations from 1 again, and knows of nobody who held a lock.
TEST_F(MemoryNodeAtAWhim, StartsAfreshWithACoordinatorThatBeginsAnew) {
  open([&](int tick, auto& events, member::ClusterState& state) {
    state = member::ClusterState::empty({});
    state.shape.id = tick < 2 ? 1 : 2;
    if (tick == 1) memory_[0] = std::byte{7};
    events.on_registered(state.mn_comes(0, "127.0.0.1:1"), state);
    EXPECT_EQ(memory_[0] == std::byte{7}, tick == 1) << tick;
    if (tick == 2) node_->stop();
  });
  ASSERT_TRUE(node_->run());
}

TEST_F(MemoryNodeAtAWhim, SaysWhereANameLiesOnlyOnceItKnowsItsIncarnation) {
  std::atomic<bool> goes{false};
  open([&](int, auto& events, member::ClusterState& state) {
    if (goes.exchange(false)) events.on_registered(state.mn_comes(0, "127.0.0.1:1"), state);
  });
  const std::jthread running{[&] { (void)node_->run(); }};
  Insider insider{node_->address()};
  insider.send(member::frame_of(member::Allocate{1, "name", 64, "raw"}));
  usleep(100'000);  // mostly it is asked before; otherwise this proves nothing, and does not fail
  goes.store(true);
  const std::string answer = insider.next();
  node_->stop();
  ASSERT_FALSE(answer.empty());
  const auto allocated = member::from_bytes<member::Allocated>(std::string_view{answer}.substr(1));
  ASSERT_TRUE(allocated);
  EXPECT_EQ(allocated->incarnation, 1u);
}

TEST(NetNode, AnIdleMemoryNodeUsesNoCpu) {
  TemporaryDirectory directory;
  ASSERT_TRUE(wire::create_secret(directory / "secret"));
  Program mn{{DECLOCK_PROGRAM, "mn", "--listen", "127.0.0.1:0", "--size", "1MiB", "--secret",
              directory / "secret"}};
  ASSERT_TRUE(mn.says(" serves, incarnation ")) << mn.output();
  const Duration before = cpu_time_of(mn.pid());
  const Time began = monotonic_now();
  usleep(500'000);
  const std::int64_t worked_ns = cpu_time_of(mn.pid()).ns - before.ns;
  EXPECT_LT(worked_ns, (monotonic_now() - began).ns / 20);
  mn.send(SIGTERM);
  EXPECT_EQ(mn.wait(), 0);
  EXPECT_NE(mn.output().find("stopped"), std::string::npos);
}

}  // namespace
}  // namespace declock::process
