#include "bench/reset.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>

#include "hier/hier.h"
#include "member_sim/sim_cluster.h"
#include "sim/timed.h"

namespace declock::bench {
namespace {

constexpr RemoteAddr kLock{MnId{0}, 0};
constexpr std::uint32_t kWorkers = 16;  // per CN, at most

Task<void> use_for_ever(Worker& worker, TimedLockClient& lock, Prng random) {
  for (;;) {
    co_await worker.sleep_for(Duration{static_cast<std::int64_t>(random.below(10'000))});
    const Mode mode = random.one_in(2) ? Mode::shared : Mode::exclusive;
    const Result<Hold> hold = co_await lock.acquire(kLock, mode);
    if (!hold) co_return;
    co_await worker.sleep_for(microseconds(2));  // a data operation
    const Result<void> released = co_await lock.release(*hold);
    if (!released) co_return;
  }
}

}  // namespace

ResetResult run_reset(const ResetConfig& config) {
  sim::TimedEngine engine{config.nic, 1, config.seed};
  const LockShape shape{config.cns, config.cns, QueueLayout::owner};
  const std::uint32_t workers = std::min(config.clients, kWorkers);
  member::SimCluster cluster{engine, {.slots = config.cns, .workers = workers, .lease = seconds(10)}};
  std::deque<std::unique_ptr<member::SimMembership>> memberships;
  std::deque<hier::Node> nodes;
  std::deque<std::unique_ptr<TimedLockClient>> clients;
  std::deque<Task<void>> tasks;
  for (std::uint32_t cn = 0; cn < config.cns; ++cn) {
    std::vector<Endpoint*> endpoints;
    std::vector<sim::SimWorker*> cores;
    for (std::uint32_t w = 0; w < workers; ++w) {
      cores.push_back(&engine.add_worker());
      endpoints.push_back(&engine.add_endpoint(*cores.back()));
    }
    memberships.push_back(cluster.join(endpoints[0]->id(), *cores[0]));
    nodes.emplace_back(shape, hier::Policy{}, cql::Options{},
                       hier::stations_sharing(*memberships.back(), endpoints));
    for (std::uint32_t i = 0; i < config.clients; ++i) {
      clients.push_back(nodes.back().client(i % workers));
      tasks.push_back(use_for_ever(endpoints[i % workers]->worker(), *clients.back(),
                                   Prng{config.seed, 1 + clients.size()}));
    }
  }
  for (Task<void>& task : tasks) task.start();
  engine.run_until(Time{} + milliseconds(2));
  Prng random{config.seed, 0};
  for (std::uint32_t i = 0; i < config.resets; ++i) {
    nodes[random.below(config.cns)].worker(0).cql().reset_for_nothing(kLock);
    engine.run_until(engine.now() + milliseconds(2));
  }
  ResetResult result{config, {}};
  for (hier::Node& node : nodes) {
    for (const Duration took : node.worker(0).cql().resets().took) {
      result.took_ns.add(static_cast<std::uint64_t>(took.ns));
    }
    node.stop();
  }
  tasks.clear();
  clients.clear();
  return result;
}

std::vector<ResetConfig> reset_series(std::uint64_t seed, std::uint32_t resets) {
  std::vector<ResetConfig> series;
  for (std::uint32_t clients = 1; clients <= 32; clients *= 2) {
    series.push_back({.cns = 8, .clients = clients, .resets = resets, .seed = seed, .nic = {}});
  }
  for (std::uint32_t cns = 2; cns <= 128; cns *= 2) {
    series.push_back({.cns = cns, .clients = 2, .resets = resets, .seed = seed, .nic = {}});
  }
  return series;
}

namespace {
double us(std::uint64_t ns) {
  return static_cast<double>(ns) / 1000;
}
}  // namespace

std::string reset_table(const std::vector<ResetResult>& results) {
  std::string text = fmt::format("{:>6} {:>8} {:>8} {:>10} {:>10} {:>10}\n", "CNs", "clients", "resets",
                                 "p50 us", "p99 us", "max us");
  for (const ResetResult& r : results) {
    text += fmt::format("{:>6} {:>8} {:>8} {:>10.1f} {:>10.1f} {:>10.1f}\n", r.config.cns,
                        r.config.cns * r.config.clients, r.took_ns.count(), us(r.took_ns.quantile(500)),
                        us(r.took_ns.quantile(990)), us(r.took_ns.max()));
  }
  return text;
}

std::string reset_json(const std::vector<ResetResult>& results, std::string_view commit) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ResetResult& r : results) {
    all.push_back({{"commit", commit},
                   {"fabric", "sim"},
                   {"seed", r.config.seed},
                   {"config", {{"cns", r.config.cns}, {"clients", r.config.clients}}},
                   {"resets", r.took_ns.count()},
                   {"reset_us",
                    {{"p50", us(r.took_ns.quantile(500))},
                     {"p99", us(r.took_ns.quantile(990))},
                     {"max", us(r.took_ns.max())}}}});
  }
  return all.dump(2) + "\n";
}

}  // namespace declock::bench
