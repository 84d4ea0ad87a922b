// A compute node under load, until the test tells it to stop, or kills it. Usage: process_cn CLUSTER CONTROL STATION SEED
// [WORK]
//
// CLUSTER is shm:NAME, or tcp:COORDINATOR|MN|SECRETFILE with the memory node that has the locks. If it is taken for dead,
// or the test has told it to close with whatever it holds, it joins again. What clients do is in
// cn_client.h. WORK is a number of sections, after which the process leaves; 0: for ever. Or "wide": for ever, and with many
// more locks. Or "hold": they hold one lock or wait for it, and do nothing else. Or "patient": for ever, and whoever waits
// for a message does not find out by itself that its turn has come.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <functional>
#include <thread>

#include "base/check.h"
#include "member_net/net_node.h"
#include "member_shm/compute_node.h"
#include "member_zk/coordinator_option.h"
#include "networks/networks.h"
#include "process/cn_client.h"

#ifdef __SANITIZE_ADDRESS__
// Of a connection that is half-way when its endpoint is closed, libfabric forgets a part.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libfabric";
}
#endif

namespace declock::process {
namespace {

// Ends when nothing is under way on this worker and nobody here begins anything: what a node has not done when it leaves
// nobody does for it.
Task<void> until_quiet(Worker& worker, Life& life, const member::Membership& membership,
                       hier::Node& node, const hier::HierWorker& locks) {
  // Those who only wait are to be seen to do nothing.
  const Duration pause = milliseconds(life.holds ? 100 : 1);
  Time counted = worker.now();
  while (!membership.evicted() && !life.is_closing() &&
         (life.at_work.load() > 0 || locks.running() > 0)) {
    co_await worker.sleep_for(pause);
    if (worker.now() - counted < seconds(1)) continue;
    counted = worker.now();
    life.station.records.store(node.records());
  }
}

struct Joined {
  std::unique_ptr<member::Node> node;
  std::uint32_t memories_before = 0;
};
struct Cluster {
  MnId mn{};
  std::function<Result<Joined, std::string>()> join;
};

// Files that were unlinked are followed by others, and the accounts of each are kept apart. The test says how many it has
// unlinked before it does.
std::uint32_t memories_before(const shm::Cluster& cluster, const Control& control) {
  std::atomic_ref<std::uint64_t> which = cluster.word({MnId{0}, kWhichMemory});
  std::uint64_t found = 0;
  const std::uint64_t next = control.memories_unlinked.load() + 1;
  return static_cast<std::uint32_t>((which.compare_exchange_strong(found, next) ? next : found) - 1);
}

Cluster in_shared_memory(const std::string& name, std::uint64_t seed, const Control& control) {
  return {MnId{0}, [=, &control]() -> Result<Joined, std::string> {
            member::ComputeNode::Config config;
            config.cluster.name = name;
            config.cluster.members = kMembers;
            config.cluster.workers = kWorkers;
            config.cluster.endpoints = kWorkers;
            config.cluster.mn_bytes = kBytes;
            config.seed = seed;
            auto joined = member::ComputeNode::join(config);
            if (!joined) return Failure{joined.error()};
            const shm::Cluster& cluster = (*joined)->cluster();
            // What a client adds to it: the incarnation, whatever these files have begun with.
            const std::uint32_t before = memories_before(cluster, control) + 1 - cluster.incarnation();
            return Joined{std::move(*joined), before};
          }};
}

// COORDINATOR|MN|SECRETFILE, where the coordinator is HOST:PORT or zk://..
Cluster over_tcp(const std::string& text, std::uint64_t seed) {
  const std::size_t mn = text.find('|');
  const std::size_t secret = text.find('|', mn + 1);
  member::NetNodeConfig config;
  config.secret = *wire::read_secret(text.substr(secret + 1));
  CHECK(member::set_coordinator(text.substr(0, mn), config));
  config.workers = kWorkers;
  config.endpoints = kWorkers;
  config.seed = seed;
  config.patience = seconds(60);  // on a busy machine
  config.transport = [](const std::string& host) { return net::open_transport({Fabric::tcp}, host); };
  return {MnId{static_cast<std::uint16_t>(std::stoul(text.substr(mn + 1)))},
          [config]() -> Result<Joined, std::string> {
            auto joined = member::NetNode::join(config);
            if (!joined) return Failure{joined.error()};
            return Joined{std::move(*joined)};
          }};
}

// Runs the clients of one worker until they and it are done, or the process is to close.
// `stopping` is a coroutine of the worker, and must be there until nobody runs that any more.
void run_worker(member::Node& node, std::uint32_t w, Life& life, hier::Node& locks,
                std::deque<Client>& clients, std::optional<Task<void>>& stopping) {
  ThreadWorker& worker = node.worker(w);
  worker.run_until([&] {
    if (!stopping) {
      stopping.emplace(until_quiet(worker, life, node.membership(w), locks, locks.worker(w)));
      stopping->start();
      for (std::uint32_t i = w; i < kClients; i += kWorkers) clients[i].start();
    }
    bool all = stopping->done();
    for (std::uint32_t i = w; i < kClients; i += kWorkers)
      all = all && (clients[i].done() || life.is_closing());
    return all;
  });
}

// From joining to leaving, or to being taken for dead, or to closing in the middle of something.
enum class End : std::uint8_t { left, evicted, closed };
End live_once(member::Node& node, Life& life, Duration patience, std::uint64_t seed) {
  const LockShape shape{kMembers, kMembers, QueueLayout::owner};
  std::vector<hier::Station> stations;
  for (std::uint32_t w = 0; w < kWorkers; ++w)
    stations.push_back({&node.endpoint(w), &node.membership(w)});
  bool evicted = false;
  {
    hier::Policy policy;
    if (life.control.with_tokens.load()) policy.kind = hier::PolicyKind::token;
    hier::Node locks{shape, policy, cql::Options{.patience = patience}, stations};
    std::deque<Client> clients;
    life.at_work.store(kClients);
    for (std::uint32_t i = 0; i < kClients; ++i) {
      clients.emplace_back(life, i, node.endpoint(i % kWorkers), locks.client(i % kWorkers),
                           Prng{seed, i});
    }
    for (std::uint32_t w = 0; w < kWorkers; ++w) locks.worker(w).cql().start_patrol();
    std::array<std::optional<Task<void>>, kWorkers> stopping;
    node.start();
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t w = 0; w < kWorkers; ++w)
        threads.emplace_back([&, w] { run_worker(node, w, life, locks, clients, stopping[w]); });
    }
    node.stop();
    for (const Client& client : clients) evicted = evicted || client.was_evicted();
    for (std::uint32_t w = 0; w < kWorkers; ++w)
      life.station.resets.fetch_add(locks.worker(w).cql().resets().done);
  }
  if (evicted) return End::evicted;
  if (life.is_closing()) return End::closed;  // the others find out
  node.leave();
  return End::left;
}

int main(int count, char** arguments) {
  Control& control = Control::map(arguments[2]);
  Station& station = control.stations[std::strtoul(arguments[3], nullptr, 10)];
  const std::uint64_t seed = std::strtoull(arguments[4], nullptr, 10);
  const std::string work = count > 5 ? arguments[5] : "0";
  const std::uint64_t sections = std::strtoull(work.c_str(), nullptr, 10);
  const Duration patience = work == "patient" ? seconds(3600) : milliseconds(5);
  const std::string name = arguments[1];
  const Cluster cluster = name.starts_with("tcp:") ? over_tcp(name.substr(4), seed)
                                                   : in_shared_memory(name.substr(4), seed, control);
  for (std::uint64_t number = 0; !control.stop.load(); ++number) {
    auto joined = cluster.join();
    if (!joined) {
      fmt::print(stderr, "process_cn: {}\n", joined.error());
      return 2;
    }
    station.slot.store(joined->node->self().slot.value);
    station.incarnation.store(joined->node->self().incarnation.value);
    Life life{control,  station,        cluster.mn,    joined->memories_before,
              sections, work == "hold", work == "wide"};
    const End end = live_once(*joined->node, life, patience, seed + (number << 32));
    joined->node.reset();  // who closes is gone before the test hears of it
    if (end == End::left) break;
    (end == End::evicted ? station.evictions : station.closes).fetch_add(1);
  }
  return 0;
}

}  // namespace
}  // namespace declock::process

int main(int argc, char** argv) {
  return argc >= 5 ? declock::process::main(argc, argv) : 1;
}
