// Threads of several processes on SharedMutexes, and processes that are killed.
#ifndef __SANITIZE_THREAD__  // it has no threads in the child of a process with threads
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <thread>

#include "api/support.h"
#include "base/check.h"
#include "base/prng.h"
#include "support/soon.h"

namespace declock::api {
namespace {

constexpr std::size_t kProcesses = 3;
constexpr std::size_t kThreads = 3;
constexpr std::size_t kLocks = 2;

// Zeroed memory that the test and its children share.
struct Board {
  struct Station {
    std::atomic<std::uint64_t> sections;
    std::array<std::atomic<std::uint32_t>, kLocks> writers;  // of this process, inside
    std::atomic<bool> is_dying;                              // what it was inside counts no more
  };
  std::array<Station, kProcesses> stations;
  std::atomic<std::uint64_t> violations;
  std::atomic<bool> stop;

  bool anybody_writes(std::size_t lock) const {
    for (const Station& station : stations) {
      if (station.writers[lock].load() != 0 && !station.is_dying.load()) return true;
    }
    return false;
  }
  std::uint64_t sections_but_of(std::size_t process) const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kProcesses; ++i) sum += i == process ? 0 : stations[i].sections.load();
    return sum;
  }
};

void work(Board& board, std::size_t process, Prng random, std::array<SharedMutex*, kLocks> locks) {
  Board::Station& mine = board.stations[process];
  while (!board.stop.load()) {
    const std::size_t which = random.below(kLocks);
    if (random.one_in(2)) {
      const std::shared_lock lock{*locks[which]};
      if (board.anybody_writes(which)) board.violations.fetch_add(1);
    } else {
      std::unique_lock lock{*locks[which], std::defer_lock};
      if (!random.one_in(4)) {
        lock.lock();
      } else if (!locks[which]->try_lock_for(std::chrono::milliseconds(5))) {
        continue;
      } else {
        lock = std::unique_lock{*locks[which], std::adopt_lock};
      }
      if (board.anybody_writes(which)) board.violations.fetch_add(1);
      mine.writers[which].fetch_add(1);
      if (random.one_in(64)) std::this_thread::yield();
      mine.writers[which].fetch_sub(1);
    }
    mine.sections.fetch_add(1);
    if (random.one_in(50)) usleep(static_cast<useconds_t>(random.below(300)));
  }
}

int be_process(Board& board, std::size_t process, const std::string& uri) {
  Cluster cluster = open(uri);
  {
    SharedMutex first = cluster.shared_mutex("first");
    SharedMutex second = cluster.shared_mutex("second");
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        work(board, process, Prng{static_cast<std::uint64_t>(getpid()), t}, {&first, &second});
      });
    }
  }
  return cluster.close() ? 0 : 1;
}

class Kills : public testing::TestWithParam<const char*> {};

// None outlives the test, also if it fails.
struct Processes : std::array<std::optional<Child>, kProcesses> {
  ~Processes() {
    for (const auto& process : *this) {
      if (process && process->pid() > 0) process->kill(SIGKILL);
    }
  }
};

TEST_P(Kills, CostNobodyElseALock) {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  Board& board = *static_cast<Board*>(memory);
  const std::string uri = fresh_uri(std::string{"&fairness="} + GetParam());
  Processes processes;
  const auto start = [&](std::size_t i) {
    for (auto& writers : board.stations[i].writers) writers.store(0);
    board.stations[i].is_dying.store(false);
    processes[i].emplace([&board, i, uri] { return be_process(board, i, uri); });
  };
  for (std::size_t i = 0; i < kProcesses; ++i) start(i);
  Prng random{1, 1};
  const char* asked = std::getenv("DECLOCK_KILLS");
  const long kills = asked != nullptr ? std::strtol(asked, nullptr, 10) : 20;
  for (long kill = 0; kill < kills; ++kill) {
    const std::size_t which = random.below(kProcesses);
    const auto sections = [&] { return board.stations[which].sections.load(); };
    const std::uint64_t own = sections();
    ASSERT_TRUE(soon([&] { return sections() > own + 100; })) << "kill " << kill;
    if (random.one_in(4)) {
      processes[which]->kill(SIGSTOP);
      usleep(20'000);
      processes[which]->kill(SIGCONT);
      continue;
    }
    board.stations[which].is_dying.store(true);
    processes[which]->kill(SIGKILL);
    (void)processes[which]->wait();
    const std::uint64_t before = board.sections_but_of(which);
    ASSERT_TRUE(soon([&] { return board.sections_but_of(which) > before + 100; })) << "kill " << kill;
    start(which);
  }
  board.stop.store(true);
  for (auto& process : processes) EXPECT_EQ(process->wait(), 0);
  EXPECT_EQ(board.violations.load(), 0u);
  munmap(memory, sizeof(Board));
}
INSTANTIATE_TEST_SUITE_P(Fairness, Kills, testing::Values("phase-fair", "slack", "task-fair", "token"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace declock::api
#endif
