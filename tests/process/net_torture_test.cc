// Real processes on real locks over TCP: killed, stopped beyond their lease, and their memory node restarted under load.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/prng.h"
#include "process/net_cluster.h"

namespace declock::process {
namespace {

constexpr std::size_t kProcesses = 4;

TEST(NetTorture, KilledAndStoppedProcessesCostNoUpdateAndNobodyElseItsLocks) {
  const char* asked = std::getenv("DECLOCK_NET_EVENTS");
  const std::uint64_t events = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 100;
  NetCluster cluster;
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
      // Mostly far beyond the lease of 300 ms: the others go on without it, and it is told so when it wakes up.
      const std::uint64_t evicted = control.stations[which].evictions.load();
      const bool beyond = !random.one_in(4);
      cluster.process(which).send(SIGSTOP);
      usleep(static_cast<useconds_t>(beyond ? 1'500'000 : random.below(200'000)));
      if (beyond) cluster.expect_progress(which);
      cluster.process(which).send(SIGCONT);
      cluster.expect_progress();
      const Time latest = monotonic_now() + NetCluster::kPatience;
      while (beyond && control.stations[which].evictions.load() == evicted && monotonic_now() < latest)
        usleep(1000);
      if (beyond) {
        EXPECT_GT(control.stations[which].evictions.load(), evicted) << "it was not told";
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

TEST(NetTorture, EverybodyGoesOnWithARestartedMemoryNode) {
  NetCluster cluster;
  cluster.start_mn(0);
  cluster.start_mn(1);
  for (std::size_t i = 0; i < kProcesses; ++i) cluster.start(i, 1);
  cluster.expect_progress();
  for (int round = 0; round < 3 && !testing::Test::HasFatalFailure(); ++round) {
    cluster.kill_mn(1);
    if (round == 1) usleep(600'000);  // beyond its lease
    cluster.start_mn(1, cluster.address(1));
    cluster.expect_progress();
    usleep(100'000);
  }
  cluster.stop_all();
  cluster.expect_updates(1, cluster.control().evictions() * kClients);
}

TEST(NetTorture, ARestartedCoordinatorMakesEverybodyJoinAgain) {
  NetCluster cluster;
  cluster.start_mn(0);
  for (std::size_t i = 0; i < kProcesses; ++i) cluster.start(i, 0);
  cluster.expect_progress();
  cluster.kill_mn(0);
  cluster.start_mn(0, cluster.address(0));
  cluster.expect_progress();
  EXPECT_GE(cluster.control().evictions(), kProcesses);
  cluster.stop_all();
  cluster.expect_updates(0, cluster.control().evictions() * kClients);
}

}  // namespace
}  // namespace declock::process
