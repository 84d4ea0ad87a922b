// A compute node under load, until the test tells it to stop, or kills it. Usage: process_cn CLUSTER CONTROL STATION SEED
//
// CLUSTER is shm:NAME, or tcp:COORDINATOR|MN|SECRETFILE with the memory node that has the locks. If it is taken for dead
// it joins again.
//
// An exclusive section adds one to two words of an object, one after the other, and looks whether anybody came between.
// If a process is killed in between, the next holder finds the words different and mends them.
#include <fmt/format.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <thread>

#include "base/check.h"
#include "hier/hier.h"
#include "member_net/net_node.h"
#include "member_shm/compute_node.h"
#include "member_zk/coordinator_option.h"
#include "networks/networks.h"
#include "process/control.h"

namespace declock::process {
namespace {

class Client {
 public:
  // `at_work` counts those of this node that are not done.
  Client(Control& control, Station& station, std::atomic<std::uint32_t>& at_work, MnId mn,
         Endpoint& endpoint, std::unique_ptr<TimedLockClient> lock, Prng random)
      : control_(control),
        station_(station),
        at_work_(at_work),
        mn_(mn),
        endpoint_(endpoint),
        lock_(std::move(lock)),
        random_(random) {}

  void start() {
    task_.emplace(run());
    task_->start();
  }
  bool done() const { return task_->done(); }
  bool was_evicted() const { return evicted_; }
  FramePool& frames() { return endpoint_.frames(); }

 private:
  Task<void> run() {
    while (!control_.stop.load() && !evicted_) {
      const std::uint64_t which = random_.below(kLocks);
      const Mode mode = random_.one_in(3) ? Mode::shared : Mode::exclusive;
      const RemoteAddr lock{mn_, which * kStride};
      Hold hold;
      const bool at_once = random_.one_in(2) && lock_->acquire_at_once(lock, mode, hold);
      if (!at_once) {
        const Result<Hold> granted = co_await lock_->acquire(lock, mode);
        if (!granted) {
          note(granted.error());
          continue;
        }
        hold = *granted;
      }
      const Result<void> done =
          mode == Mode::exclusive ? co_await update(which, hold) : co_await look_twice(which, hold);
      if (!done) note(done.error());
      if (!random_.one_in(2) || !lock_->release_at_once(hold)) {
        const Result<void> released = co_await lock_->release(hold);
        if (!released) {
          note(released.error());
          continue;
        }
      }
      if (!done) continue;
      if (mode == Mode::exclusive)
        station_.acknowledged[hold.mn_incarnation % kIncarnations][which].fetch_add(1);
      station_.operations.fetch_add(1);
      co_await endpoint_.worker().yield();
    }
    at_work_.fetch_sub(1);
  }

  void note(Errc error) {
    if (error == Errc::evicted) {
      evicted_ = true;
    } else if (error != Errc::mn_restarted) {
      control_.errors.fetch_add(1);
    }
  }

  // Inside the section, sometimes long enough to be killed or stopped there.
  Task<void> linger() {
    if (random_.one_in(8))
      co_await endpoint_.worker().sleep_for(
          microseconds(static_cast<std::int64_t>(random_.below(300))));
  }

  // For the memory that the hold is about, and no other.
  Task<Result<void>> post(Op op, const Hold& hold) {
    op.incarnation = hold.mn_incarnation;
    co_return co_await post_until_known(endpoint_, op);
  }

  Task<Result<void>> update(std::uint64_t which, const Hold& hold) {
    const RemoteAddr object{mn_, kObjects + 64 * which};
    std::array<std::uint64_t, 2> words{};
    Result<void> done = co_await post(Op::read(object, words, Purpose::data), hold);
    if (!done) co_return done;
    if (words[0] != words[1]) {
      control_.repairs.fetch_add(1);
      words[0] = words[1];
    }
    const std::uint64_t next = words[1] + 1;
    done = co_await post(Op::write(object, {&next, 1}, Purpose::data), hold);
    if (!done) co_return done;
    co_await linger();
    done = co_await post(Op::read(object, words, Purpose::data), hold);
    if (!done) co_return done;
    if (words[0] != next || words[1] != next - 1) control_.violations.fetch_add(1);
    co_return co_await post(Op::write(object + 8, {&next, 1}, Purpose::data), hold);
  }

  Task<Result<void>> look_twice(std::uint64_t which, const Hold& hold) {
    const RemoteAddr object{mn_, kObjects + 64 * which};
    std::array<std::uint64_t, 2> before{};
    std::array<std::uint64_t, 2> after{};
    Result<void> done = co_await post(Op::read(object, before, Purpose::data), hold);
    if (!done) co_return done;
    co_await linger();
    done = co_await post(Op::read(object, after, Purpose::data), hold);
    if (done && before != after) control_.violations.fetch_add(1);
    co_return done;
  }

  Control& control_;
  Station& station_;
  std::atomic<std::uint32_t>& at_work_;
  MnId mn_;
  bool evicted_ = false;
  Endpoint& endpoint_;
  std::unique_ptr<TimedLockClient> lock_;
  Prng random_;
  std::optional<Task<void>> task_;
};

// Ends when nothing is under way on this worker and nobody here begins anything: what a node has not done when it leaves
// nobody does for it.
Task<void> until_quiet(Worker& worker, const Control& control, const member::Membership& membership,
                       const std::atomic<std::uint32_t>& at_work, const hier::HierWorker& locks) {
  while (!membership.evicted() && (!control.stop.load() || at_work.load() > 0 || locks.running() > 0))
    co_await worker.sleep_for(milliseconds(1));
}

struct Cluster {
  MnId mn{};
  std::function<Result<std::unique_ptr<member::Node>, std::string>()> join;
};

Cluster in_shared_memory(const std::string& name, std::uint64_t seed) {
  return {MnId{0}, [=]() -> Result<std::unique_ptr<member::Node>, std::string> {
            member::ComputeNode::Config config;
            config.cluster.name = name;
            config.cluster.members = kMembers;
            config.cluster.workers = kWorkers;
            config.cluster.endpoints = kWorkers;
            config.cluster.mn_bytes = kBytes;
            config.seed = seed;
            auto joined = member::ComputeNode::join(config);
            if (!joined) return Failure{joined.error()};
            return std::unique_ptr<member::Node>{std::move(*joined)};
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
  config.transport = [](const std::string& host) {
    return net::open_transport({net::Network::tcp}, host);
  };
  return {MnId{static_cast<std::uint16_t>(std::stoul(text.substr(mn + 1)))},
          [config]() -> Result<std::unique_ptr<member::Node>, std::string> {
            auto joined = member::NetNode::join(config);
            if (!joined) return Failure{joined.error()};
            return std::unique_ptr<member::Node>{std::move(*joined)};
          }};
}

// From joining to leaving, or to being taken for dead. True: it was.
bool live_once(member::Node& node, MnId mn, Control& control, Station& station, std::uint64_t seed) {
  const LockShape shape{kMembers, kMembers, QueueLayout::owner};
  std::vector<hier::Station> stations;
  for (std::uint32_t w = 0; w < kWorkers; ++w)
    stations.push_back({&node.endpoint(w), &node.membership(w)});
  bool evicted = false;
  {
    hier::Node locks{shape, hier::Policy{}, cql::Options{.patience = milliseconds(5)}, stations};
    std::deque<Client> clients;
    std::atomic<std::uint32_t> at_work{kClients};
    for (std::uint32_t i = 0; i < kClients; ++i) {
      clients.emplace_back(control, station, at_work, mn, node.endpoint(i % kWorkers),
                           locks.client(i % kWorkers), Prng{seed, i});
    }
    for (std::uint32_t w = 0; w < kWorkers; ++w) locks.worker(w).cql().start_patrol();
    node.start();
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t w = 0; w < kWorkers; ++w) {
        threads.emplace_back([&, w] {
          ThreadWorker& worker = node.worker(w);
          std::optional<Task<void>> stopping;
          worker.run_until([&] {
            if (!stopping) {
              stopping.emplace(
                  until_quiet(worker, control, node.membership(w), at_work, locks.worker(w)));
              stopping->start();
              for (std::uint32_t i = w; i < kClients; i += kWorkers) clients[i].start();
            }
            bool all = stopping->done();
            for (std::uint32_t i = w; i < kClients; i += kWorkers) all = all && clients[i].done();
            return all;
          });
        });
      }
    }
    node.stop();
    for (const Client& client : clients) evicted = evicted || client.was_evicted();
    for (std::uint32_t w = 0; w < kWorkers; ++w)
      station.resets.fetch_add(locks.worker(w).cql().resets().done);
  }
  if (!evicted) node.leave();
  return evicted;
}

int main(char** arguments) {
  Control& control = Control::map(arguments[2]);
  Station& station = control.stations[std::strtoul(arguments[3], nullptr, 10)];
  const std::uint64_t seed = std::strtoull(arguments[4], nullptr, 10);
  const std::string name = arguments[1];
  const Cluster cluster = name.starts_with("tcp:") ? over_tcp(name.substr(4), seed)
                                                   : in_shared_memory(name.substr(4), seed);
  for (std::uint64_t life = 0; !control.stop.load(); ++life) {
    auto joined = cluster.join();
    if (!joined) {
      fmt::print(stderr, "process_cn: {}\n", joined.error());
      return 2;
    }
    station.slot.store((*joined)->self().slot.value);
    station.incarnation.store((*joined)->self().incarnation.value);
    if (!live_once(**joined, cluster.mn, control, station, seed + (life << 32))) break;
    station.evictions.fetch_add(1);
  }
  return 0;
}

}  // namespace
}  // namespace declock::process

int main(int argc, char** argv) {
  return argc == 5 ? declock::process::main(argv) : 1;
}
