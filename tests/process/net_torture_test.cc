// Real processes on real locks over TCP, under load: killed, stopped beyond their lease, told to close, visited by crowds,
// their connections broken, their memory node restarted, and their coordinator stopped and killed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <set>

#include "base/prng.h"
#include "process/connections.h"
#include "process/net_cluster.h"

namespace declock::process {
namespace {

constexpr std::size_t kProcesses = 4;

// Long enough for those who live, on a busy machine: it is waited out whenever somebody is killed with a lock.
constexpr Duration kLease = seconds(1);

constexpr std::size_t kVisitors = 8;
constexpr const char* kVisitorsSections = "10";

// Memory node 0 coordinates; the locks are on the other one.
constexpr int kMemory = 1;

enum class Event : std::uint8_t { kill, stop, close, storm, break_peers, break_memory, coordinator };
constexpr std::uint64_t kEvents = 7;

class NetTorture : public testing::Test {
 protected:
  void torture(std::uint64_t events);
  Event drawn();
  void befall(Event event, std::size_t which);
  void kill_one(std::size_t which);
  void stop_one(std::size_t which);
  void close_one(std::size_t which);
  void storm(std::size_t killed_meanwhile);
  void break_connections_of(std::size_t which, bool to_memory);
  void trouble_coordinator();

  NetCluster cluster_{kLease};
  Control& control_ = cluster_.control();
  Prng random_{1, 0};
  std::array<std::uint64_t, kEvents> count_{};
  std::uint64_t broken_ = 0;            // connections
  std::chrono::nanoseconds slowest_{};  // from the end of a fault until everybody had got a lock
  const bool breaks_ = may_break_connections();
};

Event NetTorture::drawn() {
  if (random_.one_in(24)) return Event::storm;
  if (random_.one_in(24)) return Event::coordinator;
  if (random_.one_in(4)) return random_.one_in(2) ? Event::break_peers : Event::break_memory;
  if (random_.one_in(8)) return Event::close;
  return random_.one_in(3) ? Event::stop : Event::kill;
}

void NetTorture::kill_one(std::size_t which) {
  cluster_.kill_process(which);
  if (random_.one_in(2)) cluster_.expect_progress(which);
  cluster_.start(which, kMemory);
}

// Mostly beyond the lease: the others go on without it, and it is told so when it wakes up.
void NetTorture::stop_one(std::size_t which) {
  const std::uint64_t told = control_.stations[which].evictions.load();
  const bool beyond = !random_.one_in(4);
  cluster_.process(which).send(SIGSTOP);
  if (beyond) {
    EXPECT_TRUE(cluster_.is_removed(which));
    cluster_.expect_progress(which);
  } else {
    usleep(static_cast<useconds_t>(random_.below(200'000)));
  }
  cluster_.process(which).send(SIGCONT);
  if (beyond) {
    EXPECT_TRUE(cluster_.is_told(which, told));
  }
}

// With whatever its clients hold, wait for or are about to write.
void NetTorture::close_one(std::size_t which) {
  Station& station = control_.stations[which];
  const std::uint64_t wanted = station.closes_wanted.fetch_add(1) + 1;
  EXPECT_TRUE(soon([&] { return station.closes.load() >= wanted; }))
      << cluster_.process(which).output();
}

// Many come within a moment, take some locks and leave, while somebody dies.
void NetTorture::storm(std::size_t killed_meanwhile) {
  std::vector<std::unique_ptr<Program>> visitors;
  for (std::size_t i = 0; i < kVisitors; ++i)
    visitors.push_back(cluster_.started(kProcesses + i, kMemory, kVisitorsSections));
  count_[static_cast<std::size_t>(Event::kill)] += 1;
  kill_one(killed_meanwhile);
  for (auto& visitor : visitors) EXPECT_EQ(visitor->wait(), 0) << visitor->output();
}

// Of this process, or of all, several times: few releases are under way at any one time. Both ends live, and go on.
void NetTorture::break_connections_of(std::size_t which, bool to_memory) {
  std::set<pid_t> nodes;
  for (std::size_t i = 0; i < kProcesses; ++i) nodes.insert(cluster_.process(i).pid());
  const pid_t one = cluster_.process(which).pid();
  const pid_t memory = cluster_.mn(kMemory).pid();
  const bool of_all = random_.one_in(2);
  for (int i = 0; i < 8; ++i) {
    broken_ += break_connections([&](pid_t a, pid_t b) {
      if (!nodes.contains(a) || (!of_all && a != one)) return false;
      return to_memory ? b == memory : b != a && nodes.contains(b);
    });
    cluster_.expect_progress();
  }
}

// Whoever could not renew its lease meanwhile joins again; after its death that is everybody.
void NetTorture::trouble_coordinator() {
  if (random_.one_in(2)) {
    cluster_.kill_mn(0);
    cluster_.start_mn(0, cluster_.address(0));
  } else {
    cluster_.mn(0).send(SIGSTOP);
    usleep(static_cast<useconds_t>(random_.below(2'000'000)));
    cluster_.mn(0).send(SIGCONT);
  }
}

void NetTorture::befall(Event event, std::size_t which) {
  count_[static_cast<std::size_t>(event)] += 1;
  switch (event) {
    case Event::kill:
      return kill_one(which);
    case Event::stop:
      return stop_one(which);
    case Event::close:
      return close_one(which);
    case Event::storm:
      return storm(which);
    case Event::break_peers:
    case Event::break_memory:
      if (breaks_) break_connections_of(which, event == Event::break_memory);
      return;
    case Event::coordinator:
      return trouble_coordinator();
  }
}

void NetTorture::torture(std::uint64_t events) {
  const char* asked = std::getenv("DECLOCK_NET_EVENTS");
  if (asked != nullptr) events = std::strtoull(asked, nullptr, 10);
  cluster_.start_mn(0);
  cluster_.start_mn(kMemory);
  for (std::size_t i = 0; i < kProcesses; ++i) cluster_.start(i, kMemory);
  cluster_.expect_progress();
  for (std::uint64_t i = 0; i < events && !HasFailure(); ++i) {
    usleep(static_cast<useconds_t>(random_.below(20'000)));
    const std::size_t which = random_.below(kProcesses);
    befall(i < kEvents ? static_cast<Event>(i) : drawn(), which);  // each of them at least once
    const auto healed = std::chrono::steady_clock::now();
    cluster_.expect_progress();
    slowest_ = std::max(slowest_, std::chrono::steady_clock::now() - healed);
  }
  cluster_.stop_all();
  const std::uint64_t ends = count_[0] + control_.closes() + control_.evictions();
  cluster_.expect_updates(kMemory, ends * kClients);
  if (breaks_ && events >= kEvents) {
    EXPECT_GT(broken_, 0u);
  }
  fmt::print("after a fault everybody got on within {} ms, with a lease of {} ms\n",
             slowest_ / std::chrono::milliseconds{1}, kLease.ns / 1'000'000);
  fmt::print(
      "{} kills, {} stops, {} closes, {} storms, {} connections broken{}, {} troubles of the "
      "coordinator, {} evictions told; {} "
      "updates "
      "acknowledged, {} mended; {} acquisitions given up; releases with a write: {} done, {} certainly "
      "not, {} not known\n",
      count_[0], count_[1], control_.closes(), count_[3], broken_,
      breaks_ ? "" : " (only root with ss can)", count_[6], control_.evictions(), cluster_.updates(),
      control_.repairs.load(), control_.given_up.load(), control_.done.load(),
      control_.certainly_not.load(), control_.not_known.load());
}

TEST_F(NetTorture, WhateverBefallsProcessesCostsNoUpdateAndNobodyElseItsLocks) {
  torture(16);
}

class NetTortureWithTokens : public NetTorture {
 protected:
  NetTortureWithTokens() { control_.with_tokens.store(true); }
};
TEST_F(NetTortureWithTokens, WhateverBefallsProcessesCostsNoUpdateAndNobodyElseItsLocks) {
  torture(16);
}

class NetTortureSoak : public NetTorture {};
TEST_F(NetTortureSoak, WhateverBefallsProcessesCostsNoUpdateAndNobodyElseItsLocks) {
  torture(300);
}

class NetTortureSoakWithTokens : public NetTortureWithTokens {};
TEST_F(NetTortureSoakWithTokens, WhateverBefallsProcessesCostsNoUpdateAndNobodyElseItsLocks) {
  torture(300);
}

TEST(NetCluster, EverybodyGoesOnWithARestartedMemoryNode) {
  NetCluster cluster{seconds(3)};
  cluster.start_mn(0);
  cluster.start_mn(1);
  for (std::size_t i = 0; i < kProcesses; ++i) cluster.start(i, 1);
  cluster.expect_progress();
  for (int round = 0; round < 3 && !testing::Test::HasFatalFailure(); ++round) {
    const std::size_t said = cluster.mn(0).output().size();
    cluster.kill_mn(1);
    if (round == 1) {  // beyond its lease
      EXPECT_TRUE(cluster.mn(0).says("memory node 1 is gone", said));
    }
    cluster.start_mn(1, cluster.address(1));
    for (int i = 0; i < 10; ++i) cluster.expect_progress();
  }
  cluster.stop_all();
  cluster.expect_updates(1, cluster.control().evictions() * kClients);
}

TEST(NetCluster, ARestartedCoordinatorMakesEverybodyJoinAgain) {
  NetCluster cluster{seconds(20)};
  cluster.start_mn(0);
  for (std::size_t i = 0; i < kProcesses; ++i) cluster.start(i, 0);
  cluster.expect_progress();
  cluster.kill_mn(0);
  cluster.start_mn(0, cluster.address(0));
  for (std::size_t i = 0; i < kProcesses; ++i) EXPECT_TRUE(cluster.is_told(i, 0)) << i;
  cluster.expect_progress();
  cluster.stop_all();
  cluster.expect_updates(0, cluster.control().evictions() * kClients);
}

// What belonged to the dead is given back: descriptors, and the memory of their connections.
TEST(NetCluster, AMemoryNodeIsAsSmallAsBeforeOnceTheDeadAreRemoved) {
  NetCluster cluster{seconds(2)};
  cluster.start_mn(0);
  const pid_t mn = cluster.mn(0).pid();
  const std::size_t descriptors = descriptors_of(mn);
  [[maybe_unused]] const std::size_t kib = resident_kib_of(mn);
  // Some go while others stay, so that what they leave lies between what is in use.
  for (std::size_t i = 0; i < kProcesses; ++i) cluster.start(i, 0);
  for (std::size_t round = 0; round < 4; ++round) {
    cluster.expect_progress();
    for (std::size_t i = round % 2; i < kProcesses; i += 2) cluster.kill_process(i);
    for (std::size_t i = round % 2; i < kProcesses; i += 2) cluster.start(i, 0);
  }
  cluster.expect_progress();
  for (std::size_t i = 0; i < kProcesses; ++i) cluster.kill_process(i);
  EXPECT_TRUE(soon([&] { return descriptors_of(mn) <= descriptors; })) << descriptors_of(mn);
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
  constexpr std::size_t kMoreKib = 16 << 10;
  EXPECT_TRUE(soon([&] { return resident_kib_of(mn) < kib + kMoreKib; })) << resident_kib_of(mn);
#endif
}

// Whoever does not fit in is told so; those who are in, and the memory node, go on. Before, it could not write its state
// any more, and ended.
TEST(NetCluster, AMemoryNodeWithoutDescriptorsRefusesWhoComesAndGoesOn) {
  NetCluster cluster{seconds(2)};
  cluster.start_mn(0, "127.0.0.1:0", {"sh", "-c", "ulimit -n 300; exec \"$@\"", "sh"});
  std::vector<std::size_t> refused;
  for (std::size_t i = 0; i < kMembers && refused.size() < 2; ++i) {
    cluster.start(i, 0);
    Program& process = cluster.process(i);
    ASSERT_TRUE(soon(
        [&] { return cluster.control().stations[i].operations.load() > 0 || process.has_ended(); }));
    if (!process.has_ended()) continue;
    EXPECT_EQ(process.wait(), 2);
    EXPECT_NE(process.output().find("too many files open; raise its limit"), std::string::npos)
        << process.output();
    refused.push_back(i);
  }
  ASSERT_FALSE(refused.empty());
  ASSERT_GT(refused[0], 0u);
  EXPECT_FALSE(cluster.mn(0).has_ended()) << cluster.mn(0).output();
  cluster.kill_process(0);
  EXPECT_TRUE(cluster.is_removed(0));
  // What the dead one had is free for another.
  EXPECT_TRUE(soon([&] {
    const std::size_t i = refused[0];
    if (cluster.process(i).has_ended()) cluster.start(i, 0);
    const std::uint64_t before = cluster.control().stations[i].operations.load();
    return soon([&] {
             return cluster.control().stations[i].operations.load() > before ||
                    cluster.process(i).has_ended();
           }) &&
           !cluster.process(i).has_ended();
  }));
}

}  // namespace
}  // namespace declock::process
