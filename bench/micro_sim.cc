// The microbenchmark in virtual time.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>

#include "audit/fairness.h"
#include "audit/holders.h"
#include "base/check.h"
#include "bench/client.h"
#include "member_sim/sim_cluster.h"
#include "runtime/task_group.h"
#include "sim/timed.h"

namespace declock::bench {
namespace {

// After the end of the run clients finish the operation that they are in. If none has finished one for this
// much virtual time, those that are left never will.
constexpr Duration kPatience = seconds(10);

// A memory node that was killed is back after this time; a compute node is suspected after its lease.
constexpr Duration kMemoryDown = milliseconds(100);
constexpr Duration kLease = milliseconds(20);

// Before the clients start, the compute nodes' clocks meet for the first time.
constexpr Duration kSettling = milliseconds(1);

std::int64_t either_way(Prng& random, std::int64_t most) {
  return static_cast<std::int64_t>(random.below(2 * static_cast<std::uint64_t>(most) + 1)) - most;
}

sim::NicModel with_latency(sim::NicModel nic, double cn_latency) {
  nic.message_one_way_ns = std::llround(static_cast<double>(nic.message_one_way_ns) * cn_latency);
  return nic;
}

class Micro final : public Host, private sim::EffectObserver, private hier::HandOverObserver {
 public:
  // Without a family, the one that the configuration names.
  Micro(const MicroConfig& config, std::unique_ptr<locks::LockFamily> family);
  ~Micro() override;

  MicroResult run(const std::function<void(double)>& progress);

 private:
  void on_effect(EndpointId from, const sim::Flight::Step& step) override;
  void handed_over(const Asked& asked, const std::optional<RemoteWait>& remote) override;
  std::unique_ptr<locks::LockFamily> make_family();
  // Host
  bool over() const override { return engine_.now() >= measure_until_; }
  void called(Client& client, std::uint64_t which, Mode mode) override {
    fairness_.called(which, client.index, mode);
  }
  void entered(Client& client, std::uint64_t which, Mode mode, const Hold& hold,
               Duration waited) override;
  void leaves(Client& client) override;
  void updated(Client&) override { updates_ += 1; }
  void finished(Client& client, Duration took, Duration inside, Duration releasing) override;
  void gave_up(Client& client, Errc error) override;
  std::optional<std::uint64_t> look(RemoteAddr addr) override {
    return engine_.memory(addr.mn).load(addr.offset);
  }

  void kill();
  std::vector<hier::Station> join(std::uint32_t cn, std::span<Endpoint* const> endpoints);
  bool measuring() const { return engine_.now() >= measure_from_ && engine_.now() < measure_until_; }
  void run_until(Time end, const std::function<void(double)>& progress);
  void measure_clocks();
  bool all_done() const;
  void drain(const std::function<void(double)>& progress);
  std::int64_t count_lost_updates();

  MicroConfig config_;
  std::unique_ptr<locks::LockFamily> family_;
  Placement placement_;
  Zipf zipf_;
  Workload workload_{config_, placement_, zipf_};
  sim::TimedEngine engine_;
  std::unique_ptr<member::SimCluster> cluster_;                      // where somebody is killed
  std::vector<std::unique_ptr<member::SimMembership>> memberships_;  // by CN
  std::vector<sim::SimWorker*> first_workers_;                       // by CN
  bool memory_lost_ = false;
  audit::Holders holders_;
  audit::Fairness fairness_;
  Time measure_from_;
  Time measure_until_;
  std::deque<Client> clients_;
  std::uint64_t updates_ = 0;  // acknowledged to their clients
  Time last_finished_;         // an operation
  MicroResult result_;
};

Micro::Micro(const MicroConfig& config, std::unique_ptr<locks::LockFamily> family)
    : config_(config),
      family_(family == nullptr ? make_family() : std::move(family)),
      placement_(config, family_->stride()),
      zipf_(config.locks, config.zipf),
      engine_(with_latency(config.nic, config.cn_latency), config.mns, config.seed),
      holders_(config.locks),
      fairness_(config.locks, std::size_t{config.cns} * config.clients),
      measure_from_(Time{} + kSettling + config.warmup),
      measure_until_(measure_from_ + config.duration) {
  if (!family_->endpoint_per_worker()) {
    engine_.observe(this);
    result_.fifo_violations = 0;
  }
  CHECK(config.workers >= 1 && config.workers <= config.clients);
  if (config.kill) {
    cluster_ = std::make_unique<member::SimCluster>(
        engine_,
        member::SimCluster::Config{
            .slots = config.cns, .mns = config.mns, .workers = config.workers, .lease = kLease});
    cluster_->on_fenced = [this](const member::Member& m) {
      for (Client& client : clients_) {
        if (client.index / config_.clients == m.slot.value) leaves(client);
      }
    };
    cluster_->on_lost = [this](MnId) {
      memory_lost_ = true;
      for (Client& client : clients_) leaves(client);
    };
  }
  Prng clocks{config.seed, 2'000'000};
  for (std::uint32_t cn = 0; cn < config.cns; ++cn) {
    std::vector<sim::SimWorker*> workers;
    const sim::Skew skew{Duration{either_way(clocks, config.nic.clock_offset_max_ns)},
                         either_way(clocks, config.nic.clock_drift_max_ppb)};
    for (std::uint32_t i = 0; i < config.workers; ++i) {
      workers.push_back(&engine_.add_worker(skew, sim::Party{cn + 1}));
    }
    first_workers_.push_back(workers[0]);
    std::vector<Endpoint*> endpoints;  // by worker, or by client
    const bool shared = family_->endpoint_per_worker();
    for (std::uint32_t i = 0; i < (shared ? config.workers : config.clients); ++i) {
      endpoints.push_back(&engine_.add_endpoint(*workers[i % config.workers]));
    }
    for (std::uint32_t i = 0; i < config.clients; ++i) {
      const auto index = static_cast<std::uint32_t>(clients_.size());
      const std::uint32_t on = i % config.workers;
      Endpoint& endpoint = *endpoints[shared ? on : i];
      clients_.emplace_back(workload_, *this, index, endpoint,
                            family_->client({cn, on, endpoint, endpoints}));
    }
  }
}

Micro::~Micro() {
  for (Client& client : clients_) client.task.reset();
  clients_.clear();
  family_.reset();  // before the engine that it runs on
  memberships_.clear();
}

void Micro::on_effect(EndpointId from, const sim::Flight::Step& step) {
  if (step.purpose == Purpose::acquire && step.kind == OpKind::fetch_add) {
    fairness_.enqueued(from.value);
  }
}

std::unique_ptr<locks::LockFamily> Micro::make_family() {
  locks::FamilyConfig config = config_.family();
  config.hand_overs = this;
  if (config_.kill) {
    config.join = [this](std::uint32_t cn, std::span<Endpoint* const> endpoints) {
      return join(cn, endpoints);
    };
  }
  return locks::make_family(config);
}

std::vector<hier::Station> Micro::join(std::uint32_t cn, std::span<Endpoint* const> endpoints) {
  memberships_.push_back(cluster_->join(endpoints[0]->id(), *first_workers_[cn]));
  return hier::stations_sharing(*memberships_.back(), endpoints);
}

void Micro::kill() {
  const MicroConfig::Kill& victim = *config_.kill;
  if (victim.memory)
    return cluster_->restart(MnId{static_cast<std::uint16_t>(victim.node)}, kMemoryDown);
  for (Client& client : clients_) {
    if (client.index / config_.clients != victim.node) continue;
    client.killed = true;
    client.task.reset();
    client.behind.clear();
    client.lock.reset();
  }
  family_->kill(victim.node);
  memberships_[victim.node].reset();
}

void Micro::handed_over(const Asked& asked, const std::optional<RemoteWait>& remote) {
  if (measuring()) result_.add_hand_over(asked, remote);
}

void Micro::gave_up(Client& client, Errc error) {
  result_.failures.push_back(fmt::format("client {} gave up: {}", client.index, to_string(error)));
}

void Micro::finished(Client&, Duration took, Duration inside, Duration releasing) {
  last_finished_ = engine_.now();
  if (!measuring()) return;
  result_.add_operation(took, inside, releasing);
  if (config_.kill) {
    result_
        .timeline[static_cast<std::size_t>((engine_.now() - measure_from_).ns / kTimelineBucket.ns)] +=
        1;
  }
}

void Micro::leaves(Client& client) {
  if (!client.inside) return;  // what it held was lost meanwhile
  holders_.leave(client.inside->which, client.inside->mode);
  client.inside.reset();
}

void Micro::entered(Client& client, std::uint64_t which, Mode mode, const Hold& hold, Duration waited) {
  // What comes from before a restart of the memory node is void from the start: nothing done under it takes effect.
  if (!memory_lost_ || hold.mn_incarnation == engine_.incarnation(hold.lock.mn)) {
    holders_.enter(which, mode);
    client.inside = {which, mode};
  }
  const audit::Fairness::Overtakes overtakes = fairness_.granted(client.index);
  if (!measuring()) return;
  result_.add_acquire(waited, which == 0);
  result_.add_overtakes(overtakes.by_call);
  if (result_.fifo_violations) *result_.fifo_violations += overtakes.by_queue;
}

MicroResult Micro::run(const std::function<void(double)>& progress) {
  const auto started = std::chrono::steady_clock::now();
  family_->start(placement_.spare());
  run_until(Time{} + kSettling, progress);
  for (Client& client : clients_) client.start();
  run_until(measure_from_, progress);
  const OpCounts before = engine_.counts();
  if (config_.kill) {
    result_.timeline.resize(static_cast<std::size_t>(config_.duration.ns / kTimelineBucket.ns + 1));
    run_until(measure_from_ + config_.kill->at, progress);
    kill();
  }
  run_until(measure_until_, progress);
  result_.counts = engine_.counts();
  result_.counts -= before;
  result_.releases = family_->endpoint_per_worker()
                         ? result_.counts.of(OpKind::fetch_add, Purpose::release)
                         : result_.ops;

  drain(progress);
  result_.local_table_bytes_max = family_->local_table_bytes_max();
  result_.violations = holders_.violations();
  add_resets(family_->resets(), result_);
  if (config_.cs_ops > 0 && !memory_lost_) result_.lost_updates = count_lost_updates();
  result_.trace_hash = engine_.trace_hash();
  result_.events = engine_.events();
  result_.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return std::move(result_);
}

// In slices, so that progress is shown, and an interruption noticed, many times a second.
void Micro::run_until(Time end, const std::function<void(double)>& progress) {
  while (engine_.now() < end) {
    engine_.run_until(std::min(engine_.now() + milliseconds(2), end));
    measure_clocks();
    if (progress) {
      progress(static_cast<double>(engine_.now().ns) / static_cast<double>(measure_until_.ns));
    }
  }
}

// How far the CNs' clocks are apart.
void Micro::measure_clocks() {
  const std::vector<Time> clocks = family_->clocks();
  if (clocks.empty()) return;
  const auto [earliest, latest] = std::minmax_element(clocks.begin(), clocks.end());
  const Duration apart = *latest - *earliest;
  result_.time_sync_error = std::max(result_.time_sync_error.value_or(Duration{}), apart);
}

bool Micro::all_done() const {
  return std::all_of(clients_.begin(), clients_.end(), [](const Client& c) { return c.done(); });
}

void Micro::drain(const std::function<void(double)>& progress) {
  last_finished_ = engine_.now();
  constexpr std::uint64_t kEventsBetweenLooks = 10'000;
  for (std::uint64_t i = 0; engine_.now() - last_finished_ < kPatience && engine_.step(); ++i) {
    if (i % kEventsBetweenLooks != 0) continue;
    if (all_done()) break;
    if (progress) progress(1);
  }
  for (const Client& client : clients_) {
    if (client.done()) continue;
    result_.failures.push_back(fmt::format("client {} never finished its operation", client.index));
  }
}

std::int64_t Micro::count_lost_updates() {
  std::uint64_t in_memory = 0;
  for (std::uint64_t i = 0; i < config_.locks; ++i) {
    const RemoteAddr addr = placement_.object(i);
    in_memory += engine_.memory(addr.mn).load(addr.offset);
  }
  return static_cast<std::int64_t>(updates_ - in_memory);
}

}  // namespace

MicroResult run_micro(const MicroConfig& config, std::unique_ptr<locks::LockFamily> family,
                      const std::function<void(double)>& progress) {
  return Micro{config, std::move(family)}.run(progress);
}

}  // namespace declock::bench
