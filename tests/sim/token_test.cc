// The token lock seen from outside: whom it serves in which order, with no look at the token.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "locks/family.h"
#include "sim/timed.h"
#include "support/lab.h"

namespace declock {
namespace {

// Watches one lock. A visit begins when a writer has the lock whose node is not the last writer's. A node stays in the ring if
// somebody waits there when its visit ends, or its part of a phase; who asks where nobody waits is a newcomer, and the token has to
// learn of it first.
class Watcher {
 public:
  explicit Watcher(std::size_t nodes) : nodes_(nodes) {}

  void asks(std::size_t who, std::size_t node, Mode mode) {
    Node& n = nodes_[node];
    n.waiting += 1;
    if (mode == Mode::exclusive) {
      n.writers += 1;
    } else {
      readers_[who] = {node, n.in_ring, Seen(nodes_.size())};
    }
  }
  void reader_enters(std::size_t who) {
    const auto [node, in_ring, seen] = readers_.at(who);
    readers_.erase(who);
    nodes_[node].waiting -= 1;
    reads += 1;
    std::uint32_t& most = in_ring ? most_for_readers : most_for_newcomers;
    for (std::size_t i = 0; i < seen.size(); ++i) most = std::max(most, i == node ? 0 : seen[i]);
  }
  void writer_enters(std::size_t node) {
    nodes_[node].waiting -= 1;
    nodes_[node].writers -= 1;
    if (last_ == node) return;
    last_ = node;
    visits += 1;
    for (Node& n : nodes_) {
      if (n.since) most_for_writers = std::max(most_for_writers, (*n.since)[node] += 1);
    }
    nodes_[node].since.reset();
    for (auto& [who, reader] : readers_) reader.seen[node] += 1;
  }
  void leaves(std::size_t node, const Hold& hold) {
    Node& n = nodes_[node];
    const bool writes = hold.mode == Mode::exclusive;
    n.in_ring = (writes || hold.in_phase) && n.waiting > 0;
    if (!writes) return;
    n.since.reset();
    if (n.writers > 0) n.since.emplace(nodes_.size());
  }

  std::uint64_t visits = 0;
  std::uint64_t reads = 0;
  // The most visits that any other node had between two visits to a node whose writers waited all the while,
  std::uint32_t most_for_writers = 0;
  // and while a reader waited whose node was in the ring, or was not.
  std::uint32_t most_for_readers = 0;
  std::uint32_t most_for_newcomers = 0;

 private:
  using Seen = std::vector<std::uint32_t>;  // visits to each node
  struct Node {
    std::uint32_t waiting = 0;
    std::uint32_t writers = 0;  // of these
    bool in_ring = false;
    std::optional<Seen> since{};  // its last visit ended, and writers waited
  };
  struct Reader {
    std::size_t node;
    bool in_ring;
    Seen seen;  // since it asked
  };
  std::vector<Node> nodes_;
  std::map<std::size_t, Reader> readers_;  // that wait
  std::optional<std::size_t> last_;
};

class Nodes {
 public:
  explicit Nodes(const std::vector<std::uint32_t>& clients, const std::string& lock)
      : family(locks::make_family({.lock = lock,
                                   .cns = static_cast<std::uint32_t>(clients.size()),
                                   .clients = *std::max_element(clients.begin(), clients.end()),
                                   .workers = 1})) {
    for (std::uint32_t cn = 0; cn < clients.size(); ++cn) {
      endpoints_.push_back(&engine.add_endpoint(engine.add_worker()));
      for (std::uint32_t i = 0; i < clients[cn]; ++i) {
        all.push_back({cn, family->client({cn, 0, *endpoints_[cn], {&endpoints_[cn], 1}})});
      }
    }
  }
  ~Nodes() { tasks.clear(); }
  Worker& worker(std::size_t node) { return endpoints_[node]->worker(); }
  void start(Task<void> task) {
    tasks.push_back(std::move(task));
    tasks.back().start();
  }

  struct Client {
    std::uint32_t node;
    std::unique_ptr<LockClient> lock;
  };
  sim::TimedEngine engine{quiet_nic(), 1, 1};
  std::unique_ptr<locks::LockFamily> family;
  std::deque<Endpoint*> endpoints_;
  std::vector<Client> all;
  std::deque<Task<void>> tasks;
};

// Again and again, until the test ends.
Task<void> use(Worker& worker, Nodes::Client& client, std::size_t who, unsigned reads_in_ten,
               Watcher& watcher) {
  Prng random{who, 7};
  for (;;) {
    const Mode mode = random.below(10) < reads_in_ten ? Mode::shared : Mode::exclusive;
    watcher.asks(who, client.node, mode);
    const Result<Hold> hold = co_await client.lock->acquire(Lab::kLock, mode);
    EXPECT_TRUE(hold);
    if (!hold) co_return;
    mode == Mode::shared ? watcher.reader_enters(who) : watcher.writer_enters(client.node);
    co_await worker.sleep_for(microseconds(1 + static_cast<std::int64_t>(random.below(4))));
    watcher.leaves(client.node, *hold);
    const Result<void> released = co_await client.lock->release(*hold);
    EXPECT_TRUE(released);
    co_await worker.sleep_for(microseconds(static_cast<std::int64_t>(random.below(8))));
  }
}

Watcher watch(const std::vector<std::uint32_t>& clients, unsigned reads_in_ten,
              const std::string& lock = "declock-token") {
  Nodes nodes{clients, lock};
  Watcher watcher{clients.size()};
  for (std::size_t i = 0; i < nodes.all.size(); ++i) {
    nodes.start(use(nodes.worker(nodes.all[i].node), nodes.all[i], i, reads_in_ten, watcher));
  }
  nodes.engine.run_until(nodes.engine.now() + milliseconds(30));
  return watcher;
}

struct Crowd {
  std::vector<std::uint32_t> clients;  // of each node
  unsigned reads_in_ten;
};
class TokenFairness : public testing::TestWithParam<Crowd> {};

TEST_P(TokenFairness, HoldsBetweenNodesAndForReaders) {
  const Watcher watcher = watch(GetParam().clients, GetParam().reads_in_ten);
  EXPECT_GT(watcher.visits, 100u);
  EXPECT_LE(watcher.most_for_writers, 1u);
  EXPECT_LE(watcher.most_for_readers, 1u);
}
INSTANTIATE_TEST_SUITE_P(Crowds, TokenFairness,
                         testing::Values(Crowd{{6, 6, 6, 6}, 0}, Crowd{{6, 6, 6, 6}, 5},
                                         Crowd{{1, 1, 1, 1, 1, 1}, 5}, Crowd{{400, 4, 4, 4}, 9}));
INSTANTIATE_TEST_SUITE_P(WhereNodesComeAndGo, TokenFairness,
                         testing::Values(Crowd{{400, 4, 4, 4}, 0}, Crowd{{400, 4, 4, 4}, 5},
                                         Crowd{{4, 400, 1, 1, 2, 2, 3, 3}, 2},
                                         Crowd{{64, 1, 1, 1, 1}, 0}));

}  // namespace
}  // namespace declock
