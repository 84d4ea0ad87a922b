// DecLock's clients on the timed simulator: trying, time-outs, cancelling, tokens.
#include <gtest/gtest.h>

#include <deque>

#include "locks/family.h"
#include "support/lab.h"

namespace declock {
namespace {

// Two compute nodes; client i is on node i % 2.
class Nodes {
 public:
  explicit Nodes(std::uint32_t clients, const std::string& lock = "declock-pf")
      : family(locks::make_family({.lock = lock, .cns = 2, .clients = clients, .workers = 1})) {
    std::vector<Endpoint*> endpoints;
    for (std::uint32_t cn = 0; cn < 2; ++cn)
      endpoints.push_back(&engine.add_endpoint(engine.add_worker()));
    for (std::uint32_t i = 0; i < clients; ++i) {
      std::unique_ptr<LockClient> client = family->client(
          {i % 2, 0, *endpoints[i % 2], std::span<Endpoint* const>{&endpoints[i % 2], 1}});
      clients_.emplace_back(dynamic_cast<TimedLockClient*>(client.release()));
      workers.push_back(&endpoints[i % 2]->worker());
    }
  }
  ~Nodes() { tasks.clear(); }

  TimedLockClient& operator[](std::size_t i) { return *clients_[i]; }
  void start(Task<void> task) {
    tasks.push_back(std::move(task));
    tasks.back().start();
  }
  void run(Duration d) { engine.run_until(engine.now() + d); }
  std::uint64_t operations() const { return engine.counts().of(Purpose::acquire); }

  sim::TimedEngine engine{quiet_nic(), 1, 1};
  std::unique_ptr<locks::LockFamily> family;
  std::vector<std::unique_ptr<TimedLockClient>> clients_;
  std::vector<Worker*> workers;
  std::deque<Task<void>> tasks;
};

struct Outcome {
  bool over = false;
  Errc error = Errc::ok;
  Time at;
};

enum class How { tries, waits_until };

Task<void> attempt(Worker& worker, TimedLockClient& lock, How how, Mode mode, Time deadline,
                   Outcome& outcome) {
  const Result<Hold> hold = how == How::tries ? co_await lock.try_acquire(Lab::kLock, mode)
                                              : co_await lock.acquire_until(Lab::kLock, mode, deadline);
  outcome = {true, hold ? Errc::ok : hold.error(), worker.now()};
  if (!hold) co_return;
  const Result<void> released = co_await lock.release(*hold);
  EXPECT_TRUE(released);
}

TEST(Hier, AWaitEndsAtItsDeadlineAndNotBefore) {
  for (const std::size_t who : {1u, 2u}) {  // on the other node, on the holder's node
    Nodes nodes{4};
    Visit holder;
    Outcome outcome, later;
    nodes.start(
        visit(*nodes.workers[0], nodes[0], Lab::kLock, Mode::exclusive, milliseconds(2), holder));
    nodes.run(microseconds(100));
    const Time deadline = nodes.engine.now() + milliseconds(1);
    nodes.start(
        attempt(*nodes.workers[who], nodes[who], How::waits_until, Mode::exclusive, deadline, outcome));
    nodes.run(microseconds(999));
    EXPECT_FALSE(outcome.over);
    nodes.run(microseconds(10));
    EXPECT_TRUE(outcome.over);
    EXPECT_EQ(outcome.error, Errc::timed_out);
    EXPECT_GE(outcome.at, deadline);
    nodes.run(milliseconds(3));
    EXPECT_TRUE(holder.left);
    // What it left in the queue is gone: the next one gets the lock at once.
    nodes.start(attempt(*nodes.workers[3], nodes[3], How::tries, Mode::exclusive, {}, later));
    nodes.run(microseconds(50));
    EXPECT_TRUE(later.over);
    EXPECT_EQ(later.error, Errc::ok);
  }
}

TEST(Hier, AFreeLockIsHadInLessTimeThanARoundTripTakes) {
  Nodes nodes{2};
  Visit holder;
  Outcome outcome, refused;
  nodes.start(attempt(*nodes.workers[0], nodes[0], How::waits_until, Mode::exclusive,
                      nodes.engine.now() + Duration{100}, outcome));
  nodes.run(microseconds(50));
  EXPECT_TRUE(outcome.over);
  EXPECT_EQ(outcome.error, Errc::ok);
  nodes.start(visit(*nodes.workers[0], nodes[0], Lab::kLock, Mode::exclusive, milliseconds(2), holder));
  nodes.run(microseconds(50));
  nodes.start(attempt(*nodes.workers[1], nodes[1], How::waits_until, Mode::exclusive,
                      nodes.engine.now() + Duration{100}, refused));
  nodes.run(microseconds(20));
  EXPECT_TRUE(refused.over) << "as soon as the memory node has said that it is not free";
  EXPECT_EQ(refused.error, Errc::timed_out);
}

Task<void> cancel_after(Worker& worker, TimedLockClient& lock, Duration d) {
  co_await worker.sleep_for(d);
  lock.cancel();
}

TEST(Hier, AWaitCanBeCancelledOnceAndOnlyWhileItWaits) {
  Nodes nodes{2};
  Visit holder;
  Outcome outcome;
  nodes[1].cancel();
  nodes.start(visit(*nodes.workers[0], nodes[0], Lab::kLock, Mode::exclusive, milliseconds(1), holder));
  nodes.run(microseconds(100));
  nodes.start(attempt(*nodes.workers[1], nodes[1], How::waits_until, Mode::shared,
                      nodes.engine.now() + seconds(1), outcome));
  nodes.start(cancel_after(*nodes.workers[1], nodes[1], microseconds(100)));
  nodes.run(microseconds(99));
  EXPECT_FALSE(outcome.over);
  nodes.run(microseconds(2));
  EXPECT_EQ(outcome.error, Errc::cancelled);
  nodes.start(attempt(*nodes.workers[1], nodes[1], How::waits_until, Mode::shared,
                      nodes.engine.now() + seconds(1), outcome));
  nodes.run(milliseconds(2));
  EXPECT_TRUE(outcome.over);
  EXPECT_EQ(outcome.error, Errc::ok) << "it took over what it had left in the queue";
  nodes[1].cancel();
}

TEST(Hier, TryingCostsNothingWhereTheNodeKnowsAndOneReadWhereItDoesNot) {
  Nodes nodes{4};
  Visit holder;
  Outcome here, there;
  nodes.start(visit(*nodes.workers[0], nodes[0], Lab::kLock, Mode::exclusive, milliseconds(1), holder));
  nodes.run(microseconds(100));
  const std::uint64_t before = nodes.operations();
  nodes.start(attempt(*nodes.workers[2], nodes[2], How::tries, Mode::shared, {}, here));
  EXPECT_TRUE(here.over);
  EXPECT_EQ(here.error, Errc::busy);
  EXPECT_EQ(nodes.operations(), before);
  nodes.start(attempt(*nodes.workers[1], nodes[1], How::tries, Mode::shared, {}, there));
  nodes.run(microseconds(50));
  EXPECT_EQ(there.error, Errc::busy);
  EXPECT_EQ(nodes.operations(), before + 1);
}

Task<void> take_token(Worker& worker, TimedLockClient& lock, std::vector<Token>& tokens) {
  const Result<Hold> hold = co_await lock.acquire(Lab::kLock, Mode::exclusive);
  const Result<Token> token = co_await lock.token(*hold);
  EXPECT_TRUE(token);
  tokens.push_back(*token);
  co_await worker.sleep_for(microseconds(50));
  const Result<void> released = co_await lock.release(*hold);
  EXPECT_TRUE(released);
}

TEST(Hier, TokensGrowFromHolderToHolderInsideANodeAndBetweenNodes) {
  Nodes nodes{8};
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < 8; ++i) {
    nodes.start(take_token(*nodes.workers[i], nodes[i], tokens));
    nodes.run(microseconds(20));
  }
  nodes.run(milliseconds(2));
  ASSERT_EQ(tokens.size(), 8u);
  bool handed_over_locally = false;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    EXPECT_LT(tokens[i - 1], tokens[i]);
    handed_over_locally = handed_over_locally || tokens[i - 1].ticket == tokens[i].ticket;
  }
  EXPECT_TRUE(handed_over_locally);
}

Task<void> read_again_and_again(Worker& worker, LockClient& lock, Duration first) {
  co_await worker.sleep_for(first);
  for (;;) {  // until the test ends
    const Result<Hold> hold = co_await lock.acquire(Lab::kLock, Mode::shared);
    EXPECT_TRUE(hold);
    if (!hold) co_return;
    co_await worker.sleep_for(milliseconds(50));
    const Result<void> released = co_await lock.release(*hold);
    EXPECT_TRUE(released);
  }
}

// Sections longer than the range of a timestamp, and a reader every few milliseconds: the writer waits for those who
// held the lock or were in time when it became known, and for nobody else. (Preferring local clients starves by definition.)
TEST(Hier, AStreamOfLongReadersDoesNotStarveAWriterElsewhere) {  // H26
  for (const char* lock : {"declock-tf", "declock-pf", "declock-slack", "declock-remote-prefer"}) {
    constexpr std::uint32_t kClients = 24;
    Nodes nodes{kClients, lock};
    for (std::uint32_t i = 0; i < kClients; i += 2)
      nodes.start(read_again_and_again(*nodes.workers[i], nodes[i], microseconds(2'150 * i)));
    nodes.run(milliseconds(200));
    Visit writer;
    nodes.start(visit(*nodes.workers[1], nodes[1], Lab::kLock, Mode::exclusive, {}, writer));
    nodes.run(milliseconds(60));
    EXPECT_TRUE(writer.entered) << lock;
  }
}

}  // namespace
}  // namespace declock
