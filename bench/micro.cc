#include "bench/micro.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>

#include "audit/fairness.h"
#include "audit/holders.h"
#include "bench/zipf.h"
#include "member_sim/sim_cluster.h"
#include "runtime/task_group.h"
#include "sim/timed.h"

namespace declock::bench {
namespace {

// After the end of the run clients finish the operation that they are in. If none has finished one for this
// much virtual time, those that are left never will.
constexpr Duration kPatience = seconds(10);

// What a timeline counts by.
constexpr Duration kBucket = milliseconds(10);
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

// Of one run: ShiftLock names clients in 16 bits.
constexpr std::uint64_t kClientsMax = 65'535;

// Where lock and object number i lie.
class Placement {
 public:
  Placement(const MicroConfig& config, std::uint64_t stride)
      : mns_(config.mns),
        stride_(stride),
        objects_from_((config.locks + mns_ - 1) / mns_ * stride),
        object_words_((config.object_size + 7) / 8) {}

  std::uint32_t object_words() const { return object_words_; }
  RemoteAddr lock(std::uint64_t i) const { return {mn(i), i / mns_ * stride_}; }
  // Behind everything else.
  RemoteAddr spare(std::uint64_t locks) const { return {MnId{0}, object(locks + mns_).offset}; }
  RemoteAddr object(std::uint64_t i) const {
    return {mn(i), objects_from_ + i / mns_ * object_words_ * 8};
  }

 private:
  MnId mn(std::uint64_t i) const { return MnId{static_cast<std::uint16_t>(i % mns_)}; }

  std::uint64_t mns_;
  std::uint64_t stride_;
  std::uint64_t objects_from_;
  std::uint32_t object_words_;
};

class Micro;

struct Client {
  Client(Micro& micro_, std::uint32_t index_, sim::SimWorker& worker_, Endpoint& endpoint_,
         Prng random_, std::unique_ptr<LockClient> lock_)
      : micro(micro_),
        index(index_),
        worker(worker_),
        endpoint(endpoint_),
        random(random_),
        lock(std::move(lock_)),
        behind(worker_.frames()) {}

  Micro& micro;
  std::uint32_t index;
  sim::SimWorker& worker;
  Endpoint& endpoint;
  Prng random;
  std::unique_ptr<LockClient> lock;
  TaskGroup behind;  // releases that nobody waits for
  std::optional<Task<void>> task;
  bool failed = false;
  bool killed = false;
  struct Inside {
    std::uint64_t which;
    Mode mode;
  };
  std::optional<Inside> inside;  // of a critical section

  FramePool& frames() { return worker.frames(); }
  bool done() const { return killed || (task->done() && behind.running() == 0); }
  Task<void> run();
  Task<Result<void>> operate(std::span<std::uint64_t> object);
  Task<Result<void>> read_object(RemoteAddr addr, std::span<std::uint64_t> object, std::uint32_t times);
  Task<void> release_behind(Hold hold);
  void give_up(Errc error);
};

class Micro final : private sim::EffectObserver, private hier::HandOverObserver {
 public:
  // Without a family, the one that the configuration names.
  Micro(const MicroConfig& config, std::unique_ptr<locks::LockFamily> family);
  ~Micro() override;

  MicroResult run(const std::function<void(double)>& progress);

 private:
  friend struct Client;

  void on_effect(EndpointId from, const sim::Flight::Step& step) override;
  void handed_over(Timestamp asked, std::optional<Timestamp> remote) override;
  std::unique_ptr<locks::LockFamily> make_family();
  void entered(Client& client, std::uint64_t which, Mode mode, Duration waited);
  void leave(Client& client);
  void kill();
  member::Membership& join(std::uint32_t cn, std::span<Endpoint* const> endpoints);
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
        if (client.index / config_.clients == m.slot.value) leave(client);
      }
    };
    cluster_->on_lost = [this](MnId) {
      memory_lost_ = true;
      for (Client& client : clients_) leave(client);
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
      clients_.emplace_back(*this, index, *workers[on], endpoint, Prng{config.seed, 1 + index},
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
    config.join = [this](std::uint32_t cn,
                         std::span<Endpoint* const> endpoints) -> member::Membership& {
      return join(cn, endpoints);
    };
  }
  return locks::make_family(config);
}

member::Membership& Micro::join(std::uint32_t cn, std::span<Endpoint* const> endpoints) {
  memberships_.push_back(cluster_->join(endpoints[0]->id(), *first_workers_[cn]));
  return *memberships_.back();
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

void Micro::handed_over(Timestamp asked, std::optional<Timestamp> remote) {
  if (!measuring()) return;
  result_.local_hand_overs += 1;
  const std::int32_t late_us = remote ? std::max(0, microseconds_between(*remote, asked)) : 0;
  result_.hand_over_late_us = std::max(result_.hand_over_late_us, static_cast<std::uint64_t>(late_us));
}

Task<void> Client::run() {
  ScratchWords object{frames(), micro.placement_.object_words()};
  std::fill(object.words().begin(), object.words().end(), 0);
  const auto think_max = static_cast<std::uint64_t>(micro.config_.nic.think_max_ns);
  for (;;) {
    const Duration think{static_cast<std::int64_t>(random.below(think_max + 1))};
    co_await worker.sleep_for(think);
    if (failed || micro.engine_.now() >= micro.measure_until_) co_return;
    const Result<void> done = co_await operate(object.words());
    if (done || done.error() == Errc::mn_restarted) continue;
    give_up(done.error());
    co_return;
  }
}

void Client::give_up(Errc error) {
  failed = true;
  micro.result_.failures.push_back(fmt::format("client {} gave up: {}", index, to_string(error)));
}

// One operation: lock, use the object, unlock. An exclusive section adds one to a plain counter in the
// object, so that a section which ran beside another shows as a lost update.
Task<Result<void>> Client::operate(std::span<std::uint64_t> object) {
  MicroResult& result = micro.result_;
  const MicroConfig& config = micro.config_;
  const std::uint64_t which = micro.zipf_.draw(random);
  const Mode mode = random.unit() < config.read_ratio ? Mode::shared : Mode::exclusive;
  const RemoteAddr addr = micro.placement_.object(which);
  const bool writes = mode == Mode::exclusive && config.cs_ops > 0;
  std::uint32_t reads = config.cs_ops - (writes ? 1 : 0);
  Op read = Op::read(addr, object, Purpose::data);
  Op write = Op::write(addr, object, Purpose::data);

  const Time called = worker.now();
  micro.fairness_.called(which, index, mode);
  const bool read_along = config.piggyback && reads > 0;
  const Result<Hold> hold =
      co_await lock->acquire(micro.placement_.lock(which), mode, read_along ? &read : nullptr);
  if (!hold) co_return Failure{hold.error()};
  const Time entered = worker.now();
  micro.entered(*this, which, mode, entered - called);

  if (hold->object_read) reads -= 1;
  write.incarnation = config.kill ? hold->mn_incarnation : 0;
  Result<void> posted = co_await read_object(addr, object, reads);
  if (writes && posted) {
    // A section of one WRITE has no READ to learn the counter from; a look at the memory costs nothing.
    if (config.cs_ops == 1) object[0] = micro.engine_.memory(addr.mn).load(addr.offset);
    object[0] += 1;
    if (!config.piggyback) posted = co_await post_until_known(endpoint, write);
  }
  const Time leaving = worker.now();
  micro.leave(*this);
  if (!posted) {  // the memory node was lost; the hold is void, and release says so
    const Result<void> released = co_await lock->release(*hold);
    co_return released ? posted : released;
  }

  const bool write_along = config.piggyback && writes;
  if (config.piggyback && !writes && lock->may_release_behind(mode)) {
    behind.spawn(release_behind(*hold));
  } else {
    posted = co_await lock->release(*hold, write_along ? &write : nullptr);
    if (!posted) co_return posted;
  }
  if (writes) micro.updates_ += 1;
  micro.last_finished_ = micro.engine_.now();
  if (micro.measuring()) {
    const Time done = worker.now();
    result.ops += 1;
    if (config.kill) {
      result.timeline[static_cast<std::size_t>((micro.engine_.now() - micro.measure_from_).ns /
                                               kBucket.ns)] += 1;
    }
    result.data_ns.add(static_cast<std::uint64_t>((leaving - entered).ns));
    result.release_ns.add(static_cast<std::uint64_t>((done - leaving).ns));
    result.op_ns.add(static_cast<std::uint64_t>((done - called).ns));
  }
  co_return Result<void>{};
}

Task<Result<void>> Client::read_object(RemoteAddr addr, std::span<std::uint64_t> object,
                                       std::uint32_t times) {
  for (std::uint32_t i = 0; i < times; ++i) {
    Op read = Op::read(addr, object, Purpose::data);
    const Result<void> posted = co_await post_until_known(endpoint, read);
    if (!posted) co_return posted;
  }
  co_return Result<void>{};
}

Task<void> Client::release_behind(Hold hold) {
  const Result<void> released = co_await lock->release(hold);
  if (!released && released.error() != Errc::mn_restarted) give_up(released.error());
}

void Micro::leave(Client& client) {
  if (!client.inside) return;  // what it held was lost meanwhile
  holders_.leave(client.inside->which, client.inside->mode);
  client.inside.reset();
}

void Micro::entered(Client& client, std::uint64_t which, Mode mode, Duration waited) {
  holders_.enter(which, mode);
  client.inside = {which, mode};
  const audit::Fairness::Overtakes overtakes = fairness_.granted(client.index);
  if (!measuring()) return;
  const auto ns = static_cast<std::uint64_t>(waited.ns);
  result_.acquires += 1;
  result_.acquire_ns.add(ns);
  if (which == 0) result_.hottest_acquire_ns.add(ns);
  result_.overtakes.add(overtakes.by_call);
  result_.overtakes_sum += overtakes.by_call;
  if (result_.fifo_violations) *result_.fifo_violations += overtakes.by_queue;
}

MicroResult Micro::run(const std::function<void(double)>& progress) {
  const auto started = std::chrono::steady_clock::now();
  family_->start(placement_.spare(config_.locks));
  run_until(Time{} + kSettling, progress);
  for (Client& client : clients_) {
    client.task.emplace(client.run());
    client.task->start();
  }
  run_until(measure_from_, progress);
  const OpCounts before = engine_.counts();
  if (config_.kill) {
    result_.timeline.resize(static_cast<std::size_t>(config_.duration.ns / kBucket.ns + 1));
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
  result_.resets = family_->resets();
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
  return std::all_of(clients_.begin(), clients_.end(),
                     [](const Client& c) { return c.failed || c.done(); });
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
    if (client.failed || client.done()) continue;
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

Result<void, std::string> validate(const MicroConfig& config) {
  const std::uint32_t members = locks::members_of(config.family());
  const std::uint64_t clients = std::uint64_t{config.cns} * config.clients;
  if (clients > kClientsMax) {
    return Failure{fmt::format("--cns {} x --clients {} makes {} clients; at most {} are accepted",
                               config.cns, config.clients, clients, kClientsMax)};
  }
  if (members > HeaderLayout::kMembersMax) {
    return Failure{
        fmt::format("--cns {} x --clients {} makes {} clients; the queue of a {} lock has a slot "
                    "per client and at most {} of them",
                    config.cns, config.clients, members, config.lock, HeaderLayout::kMembersMax)};
  }
  if (config.slots != 0 && config.slots < members) {
    return Failure{fmt::format("--slots {} is too few for {} clients; a queue needs a slot for each",
                               config.slots, members)};
  }
  if (config.kill && !config.lock.starts_with("declock-")) {
    return Failure{
        fmt::format("--kill is for the declock- locks; {} does not survive failures", config.lock)};
  }
  if (config.kill && config.kill->node >= (config.kill->memory ? config.mns : config.cns)) {
    return Failure{fmt::format("--kill {}:{}: there are {}, numbered from 0",
                               config.kill->memory ? "mn" : "cn", config.kill->node,
                               config.kill->memory ? config.mns : config.cns)};
  }
  if (config.kill && config.kill->at >= config.duration) {
    return Failure{std::string{"--kill comes after the end of --duration"}};
  }
  if (config.workers > config.clients) {
    return Failure{
        fmt::format("--workers {} is more than --clients {}; a worker without clients has "
                    "nothing to do",
                    config.workers, config.clients)};
  }
  return {};
}

MicroResult run_micro(const MicroConfig& config, const std::function<void(double)>& progress) {
  return run_micro(config, nullptr, progress);
}

MicroResult run_micro(const MicroConfig& config, std::unique_ptr<locks::LockFamily> family,
                      const std::function<void(double)>& progress) {
  return Micro{config, std::move(family)}.run(progress);
}

}  // namespace declock::bench
