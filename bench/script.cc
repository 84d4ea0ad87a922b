#include "bench/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <memory>
#include <stdexcept>

#include "sim/timed.h"

namespace declock::bench {
namespace {

// A step takes so long; what it sets off has come to rest by then.
constexpr Duration kStepTakes = milliseconds(80);
constexpr Duration kTicketsTake = milliseconds(500);
constexpr int kTickets = 32'767;

Task<bool> enter(Worker&, LockClient& lock, RemoteAddr addr, Mode mode, Hold& hold) {
  const Result<Hold> granted = co_await lock.acquire(addr, mode);
  if (granted) hold = *granted;
  co_return static_cast<bool>(granted);
}

Task<bool> leave(Worker&, LockClient& lock, const Hold& hold) {
  const Result<void> released = co_await lock.release(hold);
  co_return static_cast<bool>(released);
}

// One client's part of a script.
Task<void> act(Worker& worker, const Script& script, std::uint32_t client, LockClient& lock,
               std::atomic<std::uint32_t>& done) {
  Hold hold;
  for (const Step& step : script.steps) {
    if (step.client != client) continue;
    co_await worker.sleep_for(Time{} + step.at - worker.now());
    if (!co_await take_step(worker, step, RemoteAddr{MnId{0}, 0}, lock, hold, done)) co_return;
  }
}

}  // namespace

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

MicroConfig config_for(Fabric fabric, std::string_view lock, std::uint32_t nodes) {
  MicroConfig config;
  config.fabric = fabric;
  config.lock = lock;
  config.cns = nodes;
  config.clients = kClientsPerNode;
  config.workers = 1;
  config.locks = 1;
  config.nic.jitter_mean_ns = 0;
  config.nic.hiccup_one_in = 0;
  config.nic.torn_read_one_in = 0;
  return config;
}

Task<bool> take_step(Worker& worker, const Step& step, RemoteAddr addr, LockClient& lock, Hold& hold,
                     std::atomic<std::uint32_t>& done) {
  bool went_well = true;
  if (step.what == 'U') {
    went_well = co_await leave(worker, lock, hold);
  } else if (step.what == 'P' || step.what == 'Q') {
    const Mode mode = step.what == 'P' ? Mode::shared : Mode::exclusive;
    for (int i = 0; i < kTickets && went_well; ++i)
      went_well = co_await enter(worker, lock, addr, mode, hold) && co_await leave(worker, lock, hold);
  } else {
    const Mode mode = step.what == 'X' ? Mode::exclusive : Mode::shared;
    went_well = co_await enter(worker, lock, addr, mode, hold);
  }
  if (went_well) done.fetch_add(1);
  co_return went_well;
}

void did_not_end(Fabric fabric, std::string_view lock, std::string_view script, std::uint32_t done) {
  throw std::runtime_error(
      fmt::format("{} on {}: the script \"{}\" did not come to its end: {} of its steps were done",
                  lock, to_string(fabric), script, done));
}

std::vector<Simulated> walk_simulated(std::string_view lock, const Script& script) {
  const MicroConfig config = config_for(Fabric::sim, lock, script.nodes);
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
      tasks.push_back(act(worker, script, cn * kClientsPerNode + i, *clients.back(), done));
    }
  }
  for (Task<void>& task : tasks) task.start();
  std::vector<Simulated> steps;
  OpCounts before;
  for (const Duration end : script.ends) {
    engine.run_until(Time{} + end);
    steps.push_back({engine.counts(), done});
    steps.back().cost -= before;
    before += steps.back().cost;
  }
  tasks.clear();
  clients.clear();
  if (done != script.steps.size()) did_not_end(Fabric::sim, lock, script.text, done);
  return steps;
}

}  // namespace declock::bench
