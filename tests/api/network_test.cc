// The same API over TCP: memory nodes are processes, which are killed and restarted.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "api/support.h"
#include "client/seeing.h"
#include "memnode/memory_node.h"
#include "networks/networks.h"
#include "process/programs.h"

namespace declock::api {
namespace {

using namespace std::chrono_literals;

// Memory node 0 coordinates. Each is a process, forked while the test had no threads: what a thread has locked at that
// moment, as the memory of a sanitizer, stays locked in the child for ever.
class TcpCluster : public WithFairness {
 protected:
  // A lease that a busy machine keeps nobody from renewing.
  explicit TcpCluster(Duration lease = seconds(30)) : lease_(lease) {}
  void SetUp() override {
    ASSERT_TRUE(wire::create_secret(directory_ / "secret"));
    for (Spare& spare : spares_) spare = prepare();
    addresses_.push_back(start(0));
  }
  void TearDown() override {
    for (Spare& spare : spares_) end(spare);
  }

  std::string uri(const std::string& options = "") const {
    return "tcp://" + addresses_[0] + "?patience=120s&secret=" + (directory_ / "secret") + fairness() +
           options;
  }

  // Where it listens.
  std::string start(std::uint16_t id) {
    Spare& spare = spares_.at(started_++);
    EXPECT_EQ(write(spare.socket, &id, 2), 2);
    if (id != 0) {
      EXPECT_EQ(write(spare.socket, &coordinator_port_, 2), 2);
    }
    std::uint16_t port = 0;
    EXPECT_EQ(read(spare.socket, &port, 2), 2) << "the memory node did not start";
    if (id == 0) coordinator_port_ = port;
    nodes_[id] = &spare;
    return "127.0.0.1:" + std::to_string(port);
  }
  void stop(std::uint16_t id) { end(*nodes_[id]); }
  void restart(std::uint16_t id) {
    stop(id);
    start(id);
  }
  void send(std::uint16_t id, int signal) { ::kill(nodes_[id]->pid, signal); }

  process::TemporaryDirectory directory_;
  std::vector<std::string> addresses_;

 private:
  struct Spare {
    pid_t pid = 0;
    int socket = -1;
  };

  Spare prepare() const {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const pid_t pid = fork();
    if (pid == 0) be_memory_node(ends[1]);
    close(ends[1]);
    return {pid, ends[0]};
  }

  // Waits to be told which.
  [[noreturn]] void be_memory_node(int socket) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memnode::Config config;
    if (read(socket, &config.id, 2) != 2) _exit(2);
    config.bytes = 1 << 20;
    config.shape.members = 8;
    config.shape.lease = lease_;
    config.secret = *wire::read_secret(directory_ / "secret");
    if (config.id != 0) {
      config.coordinator = wire::HostPort{"127.0.0.1"};
      if (read(socket, &config.coordinator->port, 2) != 2) _exit(2);
    }
    config.expose = [](const std::string& host, std::span<std::byte> memory) {
      return net::open_exposure({Fabric::tcp}, host, memory);
    };
    config.log = [&](const std::string& line) {  // shown if the test fails
      fmt::print(stderr, "memory node {}: {}\n", config.id, line);
    };
    auto node = memnode::MemoryNode::open(config);
    if (!node) _exit(2);
    const std::uint16_t port = (*node)->address().port;
    (void)!write(socket, &port, 2);
    (void)(*node)->run();
    _exit(0);
  }
  static void end(Spare& spare) {
    if (spare.pid == 0) return;
    ::kill(spare.pid, SIGKILL);
    waitpid(std::exchange(spare.pid, 0), nullptr, 0);
    close(spare.socket);
  }

  const Duration lease_;
  std::array<Spare, 3> spares_;
  std::map<std::uint16_t, Spare*> nodes_;
  std::size_t started_ = 0;
  std::uint16_t coordinator_port_ = 0;
};

// For tests in which somebody is stopped and taken for dead.
class TcpClusterThatMissesOne : public TcpCluster {
 protected:
  TcpClusterThatMissesOne() : TcpCluster(seconds(5)) {}
};
DECLOCK_WITH_FAIRNESS(TcpCluster);
DECLOCK_WITH_FAIRNESS(TcpClusterThatMissesOne);

TEST_P(TcpCluster, ProcessesAndThreadsCountRight) {
  constexpr int kEach = 100;
  const auto add = [&](Cluster& cluster) {
    SharedMutex mutex = cluster.shared_mutex("counter");
    const RemoteAddr at = *cluster.allocate("counter", 8);
    for (int i = 0; i < kEach; ++i) {
      std::uint64_t n = 0;
      mutex.lock_and_read(at, {&n, 1});
      n += 1;
      ASSERT_TRUE(mutex.write_and_unlock(at, {&n, 1}));
    }
  };
  Child other{[&] {
    Cluster cluster = open(uri());
    add(cluster);
    return cluster.close() ? 0 : 1;
  }};
  Cluster cluster = open(uri());
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) threads.emplace_back([&] { add(cluster); });  // more than workers
  }
  EXPECT_EQ(other.wait(), 0);
  std::uint64_t n = 0;
  ASSERT_TRUE(cluster.read(*cluster.allocate("counter", 8), {&n, 1}));
  EXPECT_EQ(n, 7 * kEach);
  EXPECT_TRUE(cluster.close());
}

TEST_P(TcpCluster, WhoseLocksAreOfAnotherKindIsRefused) {
  Cluster cluster = open(uri());
  const bool token = GetParam() == std::string_view{"token"};
  const auto refused = Cluster::open(uri(token ? "&fairness=slack" : "&fairness=token"));
  ASSERT_FALSE(refused);
  const std::string said =
      std::string{"memory node 0: others use its locks "} + (token ? "with" : "without");
  EXPECT_NE(refused.error().message.find(said), std::string::npos) << refused.error().message;
  EXPECT_TRUE(client::open_to_look(uri(token ? "&fairness=slack" : "&fairness=token"), {}));
  EXPECT_TRUE(Cluster::open(uri()));
}

TEST_P(TcpCluster, AForkedChildIsRefusedAndMayLeaveItsScope) {
  auto cluster = std::make_optional(open(uri()));
  auto mutex = std::make_optional<SharedMutex>(*cluster, "m");
  mutex->lock();
  Child child{[&] {
    const auto named = cluster->named_lock("x");
    EXPECT_TRUE(!named && named.error().message.find("forked") != std::string::npos);
    EXPECT_THROW(mutex->lock(), std::system_error);
    mutex->unlock();
    mutex.reset();
    cluster.reset();
    return testing::Test::HasFailure() ? 1 : 0;
  }};
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(mutex->unlock_checked()) << "the child has unlocked it";
  EXPECT_TRUE(cluster->close());
}

Task<void> use(Client& client, LockRef lock, RemoteAddr at) {
  for (int i = 0; i < 10; ++i) {
    std::uint64_t n = 0;
    Result<Guard> guard = co_await client.lock_and_read(lock, at, {&n, 1});
    EXPECT_TRUE(guard);
    if (!guard) co_return;
    n += 1;
    EXPECT_TRUE(co_await guard->write_and_unlock(at, {&n, 1}));
    Result<Guard> shared = co_await client.lock_shared_and_read(lock, at, {&n, 1});
    EXPECT_TRUE(shared);
    // Releases itself, and nobody waits for that.
  }
}

TEST_P(TcpCluster, CoroutinesOfOneClientCountRight) {
  Cluster cluster = open(uri());
  const LockRef lock = *cluster.named_lock("x");
  const RemoteAddr at = *cluster.allocate("x", 8);
  Client client = *cluster.client();
  for (int i = 0; i < 20; ++i) client.spawn(use(client, lock, at));
  client.run_all();
  std::uint64_t n = 0;
  ASSERT_TRUE(cluster.read(at, {&n, 1}));
  EXPECT_EQ(n, 200);
}

// However long it takes to ask: as with try_lock().
TEST_P(TcpCluster, NoTimeIsEnoughForAFreeLock) {
  Cluster cluster = open(uri());
  SharedMutex mutex = cluster.shared_mutex("free");
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(i % 2 == 0 ? mutex.try_lock_for(0ms) : mutex.try_lock_for(50us));
    ASSERT_TRUE(mutex.unlock_checked());
    ASSERT_TRUE(mutex.try_lock_shared_until(std::chrono::system_clock::now() - 1s));
    ASSERT_TRUE(mutex.unlock_shared_checked());
  }
  mutex.lock();
  std::jthread{[&] { EXPECT_FALSE(mutex.try_lock_for(0ms)); }}.join();
  mutex.unlock();
}

// An adapter's library behind libfabric would end the process its own way.
TEST_P(TcpCluster, SignalsAreLeftAlone) {
  const Cluster cluster = open(uri());
  for (const int number : {SIGINT, SIGTERM, SIGILL}) {
    struct sigaction now {};
    ASSERT_EQ(sigaction(number, nullptr, &now), 0);
    EXPECT_EQ(now.sa_handler, SIG_DFL) << number;
  }
}

TEST_P(TcpCluster, AHandlerThatTheProgramHasSetStays) {
  struct sigaction ours {};
  ours.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGTERM, &ours, &before), 0);
  const Cluster cluster = open(uri());
  struct sigaction now {};
  ASSERT_EQ(sigaction(SIGTERM, &before, &now), 0);
  EXPECT_EQ(now.sa_handler, ours.sa_handler);
}

TEST_P(TcpCluster, SeveralHostsAreTriedAndTheErrorsOfAllAreSaid) {
  const std::string secret = "&secret=" + (directory_ / "secret");
  // The first refuses at once: it hosts no coordinator. One that is not there is tried for as long as the patience lasts.
  const auto second =
      Cluster::open("tcp://" + start(1) + "," + addresses_[0] + "?patience=120s" + secret);
  EXPECT_TRUE(second) << second.error().message;
  const auto none = Cluster::open("tcp://127.0.0.1:1,127.0.0.1:2?patience=300ms" + secret);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::unavailable);
  EXPECT_NE(none.error().message.find("127.0.0.1:1"), std::string::npos) << none.error().message;
  EXPECT_NE(none.error().message.find("127.0.0.1:2"), std::string::npos) << none.error().message;
}

// After a restart other names come to lie where a lock was. Who looked it up before must not touch that.
TEST_P(TcpCluster, ALockOfAMemoryNodeThatRestartedIsLookedUpAgainOrRefused) {
  addresses_.push_back(start(1));
  constexpr MnId kOne{1};
  std::atomic<int> failed{0};
  Options options;
  options.on_release_error = [&](LockRef, Errc error) {
    failed += error == Errc::mn_restarted ? 1 : 100;
  };
  Cluster before = open(uri(), options);
  const LockRef first = *before.named_lock("first", kOne);
  SharedMutex held = before.shared_mutex("held", kOne);
  SharedMutex seen = before.shared_mutex("seen", kOne);
  SharedMutex raw{before, first};
  held.lock();
  seen.lock();
  restart(1);
  // The hold was void, and whoever asks is told so.
  EXPECT_EQ(seen.unlock_checked().error(), Errc::mn_restarted);
  held.unlock();

  Cluster after = open(uri());
  const RemoteAddr data = *after.allocate("data", 4096, kOne);
  ASSERT_EQ(data.packed(), first.at.packed()) << "the test wants something else to lie there";
  SharedMutex same = after.shared_mutex("held", kOne);
  EXPECT_NE(same.ref().at, held.ref().at);

  try {
    raw.lock();
    ADD_FAILURE() << "it was looked up before the restart";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), make_error_code(Errc::mn_restarted));
  }
  held.lock();  // by name: looked up again
  EXPECT_EQ(same.ref().at, held.ref().at);
  EXPECT_FALSE(same.try_lock());
  EXPECT_TRUE(held.unlock_checked());
  EXPECT_TRUE(same.try_lock_for(kLong));
  same.unlock();
  EXPECT_THROW(raw.lock(), std::system_error);

  std::array<std::uint64_t, 512> words{};
  ASSERT_TRUE(after.read(data, words));
  for (const std::uint64_t word : words) EXPECT_EQ(word, 0);
  EXPECT_TRUE(before.close());
  EXPECT_EQ(failed, 1);
}

TEST_P(TcpCluster, AnAddressFromBeforeARestartIsRefusedForEver) {
  addresses_.push_back(start(1));
  Cluster cluster = open(uri());
  const MnId mn{1};
  // What the library itself has there comes first before the restart, and second after it.
  (void)*cluster.allocate("before", 64, mn);
  const RemoteAddr old = *cluster.allocate("old", 64, mn);
  const LockRef embedded{*cluster.allocate("object", cluster.lock_bytes(), mn)};
  SharedMutex mutex = cluster.shared_mutex("lock", mn);
  std::uint64_t word = 1;
  EXPECT_TRUE(cluster.write(old, {&word, 1}));
  restart(1);
  std::optional<RemoteAddr> other;
  ASSERT_TRUE(soon([&] {
    (void)cluster.allocate("after", 64, mn);
    if (const auto made = cluster.allocate("another", 64, mn)) other = *made;
    return other.has_value();
  }));
  ASSERT_EQ(other->offset, old.offset) << "or the test shows nothing";
  word = 7;
  EXPECT_TRUE(cluster.write(*other, {&word, 1}));
  word = 666;
  mutex.lock();  // by name: it was looked up again
  EXPECT_EQ(cluster.read(old, {&word, 1}).error(), Errc::mn_restarted);
  EXPECT_EQ(cluster.write(old, {&word, 1}).error(), Errc::mn_restarted);
  EXPECT_EQ(mutex.write_and_unlock(old, {&word, 1}).error(), Errc::mn_restarted);
  EXPECT_THROW(mutex.lock_and_read(old, {&word, 1}), std::system_error);
  EXPECT_TRUE(mutex.try_lock_for(kLong)) << "it was released in any case";
  EXPECT_TRUE(mutex.write_and_unlock(*other + 8, {&word, 1}));
  EXPECT_THROW(cluster.shared_mutex(embedded).lock(), std::system_error);
  EXPECT_TRUE(cluster.read(*other, {&word, 1}));
  EXPECT_EQ(word, 7u);
  EXPECT_TRUE(cluster.close());
}

Task<Result<Guard>> take(Client& client, LockRef lock) {
  co_return co_await client.lock(lock);
}

Task<Errc> write_under(Guard& guard, RemoteAddr to, std::uint64_t value) {
  const Result<void> written = co_await guard.write(to, {&value, 1});
  co_return written ? Errc::ok : written.error();
}

// The memory lies on another one, which has not.
TEST_P(TcpCluster, AHoldThatARestartHasMadeVoidWritesNothingAnywhere) {
  addresses_.push_back(start(1));
  Cluster cluster = open(uri());
  const RemoteAddr gone = *cluster.allocate("gone", 8, MnId{1});
  const RemoteAddr data = *cluster.allocate("data", 8);
  SharedMutex mutex = cluster.shared_mutex("lock", MnId{1});
  Client client = std::move(*cluster.client());
  Guard guard = std::move(*client.run(take(client, *cluster.named_lock("guarded", MnId{1}))));
  mutex.lock();
  std::uint64_t word = 666;
  restart(1);
  ASSERT_TRUE(soon([&] { return cluster.read(gone, {&word, 1}).error() == Errc::mn_restarted; }));
  EXPECT_EQ(mutex.write_and_unlock(data, {&word, 1}).error(), Errc::mn_restarted);
  ASSERT_TRUE(soon([&] { return client.run(write_under(guard, data, 666)) == Errc::mn_restarted; }));
  word = 7;
  EXPECT_TRUE(cluster.write(data, {&word, 1}));
  EXPECT_EQ(client.run(write_under(guard, data, 666)), Errc::mn_restarted);
  EXPECT_TRUE(cluster.read(data, {&word, 1}));
  EXPECT_EQ(word, 7u);
}

// The lock lies where it lay, and its memory node has not restarted.
TEST_P(TcpCluster, ALockIsNotTakenWithDataThatARestartHasTakenAway) {
  addresses_.push_back(start(1));
  Cluster cluster = open(uri());
  const RemoteAddr data = *cluster.allocate("data", 8, MnId{1});
  SharedMutex mutex = cluster.shared_mutex("lock");
  std::uint64_t word = 0;
  restart(1);
  ASSERT_TRUE(soon([&] { return cluster.read(data, {&word, 1}).error() == Errc::mn_restarted; }));
  EXPECT_THROW(mutex.lock_and_read(data, {&word, 1}), std::system_error);
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(cluster.close());
}

// Addresses that the program makes itself.
TEST_P(TcpCluster, AnAddressOnAMemoryNodeThatCameLaterIsForThatIncarnation) {
  Cluster cluster = open(uri());
  addresses_.push_back(start(1));
  constexpr RemoteAddr kMade{MnId{1}, 4096};
  std::uint64_t word = 0;
  ASSERT_TRUE(soon([&] { return cluster.read(kMade, {&word, 1}).has_value(); }));
  SharedMutex mutex = cluster.shared_mutex(LockRef{kMade + 8});
  mutex.lock();
  EXPECT_TRUE(mutex.unlock_checked());
  restart(1);
  EXPECT_TRUE(soon([&] { return cluster.read(kMade, {&word, 1}).error() == Errc::mn_restarted; }));
  ASSERT_TRUE(soon([&] { return cluster.named_lock("another", MnId{1}).has_value(); }));
  EXPECT_EQ(cluster.write(kMade, {&word, 1}).error(), Errc::mn_restarted);
  EXPECT_THROW(mutex.lock(), std::system_error);
  EXPECT_TRUE(cluster.close());
}

TEST_P(TcpClusterThatMissesOne, AnAddressOnAMemoryNodeThatWasAwayIsForTheNextIncarnation) {
  addresses_.push_back(start(1));
  Cluster watching = open(uri());
  const std::uint64_t before = watching.stats().view;
  stop(1);
  ASSERT_TRUE(soon([&] { return watching.stats().view > before; }));
  Cluster cluster = open(uri());
  start(1);
  std::uint64_t word = 0;
  EXPECT_TRUE(soon([&] { return cluster.read({MnId{1}, 4096}, {&word, 1}).has_value(); }));
  EXPECT_TRUE(cluster.close());
}

TEST_P(TcpCluster, WaitersOfAMemoryNodeThatRestartsGoOnAndEveryWorkerFollows) {
  addresses_.push_back(start(1));
  constexpr MnId kOne{1};
  Cluster holder = open(uri());
  Cluster cluster = open(uri());
  SharedMutex held = holder.shared_mutex("w", kOne);
  held.lock();
  SharedMutex mutex = cluster.shared_mutex("w", kOne);
  EXPECT_FALSE(mutex.try_lock_for(10ms));  // its request stays in the queue
  std::atomic<int> got{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      mutex.lock();
      got += 1;
      mutex.unlock();
    });
  }
  EXPECT_TRUE(until_waiting(cluster, 2));
  EXPECT_EQ(got, 0);
  restart(1);
  threads.clear();
  EXPECT_EQ(got, 2);
  EXPECT_EQ(held.unlock_checked().error(), Errc::mn_restarted);

  int count = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        const std::unique_lock lock{mutex};
        count += 1;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(count, 160);
  held.lock();  // by name, in the other process as well
  EXPECT_FALSE(mutex.try_lock());
  held.unlock();
  EXPECT_TRUE(holder.close());
  EXPECT_TRUE(cluster.close());
}

// Once the cluster has such a memory node.
std::optional<LockRef> until_named(Cluster& cluster, const std::string& name, MnId mn) {
  std::optional<LockRef> lock;
  (void)soon([&] {
    if (const auto made = cluster.named_lock(name, mn)) lock = *made;
    return lock.has_value();
  });
  return lock;
}

TEST_P(TcpCluster, AMemoryNodeThatComesLaterServesAndOneThatNeverCameIsRefused) {
  Cluster cluster = open(uri());
  addresses_.push_back(start(1));
  const auto lock = until_named(cluster, "late", MnId{1});  // until this node has heard of it
  ASSERT_TRUE(lock);
  SharedMutex mutex = cluster.shared_mutex(*lock);
  EXPECT_TRUE(mutex.try_lock_for(kLong));
  mutex.unlock();
  EXPECT_EQ(client::find_lock(cluster, "late")->at, lock->at);
  std::uint64_t word = 0;
  EXPECT_TRUE(cluster.read({MnId{1}, (1 << 20) - 8}, {&word, 1}));
  EXPECT_EQ(cluster.read({MnId{1}, 1 << 20}, {&word, 1}).error(), Errc::invalid_argument);
  EXPECT_EQ(cluster.read({MnId{0}, std::uint64_t{1} << 40}, {&word, 1}).error(),
            Errc::invalid_argument);
  EXPECT_EQ(cluster.read({MnId{7}, 0}, {&word, 1}).error(), Errc::invalid_argument);
}

TEST_P(TcpClusterThatMissesOne, AMemoryNodeThatWasTakenForDeadServesAgain) {
  addresses_.push_back(start(1));
  Cluster cluster = open(uri());
  const auto lock_there = [&] {
    const auto lock = until_named(cluster, "there", MnId{1});
    if (!lock) return std::uint32_t{0};
    SharedMutex mutex = cluster.shared_mutex(*lock);
    const std::unique_lock held{mutex};
    return lock->at.mn_incarnation;
  };
  const std::uint32_t first = lock_there();
  ASSERT_NE(first, 0);
  send(1, SIGSTOP);
  (void)open(uri());  // waits for every memory node that the cluster has not given up
  send(1, SIGCONT);
  EXPECT_GT(lock_there(), first) << "with fresh memory";
}

TEST_P(TcpClusterThatMissesOne, AProcessThatWasTakenForDeadIsToldAndMayOpenItAgain) {
  std::array<int, 2> held{};
  std::array<int, 2> go_on{};
  ASSERT_EQ(pipe(held.data()), 0);
  ASSERT_EQ(pipe(go_on.data()), 0);
  char byte = 0;
  Child sleeper{[&] {
    Cluster cluster = open(uri());
    SharedMutex mutex = cluster.shared_mutex("m");
    mutex.lock();
    (void)!write(held[1], "x", 1);
    (void)!read(go_on[0], &byte, 1);  // it is stopped meanwhile
    const Result<void> released = mutex.unlock_checked();
    if (released || released.error() != Errc::evicted) return 1;
    try {
      mutex.lock();
      return 2;
    } catch (const std::system_error& error) {
      if (error.code() != make_error_code(Errc::evicted)) return 3;
    }
    if (!cluster.evicted()) return 4;
    if (cluster.close()) return 5;
    Cluster again = open(uri());
    SharedMutex same = again.shared_mutex("m");
    same.lock();
    same.unlock();
    return again.close() ? 0 : 6;
  }};
  EXPECT_EQ(read(held[0], &byte, 1), 1);
  Cluster cluster = open(uri());
  SharedMutex mutex = cluster.shared_mutex("m");
  EXPECT_FALSE(mutex.try_lock());
  sleeper.kill(SIGSTOP);
  EXPECT_TRUE(mutex.try_lock_for(kLong));  // after its lease
  mutex.unlock();
  EXPECT_EQ(write(go_on[1], "x", 1), 1);
  sleeper.kill(SIGCONT);
  EXPECT_EQ(sleeper.wait(), 0);
  const Stats stats = cluster.stats();
  EXPECT_GE(stats.resets + stats.aborted, 1);
}

}  // namespace
}  // namespace declock::api
