// Real processes on real locks, killed and stopped at random under load.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/futex.h"
#include "base/prng.h"
#include "process/control.h"
#include "shm/cluster.h"

extern char** environ;

namespace declock::process {
namespace {

// Against hanging; recovery takes some tens of milliseconds.
constexpr Duration kPatience = seconds(30);

class Torture : public testing::Test {
 protected:
  Torture()
      : name_(fmt::format("torture-{}", getpid())),
        path_(std::filesystem::temp_directory_path() / fmt::format("declock-control-{}", getpid())),
        control_(Control::map(path_)) {}
  ~Torture() override {
    for (pid_t& pid : running_) kill_and_wait(pid);
    std::filesystem::remove(path_);
    (void)shm::remove_cluster(shm::kDefaultDirectory, name_);
  }

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
    const Time latest = monotonic_now() + kPatience;
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (i == except) continue;
      while (control_.stations[i].operations.load() == before[i]) {
        ASSERT_LT(monotonic_now().ns, latest.ns) << "process " << i << " waits for ever";
        usleep(200);
      }
    }
  }

  std::string name_;
  std::string path_;
  Control& control_;
  std::vector<pid_t> running_ = std::vector<pid_t>(4);
  std::uint64_t started_ = 0;
};

TEST_F(Torture, KilledAndStoppedProcessesCostNoUpdateAndNobodyElseItsLocks) {
  const char* asked = std::getenv("DECLOCK_PROCESS_EVENTS");
  const std::uint64_t events = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 200;
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
    const Time latest = monotonic_now() + kPatience;
    while (waitpid(pid, &status, WNOHANG) == 0 && monotonic_now() < latest) usleep(1000);
    EXPECT_EQ(status, 0) << "a process did not end well";
    if (status == 0) pid = 0;
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

}  // namespace
}  // namespace declock::process
