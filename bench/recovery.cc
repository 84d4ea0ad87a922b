#include "bench/recovery.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/futex.h"
#include "base/prng.h"
#include "bench/processes.h"
#include "bench/real_cluster.h"
#include "hier/hier.h"

namespace declock::bench {
namespace {

constexpr Duration kPatience = seconds(30);
// A waiter asks itself after this time whether somebody failed.
constexpr Duration kLockPatience = milliseconds(10);

// Who holds the lock, counted from 1, and since when.
struct Stand {
  std::atomic<std::uint32_t> ready;
  std::atomic<std::uint32_t> holder;
  std::atomic<std::int64_t> since_ns;
};

// Waits for the lock, says so, and keeps it until it is killed.
void be_process(RealCluster& cluster, std::uint32_t members, std::uint32_t me, Stand& stand) {
  const std::unique_ptr<member::Node> joined = cluster.join({});
  member::Node& node = *joined;
  const LockShape shape{members, members, QueueLayout::owner};
  const std::vector<hier::Station> stations{{&node.endpoint(0), &node.membership(0)}};
  hier::Node locks{shape, hier::Policy{}, cql::Options{.patience = kLockPatience}, stations};
  locks.worker(0).cql().start_patrol();
  const std::unique_ptr<TimedLockClient> client = locks.client(0);
  node.start();
  stand.ready.fetch_add(1);
  const Result<Hold> hold = node.worker(0).run([&] {
    return client->acquire({MnId{0}, 0}, Mode::exclusive);
  });
  if (!hold) throw std::runtime_error(std::string{to_string(hold.error())});
  stand.since_ns.store(monotonic_now().ns);
  stand.holder.store(me);
  for (;;) pause();
}

}  // namespace

RecoveryResult run_recovery(const RecoveryConfig& config,
                            const std::function<void(std::uint32_t)>& progress) {
  SharedBytes memory{4096};
  Stand& stand = *memory.take<Stand>(1);
  MicroConfig shape;
  shape.fabric = config.fabric;
  shape.cns = config.processes + 1;  // a successor may come before a slot is free again
  shape.workers = 1;
  shape.seed = config.seed;
  shape.lease = config.lease;
  shape.network = config.network;
  const std::unique_ptr<RealCluster> cluster = make_real_cluster(shape, 1, 4096);
  Children children;
  std::vector<std::size_t> numbers;  // by holder: which child it is
  const auto start = [&] {
    const auto me = static_cast<std::uint32_t>(numbers.size() + 1);
    numbers.push_back(children.start([&, me] { be_process(*cluster, shape.cns, me, stand); }));
  };
  const auto wait_until = [&](const auto& done) {
    const Time latest = monotonic_now() + kPatience;
    while (!done()) {
      const std::string failure = children.failure();
      if (!failure.empty()) throw std::runtime_error(failure);
      if (monotonic_now() > latest) throw std::runtime_error("nobody got the lock within 30 s");
      usleep(100);
    }
  };
  for (std::uint32_t i = 0; i < config.processes; ++i) start();
  RecoveryResult result{config, {}};
  Prng random{config.seed, 0};
  for (std::uint32_t i = 0; i < config.kills; ++i) {
    if (progress) progress(i);
    wait_until([&] { return stand.holder.load() != 0 && stand.ready.load() == numbers.size(); });
    usleep(static_cast<useconds_t>(1000 + random.below(10'000)));  // the others come to wait
    const std::uint32_t victim = stand.holder.exchange(0);
    const Time killed = monotonic_now();
    children.signal(numbers[victim - 1], SIGKILL);
    wait_until([&] { return stand.holder.load() != 0; });
    result.took_ns.add(static_cast<std::uint64_t>(stand.since_ns.load() - killed.ns));
    (void)children.has_ended(numbers[victim - 1]);
    start();
  }
  return result;
}

namespace {

// Shared memory needs none: the kernel knows who is dead.
double lease_ms(const RecoveryResult& result) {
  return result.config.fabric == Fabric::shm ? 0 : static_cast<double>(result.config.lease.ns) / 1e6;
}

}  // namespace

std::string recovery_json(const RecoveryResult& result, std::string_view commit) {
  using Json = nlohmann::ordered_json;
  const auto ms = [&](unsigned permille) {
    return static_cast<double>(result.took_ns.quantile(permille)) / 1e6;
  };
  return Json{{"commit", commit},
              {"fabric", to_string(result.config.fabric)},
              {"seed", result.config.seed},
              {"config",
               {{"processes", result.config.processes},
                {"kills", result.config.kills},
                {"lease_ms", lease_ms(result)}}},
              {"recovery_ms",
               {{"p50", ms(500)},
                {"p99", ms(990)},
                {"max", static_cast<double>(result.took_ns.max()) / 1e6},
                {"mean", result.took_ns.mean() / 1e6}}}}
             .dump(2) +
         "\n";
}

std::string recovery_summary(const RecoveryResult& result) {
  const auto ms = [&](unsigned permille) {
    return static_cast<double>(result.took_ns.quantile(permille)) / 1e6;
  };
  return fmt::format(
      "{} processes on {} that want one lock, its holder killed {} times (seed {}, lease {} ms)\n"
      "  from the kill to the next holder   p50 {:.1f}  p99 {:.1f}  max {:.1f} ms\n",
      result.config.processes, to_string(result.config.fabric), result.config.kills, result.config.seed,
      lease_ms(result), ms(500), ms(990), static_cast<double>(result.took_ns.max()) / 1e6);
}

}  // namespace declock::bench
