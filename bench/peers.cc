#include "bench/peers.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/sync/interprocess_sharable_mutex.hpp>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "base/check.h"
#include "base/futex.h"
#include "base/prng.h"
#include "bench/board.h"
#include "bench/processes.h"
#include "bench/temporary_names.h"
#include "locks/family.h"
#include "member_shm/compute_node.h"

namespace declock::bench {
namespace {

using boost::interprocess::interprocess_sharable_mutex;

// The clock is read after so many operations.
constexpr std::uint32_t kBatch = 64;

// What the processes of one measurement share. The counter is what the lock protects.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): each on a line of its own
struct Arena {
  std::atomic<std::uint32_t> ready{0};
  std::atomic<std::uint32_t> finished{0};
  std::atomic<std::int64_t> start_ns{0};
  alignas(64) std::uint64_t counter = 0;
  alignas(64) pthread_rwlock_t rwlock{};
  alignas(64) interprocess_sharable_mutex sharable;
};

struct alignas(64) Tally {
  std::uint64_t operations = 0;
  std::uint64_t updates = 0;
  std::uint64_t overtakes = 0;
  std::uint64_t overtakes_max = 0;
  double ns = 0;
};

// One process's part in a measurement.
class Part {
 public:
  Part(const PeersConfig& config, Arena& arena, Board* board, Tally& tally, std::uint32_t index,
       double read_ratio, std::uint32_t processes)
      : config_(config),
        arena_(arena),
        board_(board),
        tally_(tally),
        index_(index),
        read_ratio_(read_ratio),
        processes_(processes),
        random_(config.seed, index + 1) {}

  void wait_for_start() {
    if (arena_.ready.fetch_add(1) + 1 == processes_) arena_.start_ns.store(monotonic_now().ns);
    while (arena_.start_ns.load() == 0) {
    }
    started_ = monotonic_now();
  }
  // False: it is time to stop.
  bool another_batch() {
    const Time now = monotonic_now();
    tally_.ns = static_cast<double>((now - started_).ns);
    return now - started_ < config_.duration;
  }
  void finish() { arena_.finished.fetch_add(1); }
  bool all_have_finished() const { return arena_.finished.load() == processes_; }
  Mode next() { return random_.unit() < read_ratio_ ? Mode::shared : Mode::exclusive; }
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
  const PeersConfig& config_;
  Arena& arena_;
  Board* board_;
  Tally& tally_;
  std::uint32_t index_;
  double read_ratio_;
  std::uint32_t processes_;
  Prng random_;
  Time started_;
  volatile std::uint64_t seen_ = 0;
};

// A lock of the system: two calls.
template <class Lock, class Unlock>
void contend(Part& part, Lock lock, Unlock unlock) {
  part.wait_for_start();
  while (part.another_batch()) {
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const Mode mode = part.next();
      part.calls(mode);
      lock(mode);
      part.use(mode);
      unlock(mode);
    }
  }
}

// DecLock: a coroutine on this process's worker.
Task<void> contend(Worker& worker, Part& part, LockClient& lock, RemoteAddr addr) {
  part.wait_for_start();
  while (part.another_batch()) {
    co_await worker.yield();  // once in a while it looks for messages
    for (std::uint32_t i = 0; i < kBatch; ++i) {
      const Mode mode = part.next();
      part.calls(mode);
      Hold hold;
      if (!lock.acquire_at_once(addr, mode, hold)) {
        const Result<Hold> granted = co_await lock.acquire(addr, mode);
        CHECK(granted);
        hold = *granted;
      }
      part.use(mode);
      if (!lock.release_at_once(hold)) CHECK(co_await lock.release(hold));
    }
  }
  // The last hand-over may be under way yet, and somebody waits for it.
  part.finish();
  while (!part.all_have_finished()) co_await worker.sleep_for(microseconds(100));
}

void contend_with_declock(const std::string& name, const shm::ClusterConfig& cluster, Part& part,
                          std::uint32_t index, std::uint32_t processes) {
  auto joined = member::ComputeNode::join({.cluster = cluster, .seed = index + 1, .names_may_go = true},
                                          Slot{static_cast<std::uint16_t>(index)});
  if (!joined) throw std::runtime_error(joined.error());
  member::ComputeNode& node = **joined;
  locks::FamilyConfig config;
  config.lock = name;
  config.cns = processes;
  config.patience = milliseconds(10);
  config.join = [&](std::uint32_t, std::span<Endpoint* const> endpoints) {
    return std::vector<hier::Station>{{endpoints[0], &node.membership(0)}};
  };
  std::unique_ptr<locks::LockFamily> family = locks::make_family(config);
  std::vector<Endpoint*> endpoints{&node.endpoint(0)};
  std::unique_ptr<LockClient> client = family->client({index, 0, *endpoints[0], endpoints});
  node.start();
  node.worker(0).run([&] { return contend(node.worker(0), part, *client, {MnId{0}, 0}); });
  node.stop();
  client.reset();
  family.reset();
  node.leave();
}

class Comparison {
 public:
  Comparison(const PeersConfig& config, std::string lock,
             const std::function<void(std::string_view)>& progress)
      : config_(config), lock_(std::move(lock)), progress_(progress) {}

  PeerResult run() {
    PeerResult result{.lock = lock_};
    for (std::uint32_t round = 0; round < config_.rounds; ++round) {
      const double exclusive_ns = 1e3 / measure(1, 0, false).mops;
      const double shared_ns = 1e3 / measure(1, 1, false).mops;
      const double contended = measure(config_.processes, config_.read_ratio, false).mops;
      result.exclusive_ns = round == 0 ? exclusive_ns : std::min(result.exclusive_ns, exclusive_ns);
      result.shared_ns = round == 0 ? shared_ns : std::min(result.shared_ns, shared_ns);
      result.contended_mops = std::max(result.contended_mops, contended);
    }
    const Outcome watched = measure(config_.processes, config_.read_ratio, true);
    result.overtakes = watched.overtakes;
    result.overtakes_max = watched.overtakes_max;
    result.lost_updates = lost_updates_;
    return result;
  }

 private:
  struct Outcome {
    double mops = 0;
    double overtakes = 0;
    std::uint64_t overtakes_max = 0;
  };

  Outcome measure(std::uint32_t processes, double read_ratio, bool watched);
  void be_process(Part& part, Arena& arena, const shm::ClusterConfig& cluster, std::uint32_t index,
                  std::uint32_t processes) const;

  const PeersConfig& config_;
  std::string lock_;
  const std::function<void(std::string_view)>& progress_;
  std::uint64_t lost_updates_ = 0;
};

void Comparison::be_process(Part& part, Arena& arena, const shm::ClusterConfig& cluster,
                            std::uint32_t index, std::uint32_t processes) const {
  if (lock_ == "pthread_rwlock") {
    contend(
        part,
        [&](Mode mode) {
          (void)(mode == Mode::exclusive ? pthread_rwlock_wrlock(&arena.rwlock)
                                         : pthread_rwlock_rdlock(&arena.rwlock));
        },
        [&](Mode) { (void)pthread_rwlock_unlock(&arena.rwlock); });
  } else if (lock_ == "boost_sharable") {
    contend(
        part,
        [&](Mode mode) {
          mode == Mode::exclusive ? arena.sharable.lock() : arena.sharable.lock_sharable();
        },
        [&](Mode mode) {
          mode == Mode::exclusive ? arena.sharable.unlock() : arena.sharable.unlock_sharable();
        });
  } else {
    contend_with_declock(lock_, cluster, part, index, processes);
  }
}

Comparison::Outcome Comparison::measure(std::uint32_t processes, double read_ratio, bool watched) {
  SharedBytes memory{sizeof(Arena) + Board::bytes(1, processes) + (processes + 1) * sizeof(Tally) +
                     1024};
  Arena& arena = *new (memory.take<std::byte>(sizeof(Arena))) Arena;
  pthread_rwlockattr_t shared;
  pthread_rwlockattr_init(&shared);
  pthread_rwlockattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  CHECK(pthread_rwlock_init(&arena.rwlock, &shared) == 0);
  Board board{memory, 1, processes};
  Tally* tallies = memory.take<Tally>(processes);

  shm::ClusterConfig cluster;
  cluster.name = fmt::format("peers-{}", getpid());
  cluster.members = processes;
  cluster.mn_bytes = 4096;
  const TemporaryNames names{cluster};
  {
    Children children;
    for (std::uint32_t i = 0; i < processes; ++i) {
      children.start([&, i] {
        Part part{config_, arena, watched ? &board : nullptr, tallies[i], i, read_ratio, processes};
        be_process(part, arena, cluster, i, processes);
      });
    }
    while (!children.have_all_ended()) {
      if (progress_) progress_(lock_);
      usleep(1000);
    }
    const std::string failure = children.failure();
    if (!failure.empty()) throw std::runtime_error(failure);
  }
  Outcome outcome;
  std::uint64_t operations = 0;
  std::uint64_t updates = 0;
  for (std::uint32_t i = 0; i < processes; ++i) {
    const Tally& tally = tallies[i];
    outcome.mops += static_cast<double>(tally.operations) / tally.ns * 1e3;
    outcome.overtakes += static_cast<double>(tally.overtakes);
    outcome.overtakes_max = std::max(outcome.overtakes_max, tally.overtakes_max);
    operations += tally.operations;
    updates += tally.updates;
  }
  outcome.overtakes /= static_cast<double>(std::max<std::uint64_t>(operations, 1));
  lost_updates_ += updates - arena.counter;
  return outcome;
}

}  // namespace

const std::vector<std::string>& peer_names() {
  static const std::vector<std::string> kNames{"pthread_rwlock", "boost_sharable", "declock-slack",
                                               "declock-pf", "cql"};
  return kNames;
}

std::vector<PeerResult> run_peers(const PeersConfig& config,
                                  const std::function<void(std::string_view)>& progress) {
  std::vector<PeerResult> results;
  for (const std::string& lock : peer_names()) {
    if (config.lock != "all" && config.lock != lock) continue;
    results.push_back(Comparison{config, lock, progress}.run());
  }
  return results;
}

std::string to_json(const PeersConfig& config, const std::vector<PeerResult>& results,
                    std::string_view commit) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (const PeerResult& r : results) {
    all.push_back({{"lock", r.lock},
                   {"uncontended_exclusive_ns", r.exclusive_ns},
                   {"uncontended_shared_ns", r.shared_ns},
                   {"contended_mops", r.contended_mops},
                   {"overtakes_per_acquire", r.overtakes},
                   {"overtakes_max", r.overtakes_max},
                   {"lost_updates", r.lost_updates}});
  }
  return Json{{"commit", commit},
              {"fabric", "shm"},
              {"seed", config.seed},
              {"config",
               {{"processes", config.processes},
                {"read_ratio", config.read_ratio},
                {"duration_s", static_cast<double>(config.duration.ns) / 1e9},
                {"rounds", config.rounds}}},
              {"locks", all}}
             .dump(2) +
         "\n";
}

std::string table(const PeersConfig& config, const std::vector<PeerResult>& results) {
  std::string text = fmt::format("{:<18}{:>14}{:>14}{:>22}{:>12}{:>10}{:>14}\n", "lock", "exclusive ns",
                                 "shared ns", fmt::format("{} processes M/s", config.processes),
                                 "overtakes", "max", "lost updates");
  for (const PeerResult& r : results) {
    text +=
        fmt::format("{:<18}{:>14.1f}{:>14.1f}{:>22.2f}{:>12.4f}{:>10}{:>14}\n", r.lock, r.exclusive_ns,
                    r.shared_ns, r.contended_mops, r.overtakes, r.overtakes_max, r.lost_updates);
  }
  return text;
}

}  // namespace declock::bench
