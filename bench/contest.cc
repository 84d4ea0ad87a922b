#include "bench/contest.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/sync/interprocess_sharable_mutex.hpp>
#include <memory>
#include <new>
#include <shared_mutex>
#include <stdexcept>
#include <thread>

#include "base/check.h"
#include "base/futex.h"
#include "base/prng.h"
#include "bench/board.h"
#include "bench/processes.h"
#include "bench/temporary_names.h"
#include "declock/shared_mutex.h"
#include "locks/family.h"
#include "member_shm/compute_node.h"

namespace declock::bench {
namespace {

// The clock is read after so many operations.
constexpr std::uint32_t kBatch = 64;

// The instructions of the calling thread, outside the kernel.
class Instructions {
 public:
  Instructions() {
    perf_event_attr what{};
    what.size = sizeof what;
    what.type = PERF_TYPE_HARDWARE;
    what.config = PERF_COUNT_HW_INSTRUCTIONS;
    what.exclude_kernel = 1;
    what.exclude_hv = 1;
    counter_ = static_cast<int>(syscall(SYS_perf_event_open, &what, 0, -1, -1, 0));
  }
  Instructions(const Instructions&) = delete;
  Instructions& operator=(const Instructions&) = delete;
  ~Instructions() {
    if (counter_ >= 0) close(counter_);
  }
  // Nothing where the kernel counts none.
  std::optional<std::uint64_t> so_far() const {
    std::uint64_t count = 0;
    if (counter_ < 0 || read(counter_, &count, sizeof count) != sizeof count) return {};
    return count;
  }

 private:
  int counter_;
};

// A pthread_rwlock_t that processes share.
class RwLock {
 public:
  RwLock() {
    pthread_rwlockattr_t shared;
    pthread_rwlockattr_init(&shared);
    pthread_rwlockattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    CHECK(pthread_rwlock_init(&lock_, &shared) == 0);
  }
  void lock() { (void)pthread_rwlock_wrlock(&lock_); }
  void unlock() { (void)pthread_rwlock_unlock(&lock_); }
  void lock_shared() { (void)pthread_rwlock_rdlock(&lock_); }
  void unlock_shared() { (void)pthread_rwlock_unlock(&lock_); }

 private:
  pthread_rwlock_t lock_{};
};

class SharableMutex {
 public:
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void lock_shared() { mutex_.lock_sharable(); }
  void unlock_shared() { mutex_.unlock_sharable(); }

 private:
  boost::interprocess::interprocess_sharable_mutex mutex_;
};

// What those who take part share. The counter is what the lock protects.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): each on a line of its own
struct Arena {
  std::atomic<std::uint32_t> ready{0};
  std::atomic<std::uint32_t> finished{0};
  std::atomic<std::int64_t> start_ns{0};
  alignas(64) std::uint64_t counter = 0;
  alignas(64) RwLock rwlock;
  alignas(64) SharableMutex sharable;
};

struct alignas(64) Tally {
  std::uint64_t operations = 0;
  std::uint64_t updates = 0;
  std::uint64_t overtakes = 0;
  std::uint64_t overtakes_max = 0;
  std::uint64_t instructions = 0;  // 0: not counted
  double ns = 0;
};

// One thread of one process.
class Part {
 public:
  Part(const Contest& contest, Arena& arena, Board& board, Tally& tally, std::uint32_t index)
      : contest_(contest),
        arena_(arena),
        board_(contest.watched ? &board : nullptr),
        tally_(tally),
        index_(index),
        random_(contest.seed, index + 1) {}

  void wait_for_start() {
    if (arena_.ready.fetch_add(1) + 1 == all()) arena_.start_ns.store(monotonic_now().ns);
    while (arena_.start_ns.load() == 0) sched_yield();
    started_ = monotonic_now();
    instructions_before_ = instructions_.so_far();
  }
  // False: it is time to stop.
  bool another_batch() {
    const Time now = monotonic_now();
    tally_.ns = static_cast<double>((now - started_).ns);
    if (now - started_ < contest_.duration) return true;
    if (instructions_before_) tally_.instructions = *instructions_.so_far() - *instructions_before_;
    return false;
  }
  void finish() { arena_.finished.fetch_add(1); }
  bool all_have_finished() const { return arena_.finished.load() == all(); }
  Mode next() {
    const bool reads =
        contest_.read_ratio == 1 || (contest_.read_ratio > 0 && random_.unit() < contest_.read_ratio);
    return reads ? Mode::shared : Mode::exclusive;
  }
  void calls(Mode mode) {
    if (board_ != nullptr) board_->called(index_, 0, mode, monotonic_now());
  }
  // Inside the lock.
  void use(Mode mode) {
    if (board_ != nullptr) {
      const std::uint64_t overtakes = board_->overtakes(index_);
      tally_.overtakes += overtakes;
      tally_.overtakes_max = std::max(tally_.overtakes_max, overtakes);
      (void)board_->entered(index_, 0, mode);
    }
    volatile std::uint64_t& counter = arena_.counter;
    if (mode == Mode::exclusive) {
      counter = counter + 1;
      tally_.updates += 1;
    } else {
      seen_ = counter;
    }
    if (board_ != nullptr) board_->leaves(index_, monotonic_now());
    tally_.operations += 1;
  }

 private:
  std::uint32_t all() const { return contest_.processes * contest_.threads; }

  const Contest& contest_;
  Arena& arena_;
  Board* board_;
  Tally& tally_;
  std::uint32_t index_;
  Prng random_;
  Time started_;
  Instructions instructions_;
  std::optional<std::uint64_t> instructions_before_;
  volatile std::uint64_t seen_ = 0;
};

template <class Mutex>
void contend(Part& part, Mutex& mutex) {
  part.wait_for_start();
  while (part.another_batch()) {
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const Mode mode = part.next();
      part.calls(mode);
      if (mode == Mode::exclusive) {
        mutex.lock();
        part.use(mode);
        mutex.unlock();
      } else {
        mutex.lock_shared();
        part.use(mode);
        mutex.unlock_shared();
      }
    }
  }
}

// DecLock without the library: a coroutine on this process's worker.
Task<void> contend(Worker& worker, Part& part, LockClient& lock, RemoteAddr addr) {
  part.wait_for_start();
  while (part.another_batch()) {
    co_await worker.yield();  // once in a while it looks for messages
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const Mode mode = part.next();
      part.calls(mode);
      const Result<Hold> hold = co_await lock.acquire(addr, mode);
      CHECK(hold);
      part.use(mode);
      CHECK(co_await lock.release(*hold));
    }
  }
  // The last hand-over may be under way yet, and somebody waits for it.
  part.finish();
  while (!part.all_have_finished()) co_await worker.sleep_for(microseconds(100));
}

class Running {
 public:
  explicit Running(const Contest& contest)
      : contest_(contest),
        parts_(contest.processes * contest.threads),
        memory_(sizeof(Arena) + Board::bytes(1, parts_) + (parts_ + 1) * sizeof(Tally) + 1024),
        arena_(*new (memory_.take<std::byte>(sizeof(Arena))) Arena),
        board_(memory_, 1, parts_),
        tallies_(memory_.take<Tally>(parts_)) {
    cluster_.name = fmt::format("contest-{}", getpid());
    cluster_.members = contest.processes;
    cluster_.mn_bytes = 4096;
    uri_ = contest.uri.empty() ? fmt::format("shm:{}?remove=yes", cluster_.name) : contest.uri;
  }

  void run(const std::function<void()>& progress) {
    const TemporaryNames names{cluster_};
    Children children;
    for (std::uint32_t i = 0; i < contest_.processes; ++i) {
      children.start([this, i] { be_process(i); });
    }
    while (!children.have_all_ended()) {
      if (progress) progress();
      usleep(1000);
    }
    const std::string failure = children.failure();
    if (!failure.empty()) throw std::runtime_error(failure);
  }

  ContestResult result() const {
    ContestResult result;
    std::uint64_t operations = 0;
    std::uint64_t updates = 0;
    std::uint64_t instructions = 0;
    for (std::uint32_t i = 0; i < parts_; ++i) {
      const Tally& tally = tallies_[i];
      result.mops += static_cast<double>(tally.operations) / tally.ns * 1e3;
      result.overtakes += static_cast<double>(tally.overtakes);
      result.overtakes_max = std::max(result.overtakes_max, tally.overtakes_max);
      operations += tally.operations;
      updates += tally.updates;
      instructions += tally.instructions;
    }
    const double each = 1.0 / static_cast<double>(std::max<std::uint64_t>(operations, 1));
    result.overtakes *= each;
    if (instructions > 0) result.instructions = static_cast<double>(instructions) * each;
    result.lost_updates = updates - arena_.counter;
    return result;
  }

 private:
  void be_process(std::uint32_t process) {
    if (contest_.lock == "declock::SharedMutex") {
      auto cluster = Cluster::open(uri_);
      if (!cluster) throw std::runtime_error(cluster.error().message);
      SharedMutex mutex = cluster->shared_mutex("contest");
      return be_threads(process, mutex);
    }
    if (contest_.lock == "std::shared_timed_mutex") {
      std::shared_timed_mutex mutex;
      return be_threads(process, mutex);
    }
    if (contest_.lock == "pthread_rwlock") return be_threads(process, arena_.rwlock);
    if (contest_.lock == "boost_sharable") return be_threads(process, arena_.sharable);
    be_member(process);
  }

  template <class Mutex>
  void be_threads(std::uint32_t process, Mutex& mutex) {
    const auto take_part = [&](std::uint32_t thread) {
      const std::uint32_t index = process * contest_.threads + thread;
      Part part{contest_, arena_, board_, tallies_[index], index};
      contend(part, mutex);
    };
    std::vector<std::jthread> others;
    for (std::uint32_t i = 1; i < contest_.threads; ++i) others.emplace_back(take_part, i);
    take_part(0);
  }

  void be_member(std::uint32_t process) {
    auto joined =
        member::ComputeNode::join({.cluster = cluster_, .seed = process + 1, .names_may_go = true},
                                  Slot{static_cast<std::uint16_t>(process)});
    if (!joined) throw std::runtime_error(joined.error());
    member::ComputeNode& node = **joined;
    locks::FamilyConfig config;
    config.lock = contest_.lock;
    config.cns = contest_.processes;
    config.patience = milliseconds(10);
    config.join = [&](std::uint32_t, std::span<Endpoint* const> endpoints) {
      return std::vector<hier::Station>{{endpoints[0], &node.membership(0)}};
    };
    std::unique_ptr<locks::LockFamily> family = locks::make_family(config);
    std::vector<Endpoint*> endpoints{&node.endpoint(0)};
    std::unique_ptr<LockClient> client = family->client({process, 0, *endpoints[0], endpoints});
    Part part{contest_, arena_, board_, tallies_[process], process};
    node.start();
    node.worker(0).run([&] { return contend(node.worker(0), part, *client, {MnId{0}, 0}); });
    node.stop();
    client.reset();
    family.reset();
    node.leave();
  }

  const Contest& contest_;
  std::uint32_t parts_;
  SharedBytes memory_;
  Arena& arena_;
  Board board_;
  Tally* tallies_;
  shm::ClusterConfig cluster_;
  std::string uri_;
};

}  // namespace

const std::vector<std::string>& contest_locks() {
  static const std::vector<std::string> kLocks{"declock::SharedMutex",
                                               "std::shared_timed_mutex",
                                               "pthread_rwlock",
                                               "boost_sharable",
                                               "declock-slack",
                                               "declock-pf",
                                               "cql"};
  return kLocks;
}

bool can_take_part(const Contest& contest) {
  if (contest.lock == "std::shared_timed_mutex") return contest.processes == 1;
  const bool is_protocol = contest.lock == "cql" || contest.lock.starts_with("declock-");
  return !is_protocol || contest.threads == 1;
}

ContestResult run_contest(const Contest& contest, const std::function<void()>& progress) {
  CHECK(can_take_part(contest));
  Running running{contest};
  running.run(progress);
  return running.result();
}

}  // namespace declock::bench
