// Compute nodes as processes: how a cluster comes into being, who is alive, and what waiting costs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "hier/hier.h"
#include "member_shm/compute_node.h"
#include "process/programs.h"
#include "support/soon.h"

namespace declock::process {
namespace {

using member::ComputeNode;

constexpr RemoteAddr kLock{MnId{0}, 0};
constexpr RemoteAddr kOther{MnId{0}, 2048};

// Zeroed memory that the test and its children share.
template <class T>
T& shared() {
  void* at = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(at, MAP_FAILED);
  return *static_cast<T*>(at);
}

// A directory of the test's own on a file system of shared memory.
class Processes : public testing::Test {
 protected:
  Processes() {
    std::string pattern = "/dev/shm/declock-test-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~Processes() override { std::filesystem::remove_all(directory_); }

  ComputeNode::Config config(std::uint32_t members = 4) const {
    ComputeNode::Config c;
    c.cluster.name = "test";
    c.cluster.directory = directory_;
    c.cluster.members = members;
    c.cluster.mns = 2;
    c.cluster.mn_bytes = 4096;
    return c;
  }
  std::string cluster_path() const { return shm::path_of(directory_, "test"); }

  // REQUIRES: no other thread is alive.
  template <class Work>
  static pid_t start(Work work) {
    const pid_t pid = fork();
    if (pid == 0) {
      work();
      _exit(0);
    }
    return pid;
  }
  static int wait_for(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }

  std::string directory_;
};

// One client of DecLock in this process.
struct Locker {
  explicit Locker(ComputeNode& node_, Duration patience = milliseconds(5))
      : node(node_),
        shape{node_.cluster().shape().members, node_.cluster().shape().members, QueueLayout::owner},
        locks{shape, hier::Policy{}, cql::Options{.patience = patience},
              std::vector<hier::Station>{{&node_.endpoint(0), &node_.membership(0)}}},
        client{locks.client(0)} {
    locks.worker(0).cql().start_patrol();
    node.start();
  }
  ~Locker() { node.stop(); }

  Hold lock(RemoteAddr addr = kLock, Mode mode = Mode::exclusive) {
    const Result<Hold> hold = node.worker(0).run([&] { return client->acquire(addr, mode); });
    CHECK(hold);
    return *hold;
  }
  void unlock(const Hold& hold) {
    CHECK(node.worker(0).run([&] { return client->release(hold); }));
  }

  ComputeNode& node;
  LockShape shape;
  hier::Node locks;
  std::unique_ptr<TimedLockClient> client;
};

TEST_F(Processes, WhoeverComesNextStartsWhereACreatorWasKilled) {
  for (int fatal_step = 0;; ++fatal_step) {
    const pid_t pid = start([&] {
      ComputeNode::Config c = config();
      c.cluster.step = [left = fatal_step](std::string_view) mutable {
        if (left-- == 0) kill(getpid(), SIGKILL);
      };
      if (!ComputeNode::join(c)) _exit(1);
    });
    const int status = wait_for(pid);
    const bool survived = WIFEXITED(status);
    auto next = ComputeNode::join(config());
    ASSERT_TRUE(next) << "after step " << fatal_step << ": " << next.error();
    {
      Locker locker{**next};
      locker.unlock(locker.lock());
    }
    (*next)->leave();
    next->reset();
    ASSERT_TRUE(shm::remove_cluster(directory_, "test"));
    EXPECT_TRUE(std::filesystem::is_empty(directory_))
        << "nothing is left behind after step " << fatal_step;
    if (survived) {
      EXPECT_EQ(fatal_step, 5 * 3 + 1) << "five steps for each of three files, and one to be a member";
      return;
    }
  }
}

TEST_F(Processes, WhatIsNoClusterIsRefusedAndLeftAsItWas) {
  auto good = ComputeNode::join(config());
  ASSERT_TRUE(good);
  (*good)->leave();
  good->reset();
  const std::string path = cluster_path();
  const std::string memory = shm::memory_path_of(directory_, "test", 1);
  const auto contents = [](const std::string& file) {
    std::ifstream in{file, std::ios::binary};
    return std::string{std::istreambuf_iterator<char>{in}, {}};
  };
  const std::string whole = contents(path);
  const std::string whole_memory = contents(memory);
  const auto expect_refused = [&](const std::string& file, const std::string& content,
                                  const char* why) {
    std::ofstream{file, std::ios::binary | std::ios::trunc} << content;
    auto refused = ComputeNode::join(config());
    ASSERT_FALSE(refused) << why;
    EXPECT_NE(refused.error().find(why), std::string::npos) << refused.error();
    EXPECT_EQ(refused.error().find('\n'), std::string::npos);
    EXPECT_EQ(contents(file), content);
  };
  const auto changed = [](std::string text, std::size_t at, char value) {
    text[at] = value;
    return text;
  };
  expect_refused(path, "", "no DecLock region");
  expect_refused(path, "hello", "no DecLock region");
  expect_refused(path, changed(whole, 0, 'X'), "no DecLock region");
  expect_refused(path, changed(whole, 8, 9), "format version 9");
  expect_refused(path, changed(whole, 12, 2), "memory node's memory");
  expect_refused(path, changed(whole, 12, 7), "not a cluster");
  expect_refused(path, whole.substr(0, whole.size() - 4096), "damaged");
  expect_refused(path, whole + "x", "damaged");
  expect_refused(path, changed(whole, 32, 0), "makes no sense");
  expect_refused(path, changed(whole, 24, static_cast<char>(whole[24] + 1)),
                 "belongs to another cluster");
  std::ofstream{path, std::ios::binary | std::ios::trunc} << whole;
  expect_refused(memory, whole_memory.substr(0, 5000), "damaged");
  expect_refused(memory, whole, "no memory node's memory");
  std::ofstream{memory, std::ios::binary | std::ios::trunc} << whole_memory;

  ComputeNode::Config other = config();
  other.cluster.members = 5;
  auto refused = ComputeNode::join(other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("has 4 members"), std::string::npos) << refused.error();
  chmod(path.c_str(), 0644);
  refused = ComputeNode::join(config());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("other users"), std::string::npos) << refused.error();
  chmod(path.c_str(), 0600);
  std::filesystem::rename(path, path + ".moved");
  std::filesystem::create_symlink(path + ".moved", path);
  refused = ComputeNode::join(config());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().find("symbolic link"), std::string::npos) << refused.error();
}

// Sizes are read once, when a cluster is opened: who writes over its files later does harm to its data and its locks, but
// no member reaches for memory that is not there.
TEST_F(Processes, AHeaderThatIsOverwrittenInUseIsNotReadAgain) {
  const pid_t pid = start([&] {
    auto node = ComputeNode::join(config());
    CHECK(node);
    const std::string garbage(1024, '\xFF');
    for (const std::string& path : {cluster_path(), shm::memory_path_of(directory_, "test", 0)}) {
      const int file = open(path.c_str(), O_WRONLY);
      CHECK(pwrite(file, garbage.data(), garbage.size(), 0) == static_cast<ssize_t>(garbage.size()));
      close(file);
    }
    {
      Locker locker{**node};
      locker.unlock(locker.lock());
      CHECK((*node)->allocate(MnId{0}, "something", 64, "a test"));
      CHECK(!(*node)->allocate(MnId{0}, "more than there is", 1 << 20, "a test"));
      CHECK(member::view_of((*node)->cluster()).members.size() == 1);
    }
    (*node)->leave();
  });
  EXPECT_EQ(wait_for(pid), 0);
}

TEST_F(Processes, AFullClusterRefusesOneMoreAndTakesTheNextWhenOneLeft) {
  auto first = ComputeNode::join(config(2));
  auto second = ComputeNode::join(config(2));
  ASSERT_TRUE(first && second);
  EXPECT_EQ((*first)->self().slot, Slot{0});
  EXPECT_EQ((*second)->self().slot, Slot{1});
  auto third = ComputeNode::join(config(2));
  ASSERT_FALSE(third);
  EXPECT_NE(third.error().find("all 2 member slots are taken"), std::string::npos);
  EXPECT_FALSE(shm::remove_cluster(directory_, "test")) << "it is in use";
  (*first)->leave();
  first->reset();
  third = ComputeNode::join(config(2));
  ASSERT_TRUE(third) << third.error();
  EXPECT_EQ((*third)->self().slot, Slot{0});
  EXPECT_EQ((*third)->self().incarnation, member::Incarnation{2});
  EXPECT_EQ(member::view_of((*third)->cluster()).removals, 0u) << "who leaves is not removed";
  (*third)->leave();
  (*second)->leave();
  EXPECT_TRUE(shm::remove_cluster(directory_, "test"));
}

TEST_F(Processes, TheLastOneOutRemovesTheFilesIfAsked) {
  ComputeNode::Config c = config();
  c.remove_when_last = true;
  auto first = ComputeNode::join(c);
  auto second = ComputeNode::join(c);
  ASSERT_TRUE(first && second);
  (*first)->leave();
  EXPECT_FALSE(std::filesystem::is_empty(directory_));
  (*second)->leave();
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

// Who becomes a member may be asked for an answer at once, before its locks exist.
TEST_F(Processes, WhatIsSentToANewMemberWaitsUntilItLooks) {
  struct Heard final : Receiver {
    void on_message(EndpointId, const Message& message) override { word = message.words[0]; }
    std::uint64_t word = 0;
  };
  auto first = ComputeNode::join(config());
  ASSERT_TRUE(first);
  (*first)->endpoint(0).send(EndpointId{1}, {{1, 0, 0}});  // to whoever had the slot before
  ComputeNode::Config c = config();
  c.cluster.step = [&](std::string_view step) {
    if (step == "be a member") (*first)->endpoint(0).send(EndpointId{1}, {{2, 0, 0}});
  };
  auto second = ComputeNode::join(c);
  ASSERT_TRUE(second);
  Heard heard;
  (*second)->endpoint(0).set_receiver(&heard);
  (void)(*second)->endpoint(0).poll();
  EXPECT_EQ(heard.word, 2u);
  (*second)->leave();
  (*first)->leave();
}

TEST_F(Processes, AForkedChildKeepsNoSlot) {
  auto& grandchild = shared<std::atomic<pid_t>>();
  const pid_t pid = start([&] {
    auto node = ComputeNode::join(config());
    CHECK(node);
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    grandchild.store(child);
    for (;;) pause();
  });
  ASSERT_TRUE(soon([&] { return grandchild.load() != 0; }));
  auto node = ComputeNode::join(config());
  ASSERT_TRUE(node) << node.error();
  (*node)->start();
  EXPECT_EQ(member::view_of((*node)->cluster()).members.size(), 2u);
  kill(pid, SIGKILL);
  wait_for(pid);
  EXPECT_TRUE(soon([&] { return member::view_of((*node)->cluster()).removals == 1; }))
      << "the child has its parent's slot";
  kill(grandchild.load(), SIGKILL);
  (*node)->stop();
  (*node)->leave();
}

// Such a child runs no handlers, and keeps the description that has the slot's lock open: its parent is dead all the same.
TEST_F(Processes, ADeadMemberIsRemovedAlthoughAChildKeepsItsLock) {
  auto& grandchild = shared<std::atomic<pid_t>>();
  const pid_t pid = start([&] {
    auto node = ComputeNode::join(config(2));
    CHECK(node);
    Locker locker{**node};
    (void)locker.lock();
    const pid_t child = _Fork();
    if (child == 0) {
      for (;;) pause();
    }
    grandchild.store(child);
    for (;;) pause();
  });
  ASSERT_TRUE(soon([&] { return grandchild.load() != 0; }));
  auto node = ComputeNode::join(config(2));
  ASSERT_TRUE(node) << node.error();
  {
    Locker locker{**node};
    kill(pid, SIGKILL);
    wait_for(pid);
    ASSERT_TRUE(soon([&] { return member::view_of((*node)->cluster()).removals == 1; }))
        << "the child keeps its parent alive";
    locker.unlock(locker.lock());
    auto third = ComputeNode::join(config(2));
    EXPECT_FALSE(third) << "its slot cannot be used as long as the child lives";
  }
  (*node)->leave();
  node->reset();
  // Nor can the slot of somebody who left be waited for for ever.
  const auto alone = ComputeNode::join(config(2), Slot{0});
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().find("slot 0 is taken"), std::string::npos) << alone.error();
  kill(grandchild.load(), SIGKILL);
  auto last = ComputeNode::join(config(2));
  ASSERT_TRUE(last) << last.error();
  (*last)->leave();
}

// A member in another name space may have any number, also that of a process that has ended here.
TEST_F(Processes, ANumberFromAnotherNameSpaceSaysNothing) {
  const pid_t ended = start([] {});
  wait_for(ended);
  auto& ready = shared<std::atomic<bool>>();
  const pid_t killed = start([&] {
    auto node = ComputeNode::join(config(), Slot{2});
    CHECK(node);
    ready.store(true);
    for (;;) pause();
  });
  ASSERT_TRUE(soon([&] { return ready.load(); }));
  auto node = ComputeNode::join(config());
  auto other = ComputeNode::join(config());
  ASSERT_TRUE(node && other);
  shm::Cluster::MemberLine& line = (*other)->cluster().member(Slot{1});
  line.pid.store(static_cast<std::uint32_t>(ended));
  line.pid_space.fetch_add(1);
  (*node)->start();
  kill(killed, SIGKILL);
  wait_for(killed);
  // Its slot comes after the other's: when it was removed, the other one was looked at.
  ASSERT_TRUE(soon([&] { return member::view_of((*node)->cluster()).removals > 0; }));
  EXPECT_TRUE(member::view_of((*node)->cluster()).has((*other)->self())) << "it is alive";
  (*node)->stop();
  (*other)->leave();
  (*node)->leave();
}

TEST_F(Processes, AForkBesideOpeningLeaksNoLock) {
  ASSERT_TRUE(shm::Cluster::open_or_create(config().cluster));
  std::atomic<bool> stop{false};
  std::thread opening{[&] {
    while (!stop.load()) (void)member::SlotLock::open(cluster_path());
  }};
  int leaked = 0;
  for (int i = 0; i < 300; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      char target[256];
      int count = 0;
      for (int number = 3; number < 64; ++number) {
        const std::string link = "/proc/self/fd/" + std::to_string(number);
        const ssize_t length = readlink(link.c_str(), target, sizeof target);
        if (length > 0 && std::string_view(target, static_cast<std::size_t>(length)) == cluster_path())
          ++count;
      }
      _exit(count);
    }
    leaked += wait_for(pid) == 0 ? 0 : 1;
  }
  stop.store(true);
  opening.join();
  EXPECT_EQ(leaked, 0);
}

TEST_F(Processes, ALockIsHandedOnWhenItsHolderIsKilled) {
  auto& holds = shared<std::atomic<bool>>();
  const pid_t pid = start([&] {
    auto node = ComputeNode::join(config());
    CHECK(node);
    Locker locker{**node};
    (void)locker.lock();
    holds.store(true);
    for (;;) pause();
  });
  ASSERT_TRUE(soon([&] { return holds.load(); }));
  auto node = ComputeNode::join(config());
  ASSERT_TRUE(node) << node.error();
  Locker locker{**node};
  kill(pid, SIGKILL);
  wait_for(pid);
  const Hold hold = locker.lock();
  EXPECT_EQ(hold.epoch, Epoch{1}) << "there was one reset";
  locker.unlock(hold);
}

// Its thread is asleep in its own code, with a lock; whoever resets another lock needs its answer all the same.
TEST_F(Processes, ABusyMemberAnswersAReset) {
  auto& holds = shared<std::atomic<bool>>();
  auto& stop = shared<std::atomic<bool>>();
  const pid_t pid = start([&] {
    auto node = ComputeNode::join(config());
    CHECK(node);
    Locker locker{**node};
    const Hold hold = locker.lock(kOther);
    holds.store(true);
    while (!stop.load()) usleep(1000);
    locker.unlock(hold);
  });
  ASSERT_TRUE(soon([&] { return holds.load(); }));
  auto node = ComputeNode::join(config());
  ASSERT_TRUE(node) << node.error();
  {
    Locker locker{**node};
    locker.unlock(locker.lock());
    locker.node.worker(0).run_until([&, started = false]() mutable {
      if (!std::exchange(started, true)) locker.locks.worker(0).cql().reset_for_nothing(kLock);
      return locker.locks.worker(0).cql().running() == 0;
    });
    EXPECT_EQ(locker.locks.worker(0).cql().resets().done, 1u);
    EXPECT_EQ(locker.lock().epoch, Epoch{1});
  }
  stop.store(true);
  wait_for(pid);
}

TEST_F(Processes, IdleWaitersUseNoCpu) {
  constexpr std::uint32_t kWaiters = 16;
  constexpr std::uint32_t kPlaces = 20;
  auto& holds = shared<std::atomic<bool>>();
  auto& stop = shared<std::atomic<bool>>();
  auto& served = shared<std::atomic<std::uint32_t>>();
  const pid_t holder = start([&] {
    auto node = ComputeNode::join(config(kPlaces));
    CHECK(node);
    Locker locker{**node};
    const Hold hold = locker.lock();
    holds.store(true);
    while (!stop.load()) usleep(1000);
    locker.unlock(hold);
    while (served.load() < kWaiters) usleep(1000);  // whoever is next may need an answer
  });
  ASSERT_TRUE(soon([&] { return holds.load(); }));
  std::vector<pid_t> waiters;
  for (std::uint32_t i = 0; i < kWaiters; ++i) {
    waiters.push_back(start([&] {
      auto node = ComputeNode::join(config(kPlaces));
      CHECK(node);
      Locker locker{**node, milliseconds(10)};
      locker.unlock(locker.lock());
      served.fetch_add(1);
      while (served.load() < kWaiters) usleep(1000);
    }));
  }
  auto cluster = shm::Cluster::open(directory_, "test");
  ASSERT_TRUE(cluster) << cluster.error();
  const LockShape shape{kPlaces, kPlaces, QueueLayout::owner};
  ASSERT_TRUE(soon([&] {
    return shape.header.decode(cluster->word(kLock).load()).qsize == 1 + kWaiters;
  })) << "all are in the queue";
  const auto worked = [&] {
    Duration sum{};
    for (const pid_t pid : waiters) sum = sum + cpu_time_of(pid);
    return sum;
  };
  const Duration before = worked();
  const Time began = monotonic_now();
  sleep(1);
  const double worked_ms = static_cast<double>(worked().ns - before.ns) / 1e6;
  const double waited_s = static_cast<double>((monotonic_now() - began).ns) / 1e9;
  stop.store(true);
  for (const pid_t pid : waiters) EXPECT_EQ(wait_for(pid), 0);
  EXPECT_EQ(wait_for(holder), 0);
  fmt::print("{} processes that waited {:.1f} s used {:.1f} ms of CPU together\n", kWaiters, waited_s,
             worked_ms);
  EXPECT_LT(worked_ms, kWaiters * 5 * waited_s);
}

TEST_F(Processes, ManyMoreProcessesThanCoresGetOnAndStayFair) {
  constexpr std::uint32_t kProcesses = 64;
  constexpr std::uint64_t kWanted = 100 * kProcesses;
  struct Board {
    std::atomic<std::uint32_t> ready;
    std::atomic<std::uint32_t> done;
    std::atomic<bool> go;
    std::atomic<bool> stop;
    std::atomic<std::uint64_t> counts[kProcesses];
    std::uint64_t sum;  // protected by the lock
  };
  using Counts = std::vector<std::uint64_t>;
  Board& board = shared<Board>();
  const auto counts = [&] { return Counts(std::begin(board.counts), std::end(board.counts)); };
  const auto sum_of = [](const Counts& c) {
    return std::accumulate(c.begin(), c.end(), std::uint64_t{0});
  };
  std::vector<pid_t> pids;
  for (std::uint32_t i = 0; i < kProcesses; ++i) {
    pids.push_back(start([&, i] {
      auto node = ComputeNode::join(config(kProcesses));
      CHECK(node);
      Locker locker{**node, milliseconds(20)};
      board.ready.fetch_add(1);
      while (!board.go.load()) usleep(1000);
      while (!board.stop.load()) {
        const Hold hold = locker.lock();
        board.sum += 1;
        locker.unlock(hold);
        board.counts[i].fetch_add(1);
      }
      board.done.fetch_add(1);
      while (board.done.load() < kProcesses) usleep(1000);
    }));
  }
  ASSERT_TRUE(soon([&] { return board.ready.load() == kProcesses; }));
  board.go.store(true);
  // Fair is who is there: it is measured from when all have had it once.
  ASSERT_TRUE(soon([&] {
    const Counts c = counts();
    return std::find(c.begin(), c.end(), 0) == c.end();
  }));
  const Counts before = counts();
  EXPECT_TRUE(soon([&] { return sum_of(counts()) >= sum_of(before) + kWanted; }));
  const Counts after = counts();
  board.stop.store(true);
  for (const pid_t pid : pids) EXPECT_EQ(wait_for(pid), 0);
  EXPECT_EQ(sum_of(counts()), board.sum);
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (std::uint32_t i = 0; i < kProcesses; ++i) {
    least = std::min(least, after[i] - before[i]);
    most = std::max(most, after[i] - before[i]);
  }
  fmt::print("{} processes: {} acquisitions, {} to {} each\n", kProcesses,
             sum_of(after) - sum_of(before), least, most);
  EXPECT_GT(least, 0u);
  EXPECT_LE(most, 4 * least + 16);
}

}  // namespace
}  // namespace declock::process
