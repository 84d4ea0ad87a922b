// Membership by ZooKeeper, against a real ensemble of three servers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <memory>

#include "zk/ensemble.h"
#include "zk/owners.h"

namespace declock::zk {
namespace {

using member::ClusterShape;
using member::MemberId;
using member::ZkAddress;
using member::ZkFault;
using member::ZkSession;

wire::Secret secret_of(std::uint8_t seed) {
  wire::Secret secret;
  secret.key.fill(seed);
  return secret;
}

// What a node in a process of its own tells the test.
struct Told {
  std::atomic<bool> go{false};
  std::atomic<std::uint32_t> incarnation{0};
  std::atomic<int> evictions{0};
  std::atomic<int> turns{0};
};

class Zk : public testing::Test {
 protected:
  // Where somebody dies: it is waited out, and long enough for those who live, on a busy machine.
  static constexpr Duration kShort = seconds(3);

  void SetUp() override {
    if (!Ensemble::missing().empty()) GTEST_SKIP() << Ensemble::missing();
    ensemble_ = Ensemble::shared();
    ASSERT_NE(ensemble_, nullptr);
    at_ = {ensemble_->servers(), testing::UnitTest::GetInstance()->current_test_info()->name()};
    shape_.members = 3;
    shape_.lease = seconds(10);
  }
  void TearDown() override {
    for (const pid_t process : processes_) {
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
  }

  std::unique_ptr<Compute> compute(std::uint8_t seed = 1) {
    return std::make_unique<Compute>(at_, secret_of(seed));
  }
  std::unique_ptr<Memory> memory(std::uint16_t id, std::uint8_t seed = 1) {
    return std::make_unique<Memory>(at_, secret_of(seed), shape_, id,
                                    fmt::format("127.0.0.1:{}", 7000 + id));
  }

  // Runs once `go` is set, until it is killed. REQUIRES: no other thread is alive.
  template <class Work>
  Told& start_process(Work work) {
    void* at = mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    Told& told = *new (at) Told;
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (!told.go.load()) usleep(1'000);  // bounded by the parent's life
      work(told);
      _exit(0);
    }
    processes_.push_back(process);
    return told;
  }
  Told& compute_process() {
    return start_process([this](Told& told) {
      const auto node = compute();
      node->join();
      for (;;) {  // until it is killed
        const ComputeHeard heard = node->heard();
        if (heard.self) told.incarnation.store(heard.self->incarnation.value);
        told.evictions.store(heard.evictions);
        told.turns.fetch_add(1);
        usleep(5'000);
      }
    });
  }
  Told& memory_process(std::uint16_t id) {
    return start_process([this, id](Told& told) {
      const auto node = memory(id);
      for (;;) {  // until it is killed
        told.incarnation.store(node->heard().incarnation);
        usleep(5'000);
      }
    });
  }
  // Until ZooKeeper has so many there.
  bool has(const char* path, std::size_t count) {
    ZkSession session{at_, secret_of(1), [] {}};
    return soon([&] {
      if (!session.ready(shape_.lease)) return false;
      const auto names = session.children(path);
      return names && names->size() == count;
    });
  }
  static bool goes(Told& told) {
    told.go.store(true);
    return soon([&] { return told.incarnation.load() != 0; });
  }

  Ensemble* ensemble_ = nullptr;
  ZkAddress at_;
  ClusterShape shape_;
  std::vector<pid_t> processes_;
};

TEST(ZkUrl, NamesServersAndACluster) {
  const auto three = member::parse_zk_url("zk://zoo1:2181,10.0.0.2:2182,[fd00::1]:2183/test-1");
  ASSERT_TRUE(three);
  EXPECT_EQ(three->servers, "zoo1:2181,10.0.0.2:2182,fd00::1:2183");
  EXPECT_EQ(three->path(), "/declock/test-1");
  EXPECT_EQ(member::parse_zk_url("zk://zoo1:2181")->path(), "/declock/declock");
  EXPECT_EQ(member::parse_zk_url("zk://zoo1:2181/")->path(), "/declock/declock");
  for (const char* bad :
       {"", "zoo1:2181", "zk://", "zk:///name", "zk://zoo1", "zk://zoo1:x", "zk://zoo1:2181,",
        "zk://zoo1:0", "zk://zoo1:2181/a/b", "zk://zoo1:2181/..", "zk://zoo1:2181/a b"}) {
    const auto parsed = member::parse_zk_url(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_NE(parsed.error().find(fmt::format("'{}'", bad)), std::string::npos) << parsed.error();
    EXPECT_EQ(parsed.error().find('\n'), std::string::npos);
  }
}

TEST_F(Zk, MembersJoinAndLeaveAndSlotsAreUsedAgain) {
  const auto first = compute();
  first->join();
  EXPECT_TRUE(soon([&] { return !first->heard().why.empty(); })) << "nobody has made the cluster yet";
  EXPECT_FALSE(first->heard().refused);
  const auto mn = memory(0);
  ASSERT_TRUE(mn->registers());
  EXPECT_EQ(mn->heard().incarnation, 1u);
  ASSERT_TRUE(soon([&] { return first->heard().self.has_value(); }));
  EXPECT_EQ(first->heard().self, (MemberId{Slot{0}, member::Incarnation{1}}));
  EXPECT_EQ(first->heard().state.mns[0].address, "127.0.0.1:7000");
  EXPECT_EQ(first->heard().state.shape.lease, shape_.lease);

  const auto second = compute();
  ASSERT_TRUE(second->joins(2));
  EXPECT_EQ(second->heard().self->slot, Slot{2});
  const auto third = compute();
  ASSERT_TRUE(third->joins());
  EXPECT_EQ(third->heard().self->slot, Slot{1});
  ASSERT_TRUE(first->fetches(1));
  EXPECT_EQ(first->heard().state.members.size(), 3u) << "an answer is no older than its question";
  EXPECT_TRUE(soon([&] { return second->heard().state.members.size() == 3; })) << "everybody is told";
  const auto fourth = compute();
  fourth->join();
  EXPECT_TRUE(soon([&] { return fourth->heard().refused; }));
  EXPECT_NE(fourth->heard().why.find("all 3 member slots are taken"), std::string::npos)
      << fourth->heard().why;

  ASSERT_TRUE(first->leaves());
  EXPECT_EQ(first->heard().evictions, 0);
  EXPECT_EQ(mn->heard().fences, std::vector{*first->heard().self});
  const auto fifth = compute();
  ASSERT_TRUE(fifth->joins());
  EXPECT_EQ(fifth->heard().self, (MemberId{Slot{0}, member::Incarnation{2}}));
  EXPECT_EQ(fifth->heard().state.removals, 0u) << "who leaves by itself does not count";
}

TEST_F(Zk, ThoseWhoJoinAtTheSameTimeGetDifferentSlots) {
  const auto mn = memory(0);
  const std::array<std::unique_ptr<Compute>, 3> nodes{compute(), compute(), compute()};
  for (const auto& node : nodes) node->join();
  std::set<Slot> slots;
  for (const auto& node : nodes) {
    ASSERT_TRUE(soon([&] { return node->heard().self.has_value(); }));
    slots.insert(node->heard().self->slot);
  }
  EXPECT_EQ(slots.size(), nodes.size());
  EXPECT_TRUE(soon([&] { return mn->heard().state.members.size() == nodes.size(); }));
}

TEST_F(Zk, AKilledMemberIsRemovedOnceEveryMemoryNodeHasFencedIt) {
  shape_.lease = seconds(5);  // so long may mn1 keep the others waiting
  Told& victim = compute_process();
  const auto mn0 = memory(0);
  const auto mn1 = memory(1);
  ASSERT_TRUE(mn0->registers() && mn1->registers());
  const auto other = compute();
  ASSERT_TRUE(other->joins(2));
  mn1->hold_fences();
  ASSERT_TRUE(goes(victim));
  kill(processes_[0], SIGKILL);
  ASSERT_TRUE(soon([&] { return mn0->heard().fences.size() == 1 && mn1->heard().fences.size() == 1; }));
  EXPECT_EQ(mn0->heard().fences[0].slot, Slot{0});
  ASSERT_TRUE(has("fenced", 1));
  ASSERT_TRUE(mn0->fetches(1) && mn1->fetches(1));  // they have seen that
  ASSERT_TRUE(other->fetches(1));
  EXPECT_EQ(other->heard().state.members.size(), 2u) << "a memory node has not fenced it yet";
  EXPECT_EQ(other->heard().state.removals, 0u);
  mn1->confirm();
  EXPECT_TRUE(soon([&] { return other->heard().state.members.size() == 1; }));
  EXPECT_EQ(other->heard().state.removals, 1u);
  EXPECT_EQ(other->heard().evictions, 0);
  EXPECT_EQ(mn0->heard().fences.size(), 1u);
  EXPECT_EQ(mn1->heard().fences.size(), 1u);
  EXPECT_TRUE(has("fenced", 0)) << "nothing is left behind";
}

TEST_F(Zk, AMemberThatWasStoppedForTooLongFindsItselfEvicted) {
  shape_.lease = kShort;
  Told& victim = compute_process();
  const auto mn = memory(0);
  ASSERT_TRUE(goes(victim));
  kill(processes_[0], SIGSTOP);
  ASSERT_TRUE(soon([&] { return mn->heard().state.removals == 1; }));
  EXPECT_EQ(victim.evictions.load(), 0);
  kill(processes_[0], SIGCONT);
  EXPECT_TRUE(soon([&] { return victim.evictions.load() != 0; }));
  const int turns = victim.turns.load();
  ASSERT_TRUE(soon([&] { return victim.turns.load() > turns + 50; }));  // a while, as it sees it
  ASSERT_TRUE(mn->fetches(1));
  EXPECT_EQ(victim.evictions.load(), 1);
  EXPECT_TRUE(mn->heard().state.members.empty()) << "nothing revives it";
}

TEST_F(Zk, WhoGivesItselfUpIsFencedAtOnce) {
  const auto mn = memory(0);
  const auto node = compute();
  ASSERT_TRUE(node->joins());
  node->give_up();
  EXPECT_TRUE(soon([&] { return mn->heard().state.removals == 1; }));
  EXPECT_EQ(node->heard().evictions, 0);
}

TEST_F(Zk, AMemoryNodeThatWasAwayIsNotWaitedForAndStartsAfresh) {
  shape_.lease = kShort;
  Told& away = memory_process(1);
  const auto mn = memory(0);
  ASSERT_TRUE(mn->registers());
  ASSERT_TRUE(goes(away));
  const auto victim = compute();
  const auto other = compute();
  ASSERT_TRUE(victim->joins() && other->joins());
  kill(processes_[0], SIGSTOP);
  victim->give_up();
  ASSERT_TRUE(soon([&] { return mn->heard().state.removals == 1; }));
  EXPECT_EQ(mn->heard().state.mns[1].incarnation, 2u) << "its memory is void";
  EXPECT_EQ(mn->heard().state.mns[1].address, "");
  kill(processes_[0], SIGCONT);
  EXPECT_TRUE(soon([&] { return away.incarnation.load() >= 2; }));
  EXPECT_TRUE(soon([&] { return mn->heard().state.mns[1].address == "127.0.0.1:7001"; }));
  EXPECT_EQ(mn->heard().incarnation, 1u);
  EXPECT_EQ(other->heard().evictions, 0);
}

TEST_F(Zk, TheOnlyMemoryNodeStartsAfreshAfterItsSessionEnded) {
  shape_.lease = kShort;
  Told& away = memory_process(0);
  ASSERT_TRUE(goes(away));
  const auto node = compute();
  ASSERT_TRUE(node->joins());
  kill(processes_[0], SIGSTOP);
  ASSERT_TRUE(has("mns", 0));  // its session is over
  ASSERT_TRUE(node->fetches(1));
  EXPECT_EQ(node->heard().state.mns[0].incarnation, 1u);
  kill(processes_[0], SIGCONT);
  EXPECT_TRUE(soon([&] { return away.incarnation.load() >= 2; }));
  EXPECT_TRUE(soon([&] { return node->heard().state.mns[0].incarnation >= 2; }));
}

TEST_F(Zk, AMemoryNodeThatDoesNotConfirmWithinItsLeaseIsNotWaitedFor) {
  shape_.lease = kShort;
  const auto mn0 = memory(0);
  const auto mn1 = memory(1);
  ASSERT_TRUE(mn0->registers() && mn1->registers());
  mn1->hold_fences();
  const auto node = compute();
  ASSERT_TRUE(node->joins());
  node->give_up();
  EXPECT_TRUE(soon([&] { return mn0->heard().state.removals == 1; }));
  EXPECT_TRUE(soon([&] { return mn1->heard().incarnation >= 2; })) << "it comes back with fresh memory";
}

TEST_F(Zk, ASeatIsForOneMemoryNodeAtATime) {
  shape_.lease = kShort;
  Told& before = memory_process(0);
  ASSERT_TRUE(goes(before));
  {
    const auto second = memory(0);
    EXPECT_TRUE(soon([&] { return !second->heard().refused.empty(); }));
    EXPECT_EQ(second->heard().refused,
              "memory node 0 is here already, at 127.0.0.1:7000; give this one another --id");
  }
  kill(processes_[0], SIGKILL);
  const auto successor = memory(0);
  ASSERT_TRUE(successor->registers());
  EXPECT_GE(successor->heard().incarnation, 2u);
}

TEST_F(Zk, EverybodyGoesOnWhenTheLeaderIsKilled) {
  shape_.lease = seconds(5);  // who gives itself up meanwhile may not be heard
  const auto mn0 = memory(0);
  const auto mn1 = memory(1);
  const auto node = compute();
  const auto doomed = compute();
  ASSERT_TRUE(node->joins() && doomed->joins());
  ASSERT_TRUE(mn0->registers() && mn1->registers());
  const std::optional<std::size_t> leader = ensemble_->leader();
  ASSERT_TRUE(leader);
  ensemble_->kill(*leader);
  doomed->give_up();  // in the middle of it
  ASSERT_TRUE(node->fetches(1));
  ASSERT_TRUE(mn0->fetches(1) && mn1->fetches(1));
  const auto late = compute();
  ASSERT_TRUE(late->joins(2));
  EXPECT_TRUE(soon([&] { return node->heard().state.removals == 1; }));
  ASSERT_TRUE(node->fetches(2));
  EXPECT_EQ(node->heard().state.members.size(), 2u);
  EXPECT_EQ(node->heard().evictions, 0);
  EXPECT_EQ(mn0->heard().incarnation, 1u);
  EXPECT_EQ(mn1->heard().incarnation, 1u);
}

TEST_F(Zk, AStrangerWithoutTheSecretChangesNothing) {
  const auto mn = memory(0);
  const auto node = compute();
  ASSERT_TRUE(node->joins());
  ZkSession stranger{at_, secret_of(2), [] {}};
  ASSERT_TRUE(soon([&] { return stranger.ready(shape_.lease); }));
  EXPECT_EQ(stranger.get("state").error(), ZkFault::forbidden);
  EXPECT_EQ(stranger.set("state", "", -1).error(), ZkFault::forbidden);
  EXPECT_EQ(stranger.remove("state").error(), ZkFault::forbidden);
  EXPECT_EQ(stranger.remove("mns/0").error(), ZkFault::forbidden);
  EXPECT_EQ(stranger.create("members/me", "").error(), ZkFault::forbidden);
  const auto false_node = compute(2);
  false_node->join();
  EXPECT_TRUE(soon([&] { return false_node->heard().refused; }));
  const auto false_mn = memory(1, 2);
  EXPECT_TRUE(soon([&] { return !false_mn->heard().refused.empty(); }));
  EXPECT_NE(false_mn->heard().refused.find("was made with another secret"), std::string::npos);
  ASSERT_TRUE(node->fetches(1));
  EXPECT_EQ(node->heard().state.members.size(), 1u);
  EXPECT_EQ(node->heard().state.mns.size(), 1u);
}

TEST_F(Zk, NobodyThereIsSaidInOneLine) {
  at_.servers = "127.0.0.1:1";
  const auto node = compute();
  node->join();
  EXPECT_TRUE(soon([&] { return node->heard().why == "no ZooKeeper server answers at 127.0.0.1:1"; }));
  EXPECT_FALSE(node->heard().refused);
}

}  // namespace
}  // namespace declock::zk
