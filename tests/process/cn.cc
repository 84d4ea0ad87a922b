// A compute node under load, until the test tells it to stop, or kills it. Usage: process_cn CLUSTER CONTROL STATION SEED
//
// An exclusive section adds one to two words of an object, one after the other, and looks whether anybody came between.
// If a process is killed in between, the next holder finds the words different and mends them.
#include <fmt/format.h>

#include <cstdlib>
#include <deque>
#include <thread>

#include "hier/hier.h"
#include "member_shm/compute_node.h"
#include "process/control.h"

namespace declock::process {
namespace {

class Client {
 public:
  Client(Control& control, Station& station, Endpoint& endpoint, std::unique_ptr<TimedLockClient> lock,
         Prng random)
      : control_(control),
        station_(station),
        endpoint_(endpoint),
        lock_(std::move(lock)),
        random_(random) {}

  void start() {
    task_.emplace(run());
    task_->start();
  }
  bool done() const { return task_->done(); }
  FramePool& frames() { return endpoint_.frames(); }

 private:
  Task<void> run() {
    while (!control_.stop.load()) {
      const std::uint64_t which = random_.below(kLocks);
      const Mode mode = random_.one_in(3) ? Mode::shared : Mode::exclusive;
      const RemoteAddr lock{MnId{0}, which * kStride};
      Hold hold;
      const bool at_once = random_.one_in(2) && lock_->acquire_at_once(lock, mode, hold);
      if (!at_once) {
        const Result<Hold> granted = co_await lock_->acquire(lock, mode);
        if (!granted) {
          control_.errors.fetch_add(1);
          co_return;
        }
        hold = *granted;
      }
      if (mode == Mode::exclusive) {
        co_await update(which);
      } else {
        co_await look_twice(which);
      }
      if (!random_.one_in(2) || !lock_->release_at_once(hold)) {
        if (!co_await lock_->release(hold)) control_.errors.fetch_add(1);
      }
      if (mode == Mode::exclusive) station_.acknowledged[which].fetch_add(1);
      station_.operations.fetch_add(1);
      co_await endpoint_.worker().yield();
    }
  }

  // Inside the section, sometimes long enough to be killed or stopped there.
  Task<void> linger() {
    if (random_.one_in(8))
      co_await endpoint_.worker().sleep_for(
          microseconds(static_cast<std::int64_t>(random_.below(300))));
  }

  Task<void> update(std::uint64_t which) {
    const RemoteAddr object{MnId{0}, kObjects + 64 * which};
    std::array<std::uint64_t, 2> words{};
    Op read = Op::read(object, words, Purpose::data);
    CHECK(co_await endpoint_.post(read));
    if (words[0] != words[1]) {
      control_.repairs.fetch_add(1);
      words[0] = words[1];
    }
    const std::uint64_t next = words[1] + 1;
    Op first = Op::write(object, {&next, 1}, Purpose::data);
    CHECK(co_await endpoint_.post(first));
    co_await linger();
    CHECK(co_await endpoint_.post(read));
    if (words[0] != next || words[1] != next - 1) control_.violations.fetch_add(1);
    Op second = Op::write(object + 8, {&next, 1}, Purpose::data);
    CHECK(co_await endpoint_.post(second));
  }

  Task<void> look_twice(std::uint64_t which) {
    const RemoteAddr object{MnId{0}, kObjects + 64 * which};
    std::array<std::uint64_t, 2> before{};
    std::array<std::uint64_t, 2> after{};
    Op read = Op::read(object, before, Purpose::data);
    CHECK(co_await endpoint_.post(read));
    co_await linger();
    Op again = Op::read(object, after, Purpose::data);
    CHECK(co_await endpoint_.post(again));
    if (before != after) control_.violations.fetch_add(1);
  }

  Control& control_;
  Station& station_;
  Endpoint& endpoint_;
  std::unique_ptr<TimedLockClient> lock_;
  Prng random_;
  std::optional<Task<void>> task_;
};

Task<void> look_for_stop(Worker& worker, const Control& control) {
  while (!control.stop.load()) co_await worker.sleep_for(milliseconds(1));
  // The others' last hand-overs and resets may need answers.
  co_await worker.sleep_for(milliseconds(500));
}

int main(char** arguments) {
  Control& control = Control::map(arguments[2]);
  Station& station = control.stations[std::strtoul(arguments[3], nullptr, 10)];
  const std::uint64_t seed = std::strtoull(arguments[4], nullptr, 10);
  member::ComputeNode::Config config;
  config.cluster.name = arguments[1];
  config.cluster.members = kMembers;
  config.cluster.workers = kWorkers;
  config.cluster.endpoints = kWorkers;
  config.cluster.mn_bytes = kBytes;
  config.seed = seed;
  auto joined = member::ComputeNode::join(config);
  if (!joined) {
    fmt::print(stderr, "process_cn: {}\n", joined.error());
    return 2;
  }
  member::ComputeNode& node = **joined;
  const LockShape shape{kMembers, kMembers, QueueLayout::owner};
  std::vector<hier::Station> stations;
  for (std::uint32_t w = 0; w < kWorkers; ++w)
    stations.push_back({&node.endpoint(w), &node.membership(w)});
  {
    hier::Node<> locks{shape, hier::Policy{}, cql::Options{.patience = milliseconds(5)}, stations};
    std::deque<Client> clients;
    for (std::uint32_t i = 0; i < kClients; ++i) {
      clients.emplace_back(control, station, node.endpoint(i % kWorkers), locks.client(i % kWorkers),
                           Prng{seed, i});
    }
    for (std::uint32_t w = 0; w < kWorkers; ++w) locks.worker(w).cql().start_patrol();
    node.start();
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t w = 0; w < kWorkers; ++w) {
        threads.emplace_back([&, w] {
          shm::ShmWorker& worker = node.worker(w);
          std::optional<Task<void>> stopping;
          worker.run_until([&] {
            if (!stopping) {
              stopping.emplace(look_for_stop(worker, control));
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
    for (std::uint32_t w = 0; w < kWorkers; ++w)
      station.resets.fetch_add(locks.worker(w).cql().resets().done);
  }
  node.leave();
  return 0;
}

}  // namespace
}  // namespace declock::process

int main(int argc, char** argv) {
  return argc == 5 ? declock::process::main(argv) : 1;
}
