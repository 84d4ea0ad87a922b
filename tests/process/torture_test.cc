// Real processes on real locks, killed and stopped at random under load.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>

#include "base/prng.h"
#include "process/control.h"
#include "process/programs.h"
#include "shm/cluster.h"
#include "support/soon.h"

namespace declock::process {
namespace {

class Torture : public testing::Test {
 protected:
  Torture()
      : name_(fmt::format("torture-{}", getpid())),
        path_(directory_ / "control"),
        control_(Control::map(path_)) {
    remove_cluster();  // of an earlier test that was killed, and had the same number
  }
  ~Torture() override {
    for (pid_t& pid : running_) kill_and_wait(pid);
    remove_cluster();
  }
  void remove_cluster() const { (void)shm::remove_cluster(shm::kDefaultDirectory, name_); }

  void start(std::size_t station) {
    std::string arguments[] = {DECLOCK_PROCESS_CN, "shm:" + name_, path_, std::to_string(station),
                               std::to_string(++started_)};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                    arguments[3].data(), arguments[4].data(), nullptr};
    ASSERT_EQ(posix_spawn(&running_[station], arguments[0].c_str(), nullptr, nullptr, argv, environ),
              0);
  }
  static void kill_and_wait(pid_t& pid) {
    if (pid == 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = 0;
  }

  // Everybody but `except` gets a lock again.
  void expect_progress(std::size_t except) {
    std::vector<std::uint64_t> before;
    for (const Station& station : control_.stations) before.push_back(station.operations.load());
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (i == except) continue;
      ASSERT_TRUE(soon([&] { return control_.stations[i].operations.load() != before[i]; }))
          << "process " << i << " waits for ever";
    }
  }

  void kill_and_stop_processes(std::uint64_t events);

  TemporaryDirectory directory_;
  std::string name_;
  std::string path_;
  Control& control_;
  std::vector<pid_t> running_ = std::vector<pid_t>(4);
  std::uint64_t started_ = 0;
};

void Torture::kill_and_stop_processes(std::uint64_t events) {
  const char* asked = std::getenv("DECLOCK_PROCESS_EVENTS");
  if (asked != nullptr) events = std::strtoull(asked, nullptr, 10);
  for (std::size_t i = 0; i < running_.size(); ++i) start(i);
  expect_progress(running_.size());
  Prng random{1, 0};
  std::uint64_t kills = 0;
  for (std::uint64_t i = 0; i < events && !HasFatalFailure(); ++i) {
    usleep(static_cast<useconds_t>(random.below(5000)));
    const std::size_t which = random.below(running_.size());
    if (random.one_in(3)) {
      kill(running_[which], SIGSTOP);
      usleep(static_cast<useconds_t>(random.below(30'000)));
      kill(running_[which], SIGCONT);
      expect_progress(running_.size());
    } else {
      kill_and_wait(running_[which]);
      kills += 1;
      // Sometimes its successor comes before the others have noticed.
      if (random.one_in(2)) expect_progress(which);
      start(which);
      expect_progress(running_.size());
    }
  }
  control_.stop.store(true);
  for (pid_t& pid : running_) {
    int status = -1;
    if (soon([&] { return waitpid(pid, &status, WNOHANG) == pid; })) pid = 0;
    EXPECT_EQ(status, 0) << "a process did not end well";
  }
  EXPECT_EQ(control_.violations.load(), 0u);
  EXPECT_EQ(control_.errors.load(), 0u);
  EXPECT_LE(control_.repairs.load(), kills * kClients);
  auto cluster = shm::Cluster::open(shm::kDefaultDirectory, name_);
  ASSERT_TRUE(cluster) << cluster.error();
  std::uint64_t acknowledged = 0;
  for (std::uint64_t lock = 0; lock < kLocks; ++lock) {
    const std::uint64_t of_lock = control_.acknowledged(1, lock);
    const std::uint64_t there = cluster->word({MnId{0}, kObjects + 64 * lock + 8}).load();
    EXPECT_GE(there, of_lock) << "acknowledged updates of lock " << lock << " are lost";
    EXPECT_LE(there, of_lock + kills * kClients);
    acknowledged += of_lock;
  }
  EXPECT_GT(acknowledged, events);
  std::uint64_t resets = 0;
  for (const Station& station : control_.stations) resets += station.resets.load();
  fmt::print("{} kills, {} stops, {} updates acknowledged, {} mended, {} resets by those who lived\n",
             kills, events - kills, acknowledged, control_.repairs.load(), resets);
}

TEST_F(Torture, KilledAndStoppedProcessesCostNoUpdateAndNobodyElseItsLocks) {
  kill_and_stop_processes(100);
}

class TortureSoak : public Torture {};
TEST_F(TortureSoak, KilledAndStoppedProcessesCostNoUpdateAndNobodyElseItsLocks) {
  kill_and_stop_processes(2000);
}

}  // namespace
}  // namespace declock::process
