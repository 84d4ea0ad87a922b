// The microbenchmark between processes on this machine, over shared memory or a network: one process per compute node,
// each with workers and clients.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <thread>

#include "base/futex.h"
#include "bench/board.h"
#include "bench/client.h"
#include "bench/processes.h"
#include "bench/real_cluster.h"

namespace declock::bench {
namespace {

// Clients that have not finished their last operation after this long never will.
constexpr Duration kPatience = seconds(30);
// A waiter asks itself after this time whether somebody failed.
constexpr Duration kLockPatience = milliseconds(10);
// How often a worker brings its counts up to date, and looks whether all is over.
constexpr Duration kHousekeeping = milliseconds(1);
// Overtakes are counted at one acquisition in so many: it means a look at every other client.
constexpr std::uint64_t kCountOvertakesOneIn = 16;

// How the processes agree on time.
struct Signals {
  std::atomic<std::uint32_t> ready;    // compute nodes
  std::atomic<std::int64_t> start_ns;  // 0: not yet
  std::atomic<bool> over;              // everybody may go
};

// Everything that the processes of a run share beside the fabric.
struct Shared {
  explicit Shared(const MicroConfig& config)
      : config_(config),
        clients_(config.cns * config.clients),
        timeline_length_(static_cast<std::size_t>(config.duration.ns / kTimelineBucket.ns + 1)),
        memory_(Board::bytes(config.locks, clients_) + sizeof(Signals) + timeline_length_ * 8 +
                std::size_t{config.cns} * config.workers * sizeof(Measured) + 1024),
        board(memory_, config.locks, clients_),
        signals(*memory_.take<Signals>(1)),
        timeline(memory_.take<std::atomic<std::uint64_t>>(timeline_length_), timeline_length_),
        measured(memory_.take<Measured>(std::size_t{config.cns} * config.workers),
                 std::size_t{config.cns} * config.workers),
        violations(*memory_.take<std::atomic<std::uint64_t>>(1)) {}

 private:
  const MicroConfig& config_;
  std::uint32_t clients_;
  std::size_t timeline_length_;
  SharedBytes memory_;

 public:
  Board board;
  Signals& signals;
  std::span<std::atomic<std::uint64_t>> timeline;
  std::span<Measured> measured;  // by CN and worker; written by that worker alone
  std::atomic<std::uint64_t>& violations;

  Time start() const { return {signals.start_ns.load(std::memory_order_relaxed)}; }
  Time measure_from() const { return start() + config_.warmup; }
  Time measure_until() const { return measure_from() + config_.duration; }
};

// Watches what one acquisition costs at most. Clients that share an endpoint are told apart by their locks: a compute
// node has at most one request for each.
class AcquireCosts final : public Endpoint::Observer {
 public:
  AcquireCosts(const Placement& placement, std::uint64_t locks, bool shared, Measured& measured)
      : placement_(placement), counts_(shared ? locks : 1), shared_(shared), measured_(measured) {}

  void begins() {
    if (!shared_) counts_[0] = 0;
  }
  void on_posted(const Op& op) override {
    if (op.purpose != Purpose::acquire) return;
    std::uint16_t& count = counts_[shared_ ? placement_.lock_at(op.addr) : 0];
    if (shared_ && op.kind == OpKind::fetch_add) count = 0;
    count = static_cast<std::uint16_t>(std::min(count + 1, 0xFFFF));
    measured_.acquire_ops_max = std::max<std::uint64_t>(measured_.acquire_ops_max, count);
  }

 private:
  const Placement& placement_;
  std::vector<std::uint16_t> counts_;
  bool shared_;
  Measured& measured_;
};

// One worker of a compute node, with its clients.
class Crew final : public Host {
 public:
  Crew(const Workload& workload, Shared& shared, RealCluster& cluster, ThreadWorker& worker,
       Measured& measured)
      : workload_(workload), shared_(shared), cluster_(cluster), worker_(worker), measured_(measured) {}

  void add(Endpoint& endpoint, bool is_shared) {
    endpoints_.push_back(&endpoint);
    costs_.push_back(std::make_unique<AcquireCosts>(workload_.placement, workload_.config.locks,
                                                    is_shared, measured_));
    endpoint.observe(costs_.back().get());
  }
  void add_client(std::uint32_t index, Endpoint& endpoint, std::unique_ptr<LockClient> lock) {
    clients_.emplace_back(workload_, *this, index, endpoint, std::move(lock));
  }

  // To the end of the run, on this thread.
  void run() {
    worker_.run([&] { return keep_house(); });
    for (Endpoint* endpoint : endpoints_) endpoint->observe(nullptr);
  }
  void clear() { clients_.clear(); }

  FramePool& frames() { return worker_.frames(); }

 private:
  bool over() const override { return worker_.now() >= shared_.measure_until(); }
  void called(Client& client, std::uint64_t which, Mode mode) override {
    // Clients without an endpoint of their own are told apart otherwise.
    costs_[client.index % workload_.config.clients / workload_.config.workers % costs_.size()]
        ->begins();
    shared_.board.called(client.index, which, mode, worker_.now());
  }
  void entered(Client& client, std::uint64_t which, Mode mode, const Hold&, Duration waited) override {
    const bool counts = measuring_ && ++entries_ % kCountOvertakesOneIn == 0;
    if (counts) measured_.add_overtakes(shared_.board.overtakes(client.index));
    const std::optional<Time> handed_over = shared_.board.handed_over(client.index, which);
    if (measuring_ && handed_over) measured_.add_taken_over(worker_.now() - *handed_over);
    if (!shared_.board.entered(client.index, which, mode)) shared_.violations.fetch_add(1);
    if (measuring_) measured_.add_acquire(waited, which == 0);
  }
  void leaves(Client& client) override { shared_.board.leaves(client.index, worker_.now()); }
  void updated(Client& client) override {
    std::atomic<std::uint64_t>& updates = shared_.board.line(client.index).updates;
    updates.store(updates.load(std::memory_order_relaxed) + 1);
  }
  void finished(Client&, Duration took, Duration inside, Duration releasing) override {
    if (!measuring_) return;
    measured_.add_operation(took, inside, releasing);
    if (workload_.config.kill) {
      const auto at =
          static_cast<std::size_t>((worker_.now() - shared_.measure_from()).ns / kTimelineBucket.ns);
      if (at < shared_.timeline.size()) shared_.timeline[at].fetch_add(1);
    }
  }
  void gave_up(Client& client, Errc error) override {
    shared_.board.line(client.index).error.store(static_cast<std::uint32_t>(error));
  }
  std::optional<std::uint64_t> look(RemoteAddr addr) override { return cluster_.look(addr); }

  OpCounts counts() const {
    OpCounts sum;
    for (const Endpoint* endpoint : endpoints_) sum += endpoint->counts();
    return sum;
  }
  Task<void> keep_house();

  const Workload& workload_;
  Shared& shared_;
  RealCluster& cluster_;
  ThreadWorker& worker_;
  Measured& measured_;
  std::vector<Endpoint*> endpoints_;
  std::vector<std::unique_ptr<AcquireCosts>> costs_;  // by endpoint
  std::deque<Client> clients_;
  bool measuring_ = false;
  std::uint64_t entries_ = 0;
};

// Starts the clients together with everybody else's, and stays until everybody's are done: those of other nodes need
// answers until then.
Task<void> Crew::keep_house() {
  while (shared_.signals.start_ns.load() == 0) co_await worker_.sleep_for(kHousekeeping);
  co_await worker_.sleep_for(shared_.start() - worker_.now());
  for (Client& client : clients_) client.start();
  co_await worker_.sleep_for(shared_.measure_from() - worker_.now());
  const OpCounts before = counts();
  measuring_ = true;
  while (!shared_.signals.over.load()) {
    measuring_ = worker_.now() < shared_.measure_until();
    if (measuring_) {
      measured_.counts = counts();
      measured_.counts -= before;
    }
    for (Client& client : clients_) {
      if (client.done()) shared_.board.line(client.index).done.store(true);
    }
    co_await worker_.sleep_for(kHousekeeping);
  }
}

// The life of a compute node's process.
void be_compute_node(const MicroConfig& config, RealCluster& cluster, std::uint32_t cn,
                     Shared& shared) {
  const std::unique_ptr<member::Node> joined = cluster.join(cn);
  member::Node& node = *joined;

  // Told under the mutex of the node's local locks.
  struct HandOvers final : hier::HandOverObserver {
    void handed_over(const Asked& asked, const std::optional<RemoteWait>& remote) override {
      counted.add_hand_over(asked, remote);
    }
    Measured counted;
  };
  const std::span<Measured> mine =
      shared.measured.subspan(std::size_t{cn} * config.workers, config.workers);
  HandOvers hand_overs;
  locks::FamilyConfig family_config = config.family();
  family_config.hand_overs = &hand_overs;
  family_config.patience = kLockPatience;
  family_config.join = [&](std::uint32_t, std::span<Endpoint* const> endpoints) {
    std::vector<hier::Station> stations;
    for (std::uint32_t w = 0; w < endpoints.size(); ++w)
      stations.push_back({endpoints[w], &node.membership(w)});
    return stations;
  };
  std::unique_ptr<locks::LockFamily> family = locks::make_family(family_config);
  const Placement placement{config, family->stride()};
  const Zipf zipf{config.locks, config.zipf};
  const Workload workload{config, placement, zipf};

  std::vector<Endpoint*> endpoints;
  for (std::uint32_t i = 0; i < cluster.endpoints(); ++i) endpoints.push_back(&node.endpoint(i));
  std::deque<Crew> crews;
  for (std::uint32_t w = 0; w < config.workers; ++w) {
    crews.emplace_back(workload, shared, cluster, node.worker(w), mine[w]);
  }
  const bool endpoint_shared = family->endpoint_per_worker();
  for (std::uint32_t i = 0; i < cluster.endpoints(); ++i)
    crews[i % config.workers].add(node.endpoint(i), endpoint_shared);
  for (std::uint32_t i = 0; i < config.clients; ++i) {
    const std::uint32_t on = i % config.workers;
    Endpoint& endpoint = node.endpoint(endpoint_shared ? on : i);
    crews[on].add_client(cn * config.clients + i, endpoint,
                         family->client({cn, on, endpoint, endpoints}));
  }
  node.start();
  shared.signals.ready.fetch_add(1);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t w = 1; w < config.workers; ++w)
      threads.emplace_back([&crews, w] { crews[w].run(); });
    crews[0].run();
  }
  node.stop();
  mine[0] += hand_overs.counted;
  mine[0].local_table_bytes_max = family->local_table_bytes_max();
  add_resets(family->resets(), mine[0]);
  for (std::uint32_t w = 0; w < config.workers; ++w) {
    mine[w].releases =
        endpoint_shared ? mine[w].counts.of(OpKind::fetch_add, Purpose::release) : mine[w].ops;
  }
  for (Crew& crew : crews) crew.clear();
  family.reset();
  node.leave();
}

class Run {
 public:
  Run(const MicroConfig& config, const std::function<void(double)>& progress)
      : config_(config),
        progress_(progress),
        family_(locks::make_family(config.family())),
        placement_(config, family_->stride()),
        shared_(config),
        cluster_(make_real_cluster(config,
                                   family_->endpoint_per_worker() ? config.workers : config.clients,
                                   placement_.bytes())) {}

  MicroResult operator()();

 private:
  // As long as `going`; told of progress.
  template <class Going>
  void watch(Going going) {
    while (going()) {
      std::string failure = cluster_->failure();
      if (failure.empty()) failure = children_.failure();
      if (!failure.empty()) throw std::runtime_error(failure);
      const double part = shared_.signals.start_ns.load() == 0
                              ? 0
                              : static_cast<double>((monotonic_now() - shared_.start()).ns) /
                                    static_cast<double>((config_.warmup + config_.duration).ns);
      if (progress_) progress_(std::clamp(part, 0.0, 1.0));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  void kill(std::uint32_t cn);
  std::uint32_t clients_left();

  const MicroConfig& config_;
  const std::function<void(double)>& progress_;
  std::unique_ptr<locks::LockFamily> family_;
  Placement placement_;
  Shared shared_;
  std::unique_ptr<RealCluster> cluster_;
  Children children_;
};

MicroResult Run::operator()() {
  const Time began = monotonic_now();
  for (std::uint32_t cn = 0; cn < config_.cns; ++cn) {
    children_.start([&, cn] { be_compute_node(config_, *cluster_, cn, shared_); });
  }
  watch([&] { return shared_.signals.ready.load() < config_.cns; });
  cluster_->all_have_joined();
  shared_.signals.start_ns.store((monotonic_now() + milliseconds(5)).ns);
  if (config_.kill) {
    const Time when = shared_.measure_from() + config_.kill->at;
    watch([&] { return monotonic_now() < when; });
    kill(config_.kill->node);
  }
  const Time patient_until = shared_.measure_until() + kPatience;
  watch([&] { return clients_left() > 0 && monotonic_now() < patient_until; });
  MicroResult result;
  for (std::uint32_t i = 0; i < config_.cns * config_.clients; ++i) {
    const Board::Line& line = shared_.board.line(i);
    if (line.error.load() != 0) {
      result.failures.push_back(
          fmt::format("client {} gave up: {}", i, to_string(static_cast<Errc>(line.error.load()))));
    } else if (!line.done.load() && !line.dying.load()) {
      result.failures.push_back(fmt::format("client {} never finished its operation", i));
    }
  }
  shared_.signals.over.store(true);
  const Time leave_until = monotonic_now() + kPatience;
  watch([&] {
    return !children_.have_all_ended() && result.failures.empty() && monotonic_now() < leave_until;
  });
  for (const Measured& measured : shared_.measured) static_cast<Measured&>(result) += measured;
  if (config_.kill) {
    for (const auto& bucket : shared_.timeline) result.timeline.push_back(bucket.load());
  }
  result.violations = shared_.violations.load();
  if (config_.cs_ops > 0) {
    std::int64_t lost = 0;
    for (std::uint32_t i = 0; i < config_.cns * config_.clients; ++i) {
      lost += static_cast<std::int64_t>(shared_.board.line(i).updates.load());
    }
    for (std::uint64_t i = 0; i < config_.locks; ++i) {
      lost -= static_cast<std::int64_t>(cluster_->word(placement_.object(i)));
    }
    result.lost_updates = lost;
  }
  result.wall_s = static_cast<double>((monotonic_now() - began).ns) / 1e9;
  return result;
}

void Run::kill(std::uint32_t cn) {
  for (std::uint32_t i = 0; i < config_.clients; ++i) {
    shared_.board.line(cn * config_.clients + i).dying.store(true);
  }
  children_.signal(cn, SIGKILL);
}

std::uint32_t Run::clients_left() {
  std::uint32_t left = 0;
  for (std::uint32_t i = 0; i < config_.cns * config_.clients; ++i) {
    const Board::Line& line = shared_.board.line(i);
    if (!line.done.load() && !line.dying.load()) left += 1;
  }
  return left;
}

}  // namespace

MicroResult run_micro_real(const MicroConfig& config, const std::function<void(double)>& progress) {
  return Run{config, progress}();
}

}  // namespace declock::bench
