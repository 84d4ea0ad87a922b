// Real processes on real locks in shared memory, under load: killed, stopped, told to close, visited by crowds, and their
// files unlinked.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "base/prng.h"
#include "process/accounts.h"
#include "process/programs.h"
#include "shm/cluster.h"
#include "support/soon.h"

namespace declock::process {
namespace {

constexpr std::size_t kProcesses = 4;
constexpr std::size_t kVisitors = 8;
constexpr std::uint64_t kVisitorsSections = 20;

enum class Event : std::uint8_t { kill, stop, close, storm, unlink };
constexpr std::uint64_t kEvents = 5;

class Torture : public testing::Test {
 protected:
  Torture()
      : name_(fmt::format("torture-{}", getpid())),
        path_(directory_ / "control"),
        control_(Control::map(path_)) {
    remove_cluster();  // of an earlier test that was killed, and had the same number
  }
  ~Torture() override {
    for (auto& process : running_) process.reset();
    remove_cluster();
  }
  void remove_cluster() const { (void)shm::remove_cluster(shm::kDefaultDirectory, name_); }

  std::unique_ptr<Program> started(std::size_t station, std::uint64_t sections) {
    return std::make_unique<Program>(
        std::vector<std::string>{DECLOCK_PROCESS_CN, "shm:" + name_, path_, std::to_string(station),
                                 std::to_string(++started_), std::to_string(sections)});
  }
  void start(std::size_t station) { running_[station] = started(station, 0); }

  // Everybody but `except` gets a lock again.
  void expect_progress(std::size_t except = kProcesses) {
    std::vector<std::uint64_t> before;
    for (const Station& station : control_.stations) before.push_back(station.operations.load());
    for (std::size_t i = 0; i < running_.size(); ++i) {
      if (i == except) continue;
      const auto got_one = [&] { return control_.stations[i].operations.load() != before[i]; };
      (void)soon([&] { return got_one() || running_[i]->has_ended(); });
      ASSERT_TRUE(got_one()) << "process " << i
                             << " waits for ever, or has ended: " << running_[i]->output();
    }
  }

  void torture(std::uint64_t events);
  Event drawn();
  void befall(Event event, std::size_t which);
  void kill_one(std::size_t which);
  void stop_one(std::size_t which);
  void close_one(std::size_t which);
  void storm(std::size_t killed_meanwhile);
  void unlink_files();
  void expect_accounts_of(const shm::Cluster& cluster, std::uint32_t memories_before);

  TemporaryDirectory directory_;
  std::string name_;
  std::string path_;
  Control& control_;
  std::array<std::unique_ptr<Program>, kProcesses> running_;
  std::uint64_t started_ = 0;
  Prng random_{1, 0};
  std::array<std::uint64_t, kEvents> count_{};
  std::uint64_t updates_ = 0;
};

Event Torture::drawn() {
  if (random_.one_in(32) && control_.memories_unlinked.load() + 2 < kMemories) return Event::unlink;
  if (random_.one_in(24)) return Event::storm;
  if (random_.one_in(6)) return Event::close;
  return random_.one_in(3) ? Event::stop : Event::kill;
}

void Torture::kill_one(std::size_t which) {
  running_[which]->send(SIGKILL);
  (void)running_[which]->wait();
  // Sometimes its successor comes before the others have noticed.
  if (random_.one_in(2)) expect_progress(which);
  start(which);
}

void Torture::stop_one(std::size_t which) {
  running_[which]->send(SIGSTOP);
  usleep(static_cast<useconds_t>(random_.below(30'000)));
  running_[which]->send(SIGCONT);
}

// With whatever its clients hold, wait for or are about to write.
void Torture::close_one(std::size_t which) {
  Station& station = control_.stations[which];
  const std::uint64_t wanted = station.closes_wanted.fetch_add(1) + 1;
  EXPECT_TRUE(soon([&] { return station.closes.load() >= wanted; })) << running_[which]->output();
}

// Many come within a moment, take some locks and leave, while somebody dies.
void Torture::storm(std::size_t killed_meanwhile) {
  std::vector<std::unique_ptr<Program>> visitors;
  for (std::size_t i = 0; i < kVisitors; ++i)
    visitors.push_back(started(kProcesses + i, kVisitorsSections));
  count_[static_cast<std::size_t>(Event::kill)] += 1;
  kill_one(killed_meanwhile);
  for (auto& visitor : visitors) EXPECT_EQ(visitor->wait(), 0) << visitor->output();
}

// Everybody finds out, and goes on with new files. The old ones are there as long as somebody has them open.
void Torture::unlink_files() {
  const auto old = shm::Cluster::open(shm::kDefaultDirectory, name_);
  ASSERT_TRUE(old) << old.error();
  std::array<std::uint64_t, kProcesses> told{};
  for (std::size_t i = 0; i < kProcesses; ++i) told[i] = control_.stations[i].evictions.load();
  const std::uint32_t before = control_.memories_unlinked.fetch_add(1);
  // At one moment for everybody.
  for (auto& process : running_) process->send(SIGSTOP);
  const bool all = random_.one_in(2);
  if (all) (void)unlink(shm::path_of(shm::kDefaultDirectory, name_).c_str());
  (void)unlink(shm::memory_path_of(shm::kDefaultDirectory, name_, 0).c_str());
  for (auto& process : running_) process->send(SIGCONT);
  for (std::size_t i = 0; i < kProcesses; ++i) {
    EXPECT_TRUE(soon([&] { return control_.stations[i].evictions.load() > told[i]; }))
        << "process " << i << " has not seen that its files are gone: " << running_[i]->output();
  }
  expect_progress();
  expect_accounts_of(*old, before);
}

void Torture::befall(Event event, std::size_t which) {
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
    case Event::unlink:
      return unlink_files();
  }
}

void Torture::expect_accounts_of(const shm::Cluster& cluster, std::uint32_t memories_before) {
  const std::uint64_t ends =
      count_[static_cast<std::size_t>(Event::kill)] + control_.closes() + control_.evictions();
  updates_ +=
      expect_accounts(control_, memories_before + 1, ends * kClients, [&](std::uint64_t offset) {
        return cluster.word({MnId{0}, offset}).load();
      });
}

void Torture::torture(std::uint64_t events) {
  const char* asked = std::getenv("DECLOCK_PROCESS_EVENTS");
  if (asked != nullptr) events = std::strtoull(asked, nullptr, 10);
  for (std::size_t i = 0; i < kProcesses; ++i) start(i);
  expect_progress();
  for (std::uint64_t i = 0; i < events && !HasFailure(); ++i) {
    usleep(static_cast<useconds_t>(random_.below(5000)));
    const std::size_t which = random_.below(kProcesses);
    befall(i < kEvents ? static_cast<Event>(i) : drawn(), which);  // each of them at least once
    expect_progress();
  }
  control_.stop.store(true);
  for (auto& process : running_) EXPECT_EQ(process->wait(), 0) << process->output();
  const auto cluster = shm::Cluster::open(shm::kDefaultDirectory, name_);
  ASSERT_TRUE(cluster) << cluster.error();
  expect_accounts_of(*cluster, control_.memories_unlinked.load());
  EXPECT_GT(updates_, events);
  std::uint64_t resets = 0;
  for (const Station& station : control_.stations) resets += station.resets.load();
  fmt::print(
      "{} kills, {} stops, {} closes, {} storms, files unlinked {} times; {} updates acknowledged, {} "
      "mended, {} resets by those who lived; {} acquisitions given up; releases with a write: {} done, "
      "{} "
      "certainly not, {} not known\n",
      count_[0], count_[1], control_.closes(), count_[3], count_[4], updates_, control_.repairs.load(),
      resets, control_.given_up.load(), control_.done.load(), control_.certainly_not.load(),
      control_.not_known.load());
}

TEST_F(Torture, WhateverBefallsProcessesCostsNoUpdateAndNobodyElseItsLocks) {
  torture(100);
}

class TortureWithTokens : public Torture {
 protected:
  TortureWithTokens() { control_.with_tokens.store(true); }
};
TEST_F(TortureWithTokens, WhateverBefallsProcessesCostsNoUpdateAndNobodyElseItsLocks) {
  torture(100);
}

class TortureSoak : public Torture {};
TEST_F(TortureSoak, WhateverBefallsProcessesCostsNoUpdateAndNobodyElseItsLocks) {
  torture(2000);
}

class TortureSoakWithTokens : public TortureWithTokens {};
TEST_F(TortureSoakWithTokens, WhateverBefallsProcessesCostsNoUpdateAndNobodyElseItsLocks) {
  torture(2000);
}

}  // namespace
}  // namespace declock::process
