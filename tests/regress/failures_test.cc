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

// Three compute nodes or more with one client each, and a coordinator.
class Cluster {
 public:
  static constexpr std::uint32_t kNodes = 3;

  explicit Cluster(std::uint32_t nodes_wanted = kNodes, const cql::Rules& rules = {})
      : count(nodes_wanted) {
    for (std::uint32_t i = 0; i < count; ++i) {
      sim::SimWorker& worker = engine.add_worker({}, sim::Party{i + 1});
      Node& node = nodes.emplace_back();
      node.endpoint = &engine.add_endpoint(worker);
      node.membership = members.join(node.endpoint->id(), worker);
      node.locks = std::make_unique<hier::Node>(
          shape, hier::Policy{}, cql::Options{.patience = milliseconds(1), .rules = rules},
          std::vector<hier::Station>{{node.endpoint, node.membership.get()}});
      node.locks->worker(0).cql().start_patrol();
      node.client = node.locks->client(0);
    }
  }
  ~Cluster() {
    for (std::uint32_t i = 0; i < count; ++i) crash(i);
  }

  struct Node {
    Endpoint* endpoint = nullptr;
    std::unique_ptr<member::SimMembership> membership;
    std::unique_ptr<hier::Node> locks;
    std::unique_ptr<TimedLockClient> client;
    std::unique_ptr<TimedLockClient> sibling;  // if there is one
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
    node.sibling.reset();
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

  const std::uint32_t count;
  LockShape shape{count, count, QueueLayout::owner};
  sim::TimedEngine engine{quiet_nic(), 1, 1};
  member::SimCluster members{engine, {.slots = count, .lease = milliseconds(4)}};
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

Task<void> write_and_release(Worker& worker, LockClient& lock, std::uint64_t value,
                             Result<void>& released) {
  const Result<Hold> hold = co_await lock.acquire(kLock, Mode::exclusive);
  if (!hold) co_return;
  co_await worker.sleep_for(microseconds(100));
  Op write = Op::write(kObject, {&value, 1}, Purpose::data);
  released = co_await lock.release(*hold, &write);
}

Task<void> write_alone(Endpoint& endpoint, std::uint64_t value, Result<void>& written) {
  Op write = Op::write(kObject, {&value, 1}, Purpose::data);
  written = co_await post_until_known(endpoint, write);
}

// Done, certainly not done, not known: a release that says `evicted` has written nothing.
TEST(Regress, AReleaseWhoseWriteTookEffectIsDoneAlthoughItsNodeIsEvictedThen) {
  Cluster cluster;
  Cluster::Node& first = cluster.nodes[0];
  Cluster::Node& second = cluster.nodes[1];
  Result<void> released = Failure{Errc::busy};
  Visit waiter;
  cluster.start(0, write_and_release(first.endpoint->worker(), *first.client, 7, released));
  cluster.run(microseconds(50));
  cluster.start(1,
                visit(second.endpoint->worker(), *second.client, kLock, Mode::exclusive, {}, waiter));
  while (cluster.engine.memory(MnId{0}).load(kObject.offset) != 7) ASSERT_TRUE(cluster.engine.step());
  cluster.engine.pause(sim::Party{1});  // it has not heard yet
  cluster.run(milliseconds(30));
  EXPECT_TRUE(waiter.left) << "the others went on without it";
  cluster.engine.resume(sim::Party{1});
  cluster.run(milliseconds(30));
  EXPECT_TRUE(first.membership->evicted());
  EXPECT_TRUE(released || released.error() == Errc::outcome_unknown)
      << to_string(released.error()) << ", although it was written";
}

// The memory node forgets what it was told, but somebody may have read it before: nobody knows whether it was written.
TEST(Regress, AWriteThatTookEffectBeforeItsMemoryNodeRestartedIsNotSaidToBeUndone) {
  const auto outcome_of = [](const auto& make) {
    Cluster cluster;
    Cluster::Node& first = cluster.nodes[0];
    Result<void> outcome = Failure{Errc::busy};
    cluster.start(0, make(first, outcome));
    const Time latest = cluster.engine.now() + milliseconds(1);
    while (cluster.engine.memory(MnId{0}).load(kObject.offset) != 7) {
      if (cluster.engine.now() > latest) return Errc::timed_out;
      (void)cluster.engine.step();
    }
    cluster.engine.set_mishaps({.unknown_one_in = 1});
    cluster.members.restart(MnId{0}, milliseconds(1));
    cluster.run(microseconds(900));
    cluster.engine.set_mishaps({});
    cluster.run(milliseconds(30));
    return outcome ? Errc::ok : outcome.error();
  };
  EXPECT_EQ(outcome_of([](Cluster::Node& node, Result<void>& outcome) {
              return write_and_release(node.endpoint->worker(), *node.client, 7, outcome);
            }),
            Errc::outcome_unknown);
  EXPECT_EQ(outcome_of([](Cluster::Node& node, Result<void>& outcome) {
              return write_alone(*node.endpoint, 7, outcome);
            }),
            Errc::outcome_unknown);
}

std::uint64_t resets(Cluster& cluster) {
  std::uint64_t sum = 0;
  for (Cluster::Node& node : cluster.nodes) {
    if (node.locks != nullptr) sum += node.locks->worker(0).cql().resets().done;
  }
  return sum;
}

// H19: one removal in history does not matter for ever. Whoever waits asks, and hears that the holder lives.
TEST(Regress, ALongHoldAfterSomebodysDeathIsNotReset) {
  for (const Mode mode : {Mode::exclusive, Mode::shared}) {
    Cluster cluster;
    cluster.crash(2);
    cluster.run(milliseconds(20));
    EXPECT_EQ(cluster.nodes[1].membership->known().removals, 1u);
    Visit holder, waiter;
    Cluster::Node& first = cluster.nodes[0];
    Cluster::Node& second = cluster.nodes[1];
    cluster.start(
        0, visit(first.endpoint->worker(), *first.client, kLock, mode, milliseconds(500), holder));
    cluster.run(microseconds(50));
    const std::uint64_t before = cluster.posted(1);
    cluster.start(1,
                  visit(second.endpoint->worker(), *second.client, kLock, Mode::exclusive, {}, waiter));
    cluster.run(milliseconds(490));
    EXPECT_TRUE(holder.entered && !holder.left && !waiter.entered);
    EXPECT_LT(cluster.posted(1) - before, 60u) << "who waits for long looks rarely";
    cluster.run(milliseconds(20));
    EXPECT_TRUE(waiter.left) << "it was granted the lock, and not found out by looking";
    EXPECT_EQ(resets(cluster), 0u);
  }
}

// A grant is lost, or late, for as long as two compute nodes do not hear each other. The one that it was for does not look
// for long yet; another one looks, asks, and must not take the lock for nobody's.
TEST(Regress, AGrantThatIsLateAfterSomebodysDeathIsNoReasonForAReset) {
  Cluster cluster{4};
  cluster.crash(3);
  cluster.run(milliseconds(20));
  Visit holder, first, second;
  const auto visits = [&](std::uint32_t i, Duration stay, Visit& seen) {
    Cluster::Node& node = cluster.nodes[i];
    cluster.start(i, visit(node.endpoint->worker(), *node.client, kLock, Mode::exclusive, stay, seen));
  };
  visits(0, milliseconds(40), holder);
  cluster.run(microseconds(50));
  visits(1, milliseconds(20), first);
  cluster.run(milliseconds(30));
  cluster.engine.cut(sim::Party{1}, sim::Party{2});
  while (!holder.left) ASSERT_TRUE(cluster.engine.step());
  visits(2, {}, second);
  cluster.run(milliseconds(5));
  EXPECT_TRUE(first.entered) << "asked, it looks at once";
  EXPECT_FALSE(first.left || second.entered);
  cluster.engine.heal();
  cluster.run(milliseconds(40));
  EXPECT_TRUE(second.left);
  EXPECT_EQ(resets(cluster), 0u);
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

Task<void> gives_up(LockClient& lock, Time deadline, Errc& outcome) {
  const Result<Hold> hold =
      co_await dynamic_cast<TimedLockClient&>(lock).acquire_until(kLock, Mode::exclusive, deadline);
  outcome = hold ? Errc::ok : hold.error();
}

// A reader holds the lock for long, a writer waits; what becomes of a reader that comes after it?
class AbandonedPlace : public testing::Test {
 protected:
  AbandonedPlace() {
    start(0, Mode::shared, milliseconds(100), holder);
    cluster.run(microseconds(50));
  }
  void start(std::uint32_t node, Mode mode, Duration stay, Visit& seen) {
    Cluster::Node& at = cluster.nodes[node];
    cluster.start(node, visit(at.endpoint->worker(), *at.client, kLock, mode, stay, seen));
  }
  void start_beside_holder(Visit& seen) {
    Cluster::Node& at = cluster.nodes[0];
    at.sibling = at.locks->client(0);
    cluster.start(0, visit(at.endpoint->worker(), *at.sibling, kLock, Mode::shared, {}, seen));
  }
  // All who live get the lock, and nothing of those who left is left.
  void expect_that_all_goes_on() {
    cluster.run(milliseconds(200));
    Visit writer;
    start(0, Mode::exclusive, {}, writer);
    cluster.run(milliseconds(20));
    EXPECT_TRUE(holder.left && reader.left && writer.left);
    EXPECT_EQ(header().qsize, 0u);
    EXPECT_EQ(header().wcnt, 0u);
  }
  Header header() {
    return cluster.shape.header.decode(cluster.engine.memory(MnId{0}).load(kLock.offset));
  }
  Cluster cluster{5};
  Visit holder, reader;
};

TEST_F(AbandonedPlace, AWriterThatGaveUpKeepsNoReaderOut) {
  Errc outcome = Errc::ok;
  cluster.start(1, gives_up(*cluster.nodes[1].client, cluster.engine.now() + milliseconds(1), outcome));
  cluster.run(microseconds(50));
  start(2, Mode::shared, {}, reader);
  cluster.run(microseconds(500));
  EXPECT_FALSE(reader.entered) << "the writer still waits";
  cluster.run(milliseconds(5));
  EXPECT_EQ(outcome, Errc::timed_out);
  EXPECT_TRUE(reader.entered && !holder.left);
  expect_that_all_goes_on();
}

TEST_F(AbandonedPlace, AWriterThatDiedWaitingKeepsNoReaderOut) {
  Visit writer;
  start(1, Mode::exclusive, {}, writer);
  cluster.run(microseconds(50));
  start(2, Mode::shared, {}, reader);
  cluster.run(microseconds(50));
  cluster.crash(1);
  cluster.run(milliseconds(40));
  EXPECT_TRUE(reader.entered && !holder.left);
  expect_that_all_goes_on();
}

TEST_F(AbandonedPlace, SeveralOfThemKeepNoReaderOutEither) {
  Visit dead[2];
  Errc outcome = Errc::ok;
  start(1, Mode::exclusive, {}, dead[0]);
  cluster.run(microseconds(50));
  cluster.start(2, gives_up(*cluster.nodes[2].client, cluster.engine.now() + milliseconds(1), outcome));
  cluster.run(microseconds(50));
  start(3, Mode::exclusive, {}, dead[1]);
  cluster.run(microseconds(50));
  start(4, Mode::shared, {}, reader);
  cluster.run(microseconds(50));
  cluster.crash(1);
  cluster.crash(3);
  cluster.run(milliseconds(90));
  EXPECT_EQ(outcome, Errc::timed_out);
  EXPECT_TRUE(reader.entered && !holder.left);
  expect_that_all_goes_on();
}

// The same for a reader beside the holder, on its compute node. Nobody there waits in the queue, so nobody there is told.
TEST_F(AbandonedPlace, AWriterThatGaveUpKeepsNoReaderBesideTheHolderOut) {
  Errc outcome = Errc::ok;
  cluster.start(1, gives_up(*cluster.nodes[1].client, cluster.engine.now() + milliseconds(1), outcome));
  cluster.run(microseconds(500));
  start_beside_holder(reader);
  cluster.run(microseconds(300));
  EXPECT_FALSE(reader.entered) << "the writer still waits";
  cluster.run(milliseconds(8));
  EXPECT_EQ(outcome, Errc::timed_out);
  EXPECT_TRUE(reader.entered && !holder.left);
  expect_that_all_goes_on();
}

// What is left in the queue are the entry of the writer that has left, and behind it that of a reader which has the lock.
TEST_F(AbandonedPlace, WhatAWriterThatGaveUpHasLeftInTheQueueKeepsNobodyOut) {
  Errc outcome = Errc::ok;
  cluster.start(1, gives_up(*cluster.nodes[1].client, cluster.engine.now() + milliseconds(1), outcome));
  cluster.run(microseconds(50));
  Visit other;
  start(2, Mode::shared, milliseconds(50), other);
  cluster.run(milliseconds(5));
  EXPECT_TRUE(outcome == Errc::timed_out && other.entered);
  start_beside_holder(reader);
  cluster.run(microseconds(100));
  EXPECT_TRUE(reader.entered && !holder.left);
  expect_that_all_goes_on();
}

TEST_F(AbandonedPlace, AWriterThatDiedWaitingKeepsNoReaderBesideTheHolderOut) {
  Visit writer;
  start(1, Mode::exclusive, {}, writer);
  cluster.run(microseconds(50));
  start_beside_holder(reader);
  cluster.run(milliseconds(1));
  EXPECT_FALSE(reader.entered) << "a writer waits";
  cluster.crash(1);
  cluster.run(milliseconds(40));
  EXPECT_TRUE(reader.entered && !holder.left);
  expect_that_all_goes_on();
}

// The reset that ends its search waits for nothing of the writer's own: that has left the queue.
TEST_F(AbandonedPlace, AWriterThatGaveUpBeforeAReaderThatDiedWithoutAnEntryLeaves) {
  Errc outcome = Errc::ok;
  cluster.start(1, gives_up(*cluster.nodes[1].client, cluster.engine.now() + milliseconds(1), outcome));
  cluster.run(microseconds(50));
  Visit dead;
  start(2, Mode::shared, {}, dead);
  while (header().qsize < 3) ASSERT_TRUE(cluster.engine.step());
  cluster.crash(2);
  cluster.run(milliseconds(30));
  EXPECT_EQ(outcome, Errc::timed_out);
  start(3, Mode::shared, {}, reader);
  expect_that_all_goes_on();
}

// Its entry is still there after it has had the lock and released it. Whoever passes over the dead may have seen the entry
// before, and hears of the death only afterwards.
TEST_F(AbandonedPlace, AWriterThatDiedAfterItsReleaseIsNotPassedOver) {
  cluster.crash(4);
  cluster.run(milliseconds(200));
  Visit reads, left, stays, next;
  start(0, Mode::shared, milliseconds(3), reads);
  cluster.run(microseconds(50));
  start(1, Mode::exclusive, microseconds(100), left);
  cluster.run(microseconds(50));
  start(2, Mode::exclusive, milliseconds(100), stays);
  const auto looks = [&] { return cluster.nodes[2].endpoint->counts().of(Purpose::release); };
  while (looks() == 0) ASSERT_TRUE(cluster.engine.step());
  cluster.run(Duration{quiet_nic().one_way_ns * 3 / 2});
  cluster.engine.cut(sim::party_of(MnId{0}),
                     sim::Party{3});  // it has looked, and does not know yet what it has seen
  while (!stays.entered) ASSERT_TRUE(cluster.engine.step());
  EXPECT_TRUE(left.left);
  cluster.run(microseconds(50));
  cluster.members.leave(cluster.nodes[1].membership->self(), false);
  cluster.crash(1);
  cluster.run(microseconds(200));
  cluster.engine.heal();
  cluster.run(milliseconds(1));
  start(3, Mode::exclusive, {}, next);
  cluster.run(milliseconds(1));
  EXPECT_TRUE(!stays.left && !next.entered);
  EXPECT_EQ(header().wcnt, 2u) << "the one that holds the lock, and the one that waits";
}

Header header_in(Cluster& cluster) {
  return cluster.shape.header.decode(cluster.engine.memory(MnId{0}).load(kLock.offset));
}

Task<void> reads_on_and_on(Worker& worker, LockClient& lock, Duration stay) {
  for (;;) {  // as long as the test lasts
    const Result<Hold> hold = co_await lock.acquire(kLock, Mode::shared);
    if (!hold) co_return;
    co_await worker.sleep_for(stay);
    if (const Result<void> released = co_await lock.release(*hold); !released) co_return;
  }
}

// The writer had released the lock, and died before it could say so. Others read, so that the queue never stands still.
TEST(Regress, AReaderWhoseGrantDiedWithTheReleaserTakesItsTurn) {
  Cluster cluster{4};
  Visit writer, reader;
  const auto visits = [&](std::uint32_t i, Mode mode, Visit& seen) {
    Cluster::Node& node = cluster.nodes[i];
    cluster.start(i,
                  visit(node.endpoint->worker(), *node.client, kLock, mode, microseconds(100), seen));
  };
  visits(0, Mode::exclusive, writer);
  cluster.run(microseconds(50));
  visits(1, Mode::shared, reader);
  cluster.run(microseconds(20));
  while (header_in(cluster).wcnt != 0) ASSERT_TRUE(cluster.engine.step());
  cluster.crash(0);
  for (const std::uint32_t i : {2u, 3u}) {
    Cluster::Node& node = cluster.nodes[i];
    cluster.start(i,
                  reads_on_and_on(node.endpoint->worker(), *node.client, microseconds(170 + 60 * i)));
  }
  EXPECT_FALSE(reader.entered);
  cluster.run(milliseconds(30));
  EXPECT_TRUE(reader.left);
  EXPECT_EQ(resets(cluster), 0u);
}

// The same for a reader behind one that holds the lock for long: they share it.
TEST(Regress, AReaderWhoseGrantIsLateSharesTheLockWithThoseWhoHaveIt) {
  Cluster cluster;
  Visit writer, first, second;
  const auto visits = [&](std::uint32_t i, Mode mode, Duration stay, Visit& seen) {
    Cluster::Node& node = cluster.nodes[i];
    cluster.start(i, visit(node.endpoint->worker(), *node.client, kLock, mode, stay, seen));
    cluster.run(microseconds(20));
  };
  visits(0, Mode::exclusive, microseconds(100), writer);
  visits(1, Mode::shared, milliseconds(100), first);
  visits(2, Mode::shared, {}, second);
  cluster.engine.cut(sim::Party{1}, sim::Party{3});
  cluster.run(milliseconds(20));
  EXPECT_TRUE(writer.left && first.entered && !first.left);
  EXPECT_TRUE(second.left);
  EXPECT_EQ(resets(cluster), 0u);
}

// Its owner was off its processor between its fetch-and-add and the WRITE of its entry.
TEST(Regress, AnEntryThatIsMerelyLateIsNoReasonForAReset) {
  Cluster cluster;
  cluster.crash(2);
  cluster.run(milliseconds(20));
  Visit holder, waiter;
  Cluster::Node& first = cluster.nodes[0];
  Cluster::Node& second = cluster.nodes[1];
  cluster.start(0, visit(first.endpoint->worker(), *first.client, kLock, Mode::exclusive,
                         microseconds(100), holder));
  cluster.run(microseconds(50));
  cluster.start(1,
                visit(second.endpoint->worker(), *second.client, kLock, Mode::exclusive, {}, waiter));
  while (header_in(cluster).qsize < 2) ASSERT_TRUE(cluster.engine.step());
  cluster.engine.pause(sim::Party{2});
  while (header_in(cluster).ticket == Ticket{0}) ASSERT_TRUE(cluster.engine.step());
  cluster.run(milliseconds(1));  // the patience of whoever looks for the entry
  const auto looks = [&] { return first.endpoint->counts().of(Purpose::refetch); };
  const std::uint64_t before = looks();
  while (looks() == before) ASSERT_TRUE(cluster.engine.step());
  cluster.run(microseconds(2));  // it was seen once more to be missing
  cluster.engine.resume(sim::Party{2});
  cluster.run(milliseconds(20));
  EXPECT_TRUE(waiter.left);
  EXPECT_EQ(resets(cluster), 0u);
}

// Otherwise the claimant would wait, and everybody who asks would hear that it has the lock to mend, for as long.
TEST(Regress, AClaimFromBeforeARestartIsAnsweredByWhoeverHoldsTheLockAfterIt) {
  Cluster cluster;
  Visit before, after;
  Cluster::Node& holder = cluster.nodes[1];
  const auto holds = [&](Duration stay, Visit& seen) {
    cluster.start(1,
                  visit(holder.endpoint->worker(), *holder.client, kLock, Mode::exclusive, stay, seen));
  };
  holds(milliseconds(1), before);
  cluster.run(microseconds(50));
  cluster.engine.cut(sim::Party{1}, sim::Party{2});
  cluster.nodes[0].locks->worker(0).cql().reset_for_nothing(kLock);
  cluster.run(microseconds(200));
  EXPECT_NE(header_in(cluster).reset_id, ResetId{0});
  cluster.members.restart(MnId{0}, milliseconds(1));
  cluster.run(milliseconds(20));
  EXPECT_EQ(before.error, Errc::mn_restarted);
  holds(milliseconds(500), after);
  cluster.run(milliseconds(5));
  cluster.engine.heal();
  cluster.run(milliseconds(50));
  EXPECT_TRUE(after.entered && !after.left);
  EXPECT_EQ(cluster.nodes[0].locks->running(), 0u) << "it still waits for an answer";
}

// It claimed the lock before the restart, and hears of that before it asks the others to get out of the way.
TEST(Regress, AClaimIsOfTheIncarnationInWhichItWasMade) {
  Cluster cluster;
  Visit after;
  const auto reset = [&] { cluster.nodes[0].locks->worker(0).cql().reset_for_nothing(kLock); };
  reset();
  cluster.run(milliseconds(1));
  EXPECT_EQ(header_in(cluster).epoch, Epoch{1});
  cluster.engine.cut(sim::kCoordinator, sim::Party{1});  // it cannot learn who the others are
  reset();
  cluster.run(microseconds(200));
  EXPECT_NE(header_in(cluster).reset_id, ResetId{0});
  cluster.members.restart(MnId{0}, microseconds(200));
  cluster.run(microseconds(500));
  Cluster::Node& first = cluster.nodes[0];
  Visit sibling;
  first.sibling = first.locks->client(0);
  cluster.start(0, visit(first.endpoint->worker(), *first.sibling, {MnId{0}, 8192}, Mode::exclusive, {},
                         sibling));
  Cluster::Node& holder = cluster.nodes[1];
  cluster.start(1, visit(holder.endpoint->worker(), *holder.client, kLock, Mode::exclusive,
                         milliseconds(500), after));
  cluster.run(milliseconds(1));
  EXPECT_TRUE(sibling.left && after.entered);
  cluster.engine.heal();
  cluster.run(milliseconds(50));
  EXPECT_FALSE(after.left);
  EXPECT_EQ(first.locks->running(), 0u) << "it waits for the holder's answer";
}

// Nor does it help to wait for one whose hold the restart has made void, however long its section lasts.
TEST(Regress, AClaimAfterARestartDoesNotWaitForAHoldFromBeforeIt) {
  Cluster cluster;
  Visit before, after;
  const auto holds = [&](std::uint32_t i, Duration stay, Visit& seen) {
    Cluster::Node& node = cluster.nodes[i];
    cluster.start(i, visit(node.endpoint->worker(), *node.client, kLock, Mode::exclusive, stay, seen));
  };
  holds(1, milliseconds(500), before);
  cluster.run(microseconds(50));
  cluster.members.restart(MnId{0}, milliseconds(1));
  cluster.run(milliseconds(20));
  cluster.nodes[0].locks->worker(0).cql().reset_for_nothing(kLock);
  holds(2, {}, after);
  cluster.run(milliseconds(50));
  EXPECT_TRUE(before.entered && !before.left);
  EXPECT_TRUE(after.left);
  EXPECT_EQ(resets(cluster), 1u);
}

// It looks for an entry, and meanwhile another operation of its node finds fresh memory. There it owes nobody anything.
TEST(Regress, AReleaseFromBeforeARestartGrantsNobodyTheLockAfterIt) {
  Cluster cluster{4};
  Visit released, late, sibling, holder, waiter;
  const auto visits = [&](std::uint32_t i, Duration stay, Visit& seen) {
    Cluster::Node& node = cluster.nodes[i];
    cluster.start(i, visit(node.endpoint->worker(), *node.client, kLock, Mode::exclusive, stay, seen));
  };
  visits(0, microseconds(100), released);
  cluster.run(microseconds(50));
  visits(1, {}, late);
  while (header_in(cluster).qsize < 2) ASSERT_TRUE(cluster.engine.step());
  cluster.engine.pause(sim::Party{2});  // before it has written its entry
  cluster.run(microseconds(2'500));
  const auto looks = [&] { return cluster.nodes[0].endpoint->counts().of(Purpose::refetch); };
  const std::uint64_t looked = looks();
  while (looks() == looked) ASSERT_TRUE(cluster.engine.step());
  cluster.run(microseconds(10));  // it has seen once more that the entry is missing, and pauses
  cluster.members.restart(MnId{0}, microseconds(50));
  cluster.run(microseconds(60));
  Cluster::Node& first = cluster.nodes[0];
  first.sibling = first.locks->client(0);
  cluster.start(0, visit(first.endpoint->worker(), *first.sibling, {MnId{0}, 8192}, Mode::exclusive, {},
                         sibling));
  visits(2, milliseconds(20), holder);
  cluster.run(microseconds(300));
  visits(3, {}, waiter);
  cluster.run(milliseconds(10));
  EXPECT_TRUE(sibling.left && holder.entered && !holder.left);
  EXPECT_GT(looks(), looked + 1) << "it looked again";
  EXPECT_FALSE(waiter.entered);
  cluster.run(milliseconds(20));
  EXPECT_TRUE(waiter.left);
}

Task<void> tries(TimedLockClient& lock, Errc& outcome) {
  const Result<Hold> hold = co_await lock.try_acquire(kLock, Mode::exclusive);
  outcome = hold ? Errc::ok : hold.error();
}

TEST(Regress, ATryThatIsCancelledWhenItHasTheLockGivesItBack) {
  Cluster cluster;
  Errc outcome = Errc::ok;
  cluster.start(0, tries(*cluster.nodes[0].client, outcome));
  while (header_in(cluster).qsize == 0) ASSERT_TRUE(cluster.engine.step());
  cluster.nodes[0].client->cancel();
  Visit next;
  Cluster::Node& second = cluster.nodes[1];
  cluster.start(1, visit(second.endpoint->worker(), *second.client, kLock, Mode::exclusive, {}, next));
  cluster.run(milliseconds(20));
  EXPECT_EQ(outcome, Errc::cancelled);
  EXPECT_TRUE(next.left);
  EXPECT_EQ(cluster.nodes[0].locks->running(), 0u);
}

// Whoever has heard that the holder lives asks again once somebody was removed, whenever it was to look next.
TEST(Regress, AHolderThatDiesAfterItHasSaidThatItLivesIsFoundOut) {
  for (int i = 0; i < 40; ++i) {
    Cluster cluster;
    cluster.crash(2);
    cluster.run(milliseconds(20));
    Visit holder, waiter;
    const auto visits = [&](std::uint32_t which, Visit& seen) {
      Cluster::Node& node = cluster.nodes[which];
      cluster.start(which, visit(node.endpoint->worker(), *node.client, kLock, Mode::exclusive,
                                 seconds(1), seen));
    };
    visits(0, holder);
    cluster.run(microseconds(50 + 25 * i));
    visits(1, waiter);
    // It looks 31.5 ms after it has begun; the holder is removed some 4 ms after its death.
    cluster.run(microseconds(27'200));
    cluster.crash(0);
    cluster.run(milliseconds(60));
    EXPECT_TRUE(waiter.entered) << i;
  }
}

// Each of them makes those who wait look again, soon, but not from the beginning.
TEST(Regress, RemovalsOneAfterAnotherDoNotPutOffAReset) {
  constexpr std::uint32_t kNodes = 24;
  Cluster cluster{kNodes};
  Visit holder, waiter;
  const auto visits = [&](std::uint32_t i, Visit& seen) {
    Cluster::Node& node = cluster.nodes[i];
    cluster.start(
        i, visit(node.endpoint->worker(), *node.client, kLock, Mode::exclusive, seconds(1), seen));
  };
  visits(0, holder);
  cluster.run(microseconds(50));
  visits(1, waiter);
  cluster.run(microseconds(50));
  for (std::uint32_t i = 0; i < kNodes; ++i) {
    if (i == 1) continue;
    cluster.crash(i);
    cluster.run(milliseconds(1));
  }
  EXPECT_TRUE(waiter.entered);
}

// H19: as long as the queue moves there is nothing to ask, whoever was removed and however long the queue is.
TEST(Regress, WhoWaitsInAQueueThatMovesAsksNobody) {
  constexpr std::uint32_t kNodes = 7;
  Cluster cluster{kNodes};
  cluster.crash(kNodes - 1);
  cluster.run(milliseconds(20));
  std::array<Visit, kNodes - 1> seen;
  for (std::uint32_t i = 0; i < seen.size(); ++i) {
    Cluster::Node& node = cluster.nodes[i];
    EXPECT_EQ(node.membership->known().removals, 1u);
    cluster.start(i, visit(node.endpoint->worker(), *node.client, kLock, Mode::exclusive,
                           milliseconds(1), seen[i]));
    cluster.run(microseconds(10));
  }
  Cluster::Node& last = cluster.nodes[seen.size() - 1];
  cluster.run(microseconds(4'500));  // several times the patience
  EXPECT_TRUE(seen[3].left && !seen.back().entered);
  EXPECT_GT(last.endpoint->counts().of(Purpose::reset), 1u) << "it looked";
  EXPECT_EQ(last.endpoint->counts().messages, 0u) << "and asked nobody";
  cluster.run(milliseconds(5));
  EXPECT_TRUE(seen.back().left);
  EXPECT_EQ(resets(cluster), 0u);
}

// H19: nor where the queue stands still, if nobody was ever removed and it is not one's own turn.
TEST(Regress, WhoWaitsForLongAsksNobodyIfNobodyFailed) {
  Cluster cluster;
  Visit holder, waiter;
  Cluster::Node& first = cluster.nodes[0];
  Cluster::Node& second = cluster.nodes[1];
  cluster.start(0, visit(first.endpoint->worker(), *first.client, kLock, Mode::shared,
                         milliseconds(100), holder));
  cluster.run(microseconds(50));
  cluster.start(1,
                visit(second.endpoint->worker(), *second.client, kLock, Mode::exclusive, {}, waiter));
  cluster.run(milliseconds(90));
  EXPECT_TRUE(!holder.left && !waiter.entered);
  EXPECT_GT(second.endpoint->counts().of(Purpose::reset), 2u) << "it looked";
  EXPECT_EQ(second.endpoint->counts().messages, 0u) << "and asked nobody";
  cluster.run(milliseconds(20));
  EXPECT_TRUE(waiter.left);
  EXPECT_EQ(resets(cluster), 0u);
}

// H22: a mutex that somebody has while it waits for the network keeps its siblings from answering. Between two events all
// of them wait: for operations, for grants, for one another, for the answers to a reset, for its end, for time to pass.
TEST(Regress, NobodyHasAMutexWhileItWaits) {
  Cluster cluster;
  cluster.engine.set_mishaps({.delay = microseconds(20), .unknown_one_in = 40});
  int done = 0;
  for (std::uint32_t i = 0; i < Cluster::kNodes; ++i) {
    Cluster::Node& node = cluster.nodes[i];
    Worker& worker = node.endpoint->worker();
    cluster.start(
        i, visit_often(worker, *node.client, i == 0 ? Mode::exclusive : Mode::shared, 200, done));
    if (i == 0) continue;
    node.sibling = node.locks->client(0);
    cluster.start(i, visit_often(worker, *node.sibling, Mode::exclusive, 200, done));
  }
  const Time end = cluster.engine.now() + milliseconds(60);
  const auto resets = [&] { return cluster.nodes[1].locks->worker(0).cql().resets().done; };
  for (std::uint64_t steps = 0; cluster.engine.now() < end; ++steps) {
    ASSERT_TRUE(cluster.engine.step());
    for (Cluster::Node& node : cluster.nodes) {
      ASSERT_FALSE(node.locks != nullptr && node.locks->is_locked()) << "after " << steps << " steps";
    }
    if (steps == 500) cluster.crash(0);
    if (steps == 1000) cluster.nodes[1].locks->worker(0).cql().reset_for_nothing(kLock);
  }
  EXPECT_GT(done, 100);
  EXPECT_GT(resets(), 1u) << "nobody waited for a reset";
}

// H8: those who keep coming would hand the lock on to each other for ever, and the claimant would wait for them.
TEST(Regress, AResetEndsAlthoughLocalClientsKeepComing) {
  for (const bool ends : {true, false}) {
    cql::Rules rules;
    rules.no_local_grants_in_reset = ends;
    Cluster cluster{Cluster::kNodes, rules};
    Cluster::Node& node = cluster.nodes[0];
    node.sibling = node.locks->client(0);
    int done = 0;
    for (TimedLockClient* client : {node.client.get(), node.sibling.get()}) {
      cluster.start(0, visit_often(node.endpoint->worker(), *client, Mode::exclusive, 1'000'000, done));
    }
    cluster.run(milliseconds(1));
    cluster.nodes[1].locks->worker(0).cql().reset_for_nothing(kLock);
    cluster.run(milliseconds(10));
    EXPECT_GT(done, 100);
    EXPECT_EQ(resets(cluster), ends ? 1u : 0u);
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
