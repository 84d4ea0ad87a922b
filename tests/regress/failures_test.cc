// Scenarios in which a compute node fails at a chosen moment.
#include <gtest/gtest.h>

#include <deque>

#include "hier/hier.h"
#include "member_sim/sim_cluster.h"
#include "support/lab.h"

namespace declock {
namespace {

constexpr RemoteAddr kLock = Lab::kLock;
constexpr RemoteAddr kObject{MnId{0}, 4096};

// Three compute nodes with one client each, and a coordinator.
class Cluster {
 public:
  static constexpr std::uint32_t kNodes = 3;

  Cluster() {
    for (std::uint32_t i = 0; i < kNodes; ++i) {
      sim::SimWorker& worker = engine.add_worker({}, sim::Party{i + 1});
      Node& node = nodes.emplace_back();
      node.endpoint = &engine.add_endpoint(worker);
      node.membership = members.join(node.endpoint->id(), worker);
      node.locks = std::make_unique<hier::Node>(
          shape, hier::Policy{}, cql::Options{.patience = milliseconds(1)},
          std::vector<hier::Station>{{node.endpoint, node.membership.get()}});
      node.locks->worker(0).cql().start_patrol();
      node.client = node.locks->client(0);
    }
  }
  ~Cluster() {
    for (std::uint32_t i = 0; i < kNodes; ++i) crash(i);
  }

  struct Node {
    Endpoint* endpoint = nullptr;
    std::unique_ptr<member::SimMembership> membership;
    std::unique_ptr<hier::Node> locks;
    std::unique_ptr<TimedLockClient> client;
    std::deque<Task<void>> tasks;
  };

  void start(std::uint32_t i, Task<void> task) {
    nodes[i].tasks.push_back(std::move(task));
    nodes[i].tasks.back().start();
  }
  void crash(std::uint32_t i) {
    Node& node = nodes[i];
    if (node.locks != nullptr) node.locks->stop();
    node.tasks.clear();
    node.client.reset();
    node.locks.reset();
    node.membership.reset();
  }
  std::uint64_t posted(std::uint32_t i) const {
    std::uint64_t sum = 0;
    for (std::size_t purpose = 0; purpose < kPurposes; ++purpose) {
      sum += nodes[i].endpoint->counts().of(static_cast<Purpose>(purpose));
    }
    return sum + nodes[i].endpoint->counts().messages;
  }
  void run(Duration d) { engine.run_until(engine.now() + d); }

  LockShape shape{kNodes, kNodes, QueueLayout::owner};
  sim::TimedEngine engine{quiet_nic(), 1, 1};
  member::SimCluster members{engine, {.slots = kNodes, .lease = milliseconds(4)}};
  std::deque<Node> nodes;
};

// Writes under the lock, after a while.
Task<void> hold_and_write(Worker& worker, Endpoint& endpoint, LockClient& lock, Duration stay,
                          std::uint64_t value, Errc& outcome) {
  const Result<Hold> hold = co_await lock.acquire(kLock, Mode::exclusive);
  outcome = hold ? Errc::ok : hold.error();
  if (!hold) co_return;
  co_await worker.sleep_for(stay);
  Op write = Op::write(kObject, {&value, 1}, Purpose::data);
  const Result<void> written = co_await endpoint.post(write);
  if (!written) outcome = written.error();
  const Result<void> released = co_await lock.release(*hold);
  if (!released) outcome = released.error();
}

TEST(Regress, AZombiesWriteNeverLands) {  // H4, H5
  Cluster cluster;
  Errc zombie = Errc::ok, next = Errc::ok;
  Cluster::Node& first = cluster.nodes[0];
  Cluster::Node& second = cluster.nodes[1];
  cluster.start(0, hold_and_write(first.endpoint->worker(), *first.endpoint, *first.client,
                                  microseconds(100), 666, zombie));
  cluster.run(microseconds(50));
  cluster.engine.pause(sim::Party{1});  // inside its section
  cluster.start(
      1, hold_and_write(second.endpoint->worker(), *second.endpoint, *second.client, {}, 7, next));
  cluster.run(milliseconds(20));
  EXPECT_EQ(next, Errc::ok);
  EXPECT_EQ(cluster.engine.memory(MnId{0}).load(kObject.offset), 7u) << "the lock was given away";
  cluster.engine.resume(sim::Party{1});
  cluster.run(milliseconds(20));
  EXPECT_EQ(zombie, Errc::evicted) << "it is told";
  EXPECT_EQ(cluster.engine.memory(MnId{0}).load(kObject.offset), 7u);
  EXPECT_TRUE(first.membership->evicted());
}

Task<void> visit_often(Worker& worker, LockClient& lock, Mode mode, int times, int& done) {
  for (int i = 0; i < times; ++i) {
    const Result<Hold> hold = co_await lock.acquire(kLock, mode);
    if (!hold) co_return;
    co_await worker.sleep_for(microseconds(3));
    const Result<void> released = co_await lock.release(*hold);
    if (!released) co_return;
    done += 1;
  }
}

struct Role {
  const char* name;
  Mode mode;
  bool contended;
  bool claims;  // resets the lock meanwhile
};
void PrintTo(const Role& role, std::ostream* out) {
  *out << role.name;
}

class CrashAfter : public testing::TestWithParam<Role> {};

TEST_P(CrashAfter, EveryOperationAndTheOthersGoOn) {
  const Role role = GetParam();
  int points = 0;
  for (std::uint64_t after = 1;; ++after) {
    Cluster cluster;
    int done[Cluster::kNodes] = {};
    const auto begin = [&](std::uint32_t i, Mode mode) {
      Cluster::Node& node = cluster.nodes[i];
      cluster.start(i, visit_often(node.endpoint->worker(), *node.client, mode, 3, done[i]));
    };
    if (role.contended) {
      begin(1, Mode::exclusive);
      cluster.run(microseconds(2));
    }
    begin(0, role.mode);
    if (role.claims) cluster.nodes[0].locks->worker(0).cql().reset_for_nothing(kLock);
    begin(2, Mode::shared);
    while (cluster.posted(0) < after && done[0] < 3) ASSERT_TRUE(cluster.engine.step());
    const bool survived = cluster.posted(0) < after;
    if (!survived) cluster.crash(0);
    points += survived ? 0 : 1;
    if (!role.contended) begin(1, Mode::exclusive);
    cluster.run(milliseconds(60));
    EXPECT_EQ(done[1], 3) << "crash after " << after;
    EXPECT_EQ(done[2], 3) << "crash after " << after;
    if (survived) break;
  }
  EXPECT_GE(points, 6);
}
INSTANTIATE_TEST_SUITE_P(Roles, CrashAfter,
                         testing::Values(Role{"holder", Mode::exclusive, false, false},
                                         Role{"sharer", Mode::shared, false, false},
                                         Role{"waiter", Mode::exclusive, true, false},
                                         Role{"waiting_reader", Mode::shared, true, false},
                                         Role{"claimant", Mode::exclusive, true, true}));

}  // namespace
}  // namespace declock
