// Real processes on real locks over TCP: killed, stopped beyond their lease, and their memory node restarted under load.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/prng.h"
#include "process/net_cluster.h"

namespace declock::process {
namespace {

constexpr std::size_t kProcesses = 4;

// Long enough for those who live, on a busy machine: it is waited out whenever somebody is killed with a lock.
constexpr Duration kLease = seconds(1);

void kill_and_stop_processes(std::uint64_t events) {
  const char* asked = std::getenv("DECLOCK_NET_EVENTS");
  if (asked != nullptr) events = std::strtoull(asked, nullptr, 10);
  NetCluster cluster{kLease};
  Control& control = cluster.control();
  cluster.start_mn(0);
  for (std::size_t i = 0; i < kProcesses; ++i) cluster.start(i, 0);
  cluster.expect_progress();
  Prng random{1, 0};
  std::uint64_t kills = 0;
  for (std::uint64_t i = 0; i < events && !testing::Test::HasFatalFailure(); ++i) {
    usleep(static_cast<useconds_t>(random.below(20'000)));
    const std::size_t which = random.below(kProcesses);
    if (random.one_in(4)) {
      // Mostly beyond the lease: the others go on without it, and it is told so when it wakes up.
      const std::uint64_t told = control.stations[which].evictions.load();
      const bool beyond = !random.one_in(4);
      cluster.process(which).send(SIGSTOP);
      if (beyond) {
        EXPECT_TRUE(cluster.is_removed(which));
        cluster.expect_progress(which);
      } else {
        usleep(static_cast<useconds_t>(random.below(200'000)));
      }
      cluster.process(which).send(SIGCONT);
      cluster.expect_progress();
      if (beyond) {
        EXPECT_TRUE(cluster.is_told(which, told));
      }
    } else {
      cluster.kill_process(which);
      kills += 1;
      if (random.one_in(2)) cluster.expect_progress(which);
      cluster.start(which, 0);
      cluster.expect_progress();
    }
  }
  cluster.stop_all();
  cluster.expect_updates(0, (kills + control.evictions()) * kClients);
  fmt::print("{} kills, {} stops, {} evictions told, {} updates acknowledged, {} mended\n", kills,
             events - kills, control.evictions(), cluster.updates(), control.repairs.load());
}

TEST(NetTorture, KilledAndStoppedProcessesCostNoUpdateAndNobodyElseItsLocks) {
  kill_and_stop_processes(30);
}

TEST(NetTortureSoak, KilledAndStoppedProcessesCostNoUpdateAndNobodyElseItsLocks) {
  kill_and_stop_processes(300);
}

TEST(NetTorture, EverybodyGoesOnWithARestartedMemoryNode) {
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

TEST(NetTorture, ARestartedCoordinatorMakesEverybodyJoinAgain) {
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

}  // namespace
}  // namespace declock::process
