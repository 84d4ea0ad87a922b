#include "bench/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "base/futex.h"
#include "bench/processes.h"
#include "bench/real_cluster.h"
#include "sim/timed.h"

namespace declock::bench {
namespace {

constexpr std::uint32_t kClientsPerNode = 2;
constexpr RemoteAddr kLock{MnId{0}, 0};
// A step takes so long; what it sets off has come to rest by then, also on a busy machine.
constexpr Duration kStepTakes = milliseconds(80);
// A client that has not done its part by then never will.
constexpr Duration kPatience = seconds(10);
constexpr Duration kTicketsTake = milliseconds(500);
constexpr int kTickets = 32'767;

struct Step {
  std::uint32_t client;
  char what;
  Duration at;  // since the start of the script
};

struct Script {
  std::string_view text;
  std::vector<Step> steps;
  std::vector<Duration> ends;  // of each counted step
  std::uint32_t nodes = 1;
};

Script parse(std::string_view text) {
  Script script;
  script.text = text;
  Duration next{};
  while (!text.empty()) {
    Step step{};
    auto at = std::from_chars(text.data(), text.data() + text.size(), step.client).ptr;
    step.what = *at++;
    std::int64_t later = 0;
    const bool with_the_last = at != text.data() + text.size() && *at == '@';
    if (with_the_last) {
      at = std::from_chars(at + 1, text.data() + text.size(), later).ptr;
      step.at = script.steps.back().at + Duration{later};
    } else {
      step.at = next;
      next = next + (step.what == 'P' || step.what == 'Q' ? kTicketsTake : kStepTakes);
      script.ends.push_back(Duration{next.ns - kStepTakes.ns / 8});
    }
    script.steps.push_back(step);
    script.nodes = std::max(script.nodes, step.client / kClientsPerNode + 1);
    text.remove_prefix(static_cast<std::size_t>(at - text.data()));
    if (!text.empty()) text.remove_prefix(1);  // a space
  }
  return script;
}

Task<bool> enter(Worker&, LockClient& lock, Mode mode, Hold& hold) {
  if (lock.acquire_at_once(kLock, mode, hold)) co_return true;
  const Result<Hold> granted = co_await lock.acquire(kLock, mode);
  if (granted) hold = *granted;
  co_return static_cast<bool>(granted);
}

Task<bool> leave(Worker&, LockClient& lock, const Hold& hold) {
  if (lock.release_at_once(hold)) co_return true;
  const Result<void> released = co_await lock.release(hold);
  co_return static_cast<bool>(released);
}

// One client's part of a script that starts at `start`. Adds to `done` what it has done.
Task<void> act(Worker& worker, const Script& script, Time start, std::uint32_t client, LockClient& lock,
               std::atomic<std::uint32_t>& done) {
  Hold hold;
  for (const Step& step : script.steps) {
    if (step.client != client) continue;
    co_await worker.sleep_for(start + step.at - worker.now());
    bool went_well = true;
    if (step.what == 'U') {
      went_well = co_await leave(worker, lock, hold);
    } else if (step.what == 'P' || step.what == 'Q') {
      const Mode mode = step.what == 'P' ? Mode::shared : Mode::exclusive;
      for (int i = 0; i < kTickets && went_well; ++i)
        went_well = co_await enter(worker, lock, mode, hold) && co_await leave(worker, lock, hold);
    } else {
      went_well = co_await enter(worker, lock, step.what == 'X' ? Mode::exclusive : Mode::shared, hold);
    }
    if (!went_well) co_return;
    done.fetch_add(1);
  }
}

MicroConfig config_for(Fabric fabric, std::string_view lock, const Script& script) {
  MicroConfig config;
  config.fabric = fabric;
  config.lock = lock;
  config.cns = script.nodes;
  config.clients = kClientsPerNode;
  config.workers = 1;
  config.locks = 1;
  config.nic.jitter_mean_ns = 0;
  config.nic.hiccup_one_in = 0;
  config.nic.torn_read_one_in = 0;
  return config;
}

[[noreturn]] void did_not_end(Fabric fabric, std::string_view lock, std::string_view script,
                              std::uint32_t done) {
  throw std::runtime_error(
      fmt::format("{} on {}: the script \"{}\" did not come to its end: {} of its steps were done",
                  lock, to_string(fabric), script, done));
}

std::vector<OpCounts> differences(std::vector<OpCounts> sums) {
  for (std::size_t i = sums.size() - 1; i > 0; --i) sums[i] -= sums[i - 1];
  return sums;
}

std::vector<OpCounts> walk_simulated(std::string_view lock, const Script& script) {
  const MicroConfig config = config_for(Fabric::sim, lock, script);
  sim::TimedEngine engine{config.nic, 1, 1};
  const auto family = locks::make_family(config.family());
  std::atomic<std::uint32_t> done = 0;
  std::deque<std::unique_ptr<LockClient>> clients;
  std::deque<Task<void>> tasks;
  for (std::uint32_t cn = 0; cn < script.nodes; ++cn) {
    sim::SimWorker& worker = engine.add_worker();
    std::vector<Endpoint*> endpoints;
    for (std::uint32_t i = 0; i < (family->endpoint_per_worker() ? 1 : kClientsPerNode); ++i)
      endpoints.push_back(&engine.add_endpoint(worker));
    for (std::uint32_t i = 0; i < kClientsPerNode; ++i) {
      clients.push_back(family->client({cn, 0, *endpoints[i % endpoints.size()], endpoints}));
      tasks.push_back(act(worker, script, Time{}, cn * kClientsPerNode + i, *clients.back(), done));
    }
  }
  for (Task<void>& task : tasks) task.start();
  std::vector<OpCounts> sums;
  for (const Duration end : script.ends) {
    engine.run_until(Time{} + end);
    sums.push_back(engine.counts());
  }
  tasks.clear();
  clients.clear();
  if (done != script.steps.size()) did_not_end(Fabric::sim, lock, script.text, done);
  return differences(std::move(sums));
}

// What the processes of a walk share.
struct Shared {
  std::atomic<std::uint32_t> ready;    // compute nodes
  std::atomic<std::int64_t> start_ns;  // 0: not yet
  std::atomic<std::uint32_t> done;     // steps
};

// A node's clients play their parts; its counts are taken at the end of each step.
Task<void> act_and_count(Worker& worker, const Script& script, std::uint32_t cn,
                         std::span<const std::unique_ptr<LockClient>> clients,
                         std::span<Endpoint* const> endpoints, Shared& shared,
                         std::span<OpCounts> sums) {
  while (shared.start_ns.load() == 0) co_await worker.sleep_for(milliseconds(1));
  const Time start{shared.start_ns.load()};
  std::deque<Task<void>> tasks;
  for (std::uint32_t i = 0; i < kClientsPerNode; ++i) {
    tasks.push_back(act(worker, script, start, cn * kClientsPerNode + i, *clients[i], shared.done));
    tasks.back().start();
  }
  for (std::size_t i = 0; i < script.ends.size(); ++i) {
    co_await worker.sleep_for(start + script.ends[i] - worker.now());
    for (const Endpoint* endpoint : endpoints) sums[i] += endpoint->counts();
  }
  const Time patient_until = worker.now() + kPatience;
  while (shared.done < script.steps.size() && worker.now() < patient_until)
    co_await worker.sleep_for(milliseconds(1));
}

void be_compute_node(const MicroConfig& config, const Script& script, RealCluster& cluster,
                     std::uint32_t cn, Shared& shared, std::span<OpCounts> sums) {
  const std::unique_ptr<member::Node> node = cluster.join(cn);
  locks::FamilyConfig family_config = config.family();
  family_config.patience = seconds(60);  // nobody fails here
  family_config.join = [&](std::uint32_t, std::span<Endpoint* const> endpoints) {
    return std::vector<hier::Station>{{endpoints[0], &node->membership(0)}};
  };
  std::unique_ptr<locks::LockFamily> family = locks::make_family(family_config);
  std::vector<Endpoint*> endpoints;
  for (std::uint32_t i = 0; i < cluster.endpoints(); ++i) endpoints.push_back(&node->endpoint(i));
  std::vector<std::unique_ptr<LockClient>> clients;
  for (std::uint32_t i = 0; i < kClientsPerNode; ++i)
    clients.push_back(family->client({cn, 0, *endpoints[i % endpoints.size()], endpoints}));
  node->start();
  shared.ready.fetch_add(1);
  ThreadWorker& worker = node->worker(0);
  worker.run([&] { return act_and_count(worker, script, cn, clients, endpoints, shared, sums); });
  node->stop();
  clients.clear();
  family.reset();
  node->leave();
}

std::vector<OpCounts> walk_real(Fabric fabric, std::string_view lock, const Script& script) {
  const MicroConfig config = config_for(fabric, lock, script);
  const auto family = locks::make_family(config.family());
  const std::size_t steps = script.ends.size();
  SharedBytes memory{sizeof(Shared) + script.nodes * steps * sizeof(OpCounts) + 256};
  Shared& shared = *memory.take<Shared>(1);
  OpCounts* all = memory.take<OpCounts>(script.nodes * steps);
  const auto cluster = make_real_cluster(config, family->endpoint_per_worker() ? 1 : kClientsPerNode,
                                         family->stride() + 64);
  Children children;
  for (std::uint32_t cn = 0; cn < script.nodes; ++cn) {
    children.start([&, cn] {
      be_compute_node(config, script, *cluster, cn, shared, {all + cn * steps, steps});
    });
  }
  const auto check = [&] {
    std::string failure = cluster->failure();
    if (failure.empty()) failure = children.failure();
    if (!failure.empty()) throw std::runtime_error(failure);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  while (shared.ready.load() < script.nodes) check();
  cluster->all_have_joined();
  shared.start_ns.store((monotonic_now() + milliseconds(5)).ns);
  while (!children.have_all_ended()) check();
  if (shared.done != script.steps.size()) did_not_end(fabric, lock, script.text, shared.done);
  std::vector<OpCounts> sums(steps);
  for (std::size_t i = 0; i < script.nodes * steps; ++i) sums[i % steps] += all[i];
  return differences(std::move(sums));
}

constexpr std::array<std::string_view, kOpKinds> kShortNames{"READ", "WRITE", "FAA", "CAS",
                                                             "masked CAS"};

std::string_view short_name(OpKind kind) {
  return kShortNames[static_cast<std::size_t>(kind)];
}

std::string with_messages(std::string ops, std::uint64_t messages) {
  if (ops.empty()) ops = "0";
  if (messages == 0) return ops;
  return fmt::format("{}, {} message{}", ops, messages, messages == 1 ? "" : "s");
}

}  // namespace

std::string Cost::text() const {
  std::string all;
  for (const Ops& o : ops) {
    if (!all.empty()) all += " + ";
    const std::string polls = o.per_poll == 1 ? "n" : fmt::format("{}n", o.per_poll);
    if (o.per_poll == 0) all += fmt::to_string(o.always);
    if (o.per_poll > 0) all += o.always == 0 ? polls : fmt::format("{}+{}", o.always, polls);
    all += fmt::format(" {}", short_name(o.kind));
  }
  return with_messages(all, messages);
}

bool Cost::matches(const OpCounts& counts) const {
  std::optional<std::uint64_t> polls;
  for (std::size_t k = 0; k < kOpKinds; ++k) {
    const std::uint64_t seen = counts.of(static_cast<OpKind>(k));
    const auto expected = std::find_if(ops.begin(), ops.end(),
                                       [&](const Ops& o) { return o.kind == static_cast<OpKind>(k); });
    const std::uint64_t always = expected == ops.end() ? 0 : expected->always;
    const std::uint64_t per_poll = expected == ops.end() ? 0 : expected->per_poll;
    if (per_poll == 0 && seen != always) return false;
    if (per_poll == 0) continue;
    if (seen < always + per_poll * polls_at_least || (seen - always) % per_poll != 0) return false;
    const std::uint64_t n = (seen - always) / per_poll;
    if (polls.value_or(n) != n) return false;
    polls = n;
  }
  return counts.messages == messages;
}

bool exists_on(Fabric fabric, std::string_view lock, const Path& path) {
  if (fabric == Fabric::sim) return true;
  return exists_on(fabric, lock) && path.script.find_first_of("@PQ") == std::string_view::npos;
}

std::vector<OpCounts> walk(Fabric fabric, std::string_view lock, std::string_view script) {
  const Script parsed = parse(script);
  return fabric == Fabric::sim ? walk_simulated(lock, parsed) : walk_real(fabric, lock, parsed);
}

bool WalkedPath::agrees() const {
  return std::all_of(seen.begin(), seen.end(),
                     [this](const auto& s) { return path->cost.matches(s.second); });
}

std::vector<WalkedPath> walk_all(const std::vector<Fabric>& fabrics,
                                 const std::function<void(double)>& progress) {
  std::vector<WalkedPath> walked;
  for (const LockPaths& of_lock : lock_paths()) {
    for (const Path& path : of_lock.paths) walked.push_back({of_lock.lock, &path, {}});
  }
  // A script is walked once for all the paths that are steps of it.
  std::map<std::tuple<Fabric, std::string_view, std::string_view>, std::vector<OpCounts>> known;
  for (std::size_t i = 0; i < walked.size(); ++i) {
    if (progress) progress(static_cast<double>(i) / static_cast<double>(walked.size()));
    for (const Fabric fabric : fabrics) {
      const Path& path = *walked[i].path;
      if (!exists_on(fabric, walked[i].lock, path)) continue;
      auto& steps = known[{fabric, walked[i].lock, path.script}];
      if (steps.empty()) steps = walk(fabric, walked[i].lock, path.script);
      walked[i].seen[fabric] = steps[path.step];
    }
  }
  return walked;
}

std::string text(const OpCounts& counts) {
  std::string all;
  for (const OpKind kind : {OpKind::fetch_add, OpKind::compare_swap, OpKind::masked_compare_swap,
                            OpKind::write, OpKind::read}) {
    if (counts.of(kind) == 0) continue;
    all += fmt::format("{}{} {}", all.empty() ? "" : " + ", counts.of(kind), short_name(kind));
  }
  return with_messages(all, counts.messages);
}

std::string WalkedPath::text(Fabric fabric) const {
  const auto counts = seen.find(fabric);
  if (counts == seen.end()) return "-";
  const bool is_plain = fabric == Fabric::sim || !path->cost.matches(counts->second);
  return is_plain ? bench::text(counts->second) : path->cost.text();
}

std::string paths_table(const std::vector<WalkedPath>& walked, const std::vector<Fabric>& fabrics) {
  std::string all = fmt::format("{:<17} {:<55} {:<35}", "lock", "path", "documented");
  for (const Fabric fabric : fabrics) all += fmt::format(" {:<35}", to_string(fabric));
  all += "\n";
  for (const WalkedPath& w : walked) {
    all += fmt::format("{:<17} {:<55} {:<35}", w.lock, w.path->name, w.path->cost.text());
    for (const Fabric fabric : fabrics) all += fmt::format(" {:<35}", w.text(fabric));
    all += w.agrees() ? "\n" : " DIFFERS\n";
  }
  return all;
}

std::string paths_json(const std::vector<WalkedPath>& walked, std::string_view commit) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const WalkedPath& w : walked) {
    nlohmann::ordered_json seen = nlohmann::ordered_json::object();
    for (const auto& [fabric, counts] : w.seen) seen[std::string{to_string(fabric)}] = w.text(fabric);
    rows.push_back({{"lock", w.lock},
                    {"path", w.path->name},
                    {"script", w.path->script},
                    {"step", w.path->step},
                    {"documented", w.path->cost.text()},
                    {"seen", seen},
                    {"agrees", w.agrees()}});
  }
  return nlohmann::ordered_json{{"commit", commit}, {"paths", rows}}.dump(2) + "\n";
}

}  // namespace declock::bench
