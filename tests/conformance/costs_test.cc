// What locks cost, and that deadlines are kept, on every fabric.
#include "conformance/suite.h"
#include "hier/hier.h"

namespace declock::conformance {
namespace {

// ---------------------------------------------------------------- what locks cost

constexpr RemoteAddr kLock = {MnId{0}, 64};

// A DecLock client of its own node.
struct Party {
  Party(Endpoint& endpoint, member::Membership& membership, std::uint32_t nodes)
      : shape{nodes, nodes, QueueLayout::owner},
        node{shape, hier::Policy{}, cql::Options{},
             std::vector<hier::Station>{{&endpoint, &membership}}},
        client{node.client(0)} {}
  LockShape shape;
  hier::Node node;
  std::unique_ptr<TimedLockClient> client;
};

// Until so many are in the lock's queue, the holder included, and whoever waits has written its entry. They come in the
// order of their slots. Its looks are counted as verify.
Task<void> until_queue_has(Endpoint& endpoint, const LockShape& shape, std::uint32_t count) {
  std::vector<std::uint64_t> queue(shape.queue_words());
  Op look = Op::read(kLock, queue, Purpose::verify);
  do {
    co_await endpoint.worker().sleep_for(microseconds(20));
    CHECK(co_await endpoint.post(look));
  } while (shape.header.decode(queue[0]).qsize < count || (count > 1 && queue[count] == 0));
}

// Comes when `ahead` are in the queue, stays until `behind` are, and counts what that cost.
Task<void> visit_in_turn(Endpoint& endpoint, member::Membership& membership, std::uint32_t nodes,
                         Mode mode, std::uint32_t ahead, std::uint32_t until, OpCounts& cost) {
  Party party{endpoint, membership, nodes};
  if (ahead > 0) co_await until_queue_has(endpoint, party.shape, ahead);
  const Result<Hold> hold = co_await party.client->acquire(kLock, mode);
  CHECK(hold);
  if (until > 0) co_await until_queue_has(endpoint, party.shape, until);
  CHECK(co_await party.client->release(*hold));
  cost = endpoint.counts();
}

struct Sequence {
  std::string name;
  std::vector<Mode> modes;
  // Of acquire, release and refetch, and messages: expected of each node.
  struct Cost {
    std::uint64_t acquire, release, refetch, messages;
    bool operator==(const Cost&) const = default;
  };
  std::vector<Cost> costs;
};
void PrintTo(const Sequence& sequence, std::ostream* out) {
  *out << sequence.name;
}

class LockCosts : public testing::TestWithParam<std::tuple<std::string, Sequence>> {
 protected:
  void SetUp() override {
    if (const std::string why = why_not(std::get<0>(GetParam())); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(LockCosts, AreTheSameOnEveryFabric) {
  const auto& [fabric, sequence] = GetParam();
  const auto nodes = static_cast<std::uint32_t>(sequence.modes.size());
  std::vector<OpCounts> costs(nodes);
  std::vector<Script> scripts;
  for (std::uint32_t i = 0; i < nodes; ++i) {
    scripts.push_back([&, i](Endpoint& e, member::Membership& m) {
      // The first waits for all the others, who come one behind the other.
      return visit_in_turn(e, m, nodes, sequence.modes[i], i, i == 0 && nodes > 1 ? nodes : 0,
                           costs[i]);
    });
  }
  make_stage(fabric, nodes)->run(scripts);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    const Sequence::Cost cost{costs[i].of(Purpose::acquire), costs[i].of(Purpose::release),
                              costs[i].of(Purpose::refetch), costs[i].messages};
    EXPECT_EQ(cost, sequence.costs[i]) << "node " << i << ": " << cost.acquire << " " << cost.release
                                       << " " << cost.refetch << " " << cost.messages;
    EXPECT_EQ(costs[i].of(Purpose::reset), 0u);
  }
}

const Sequence kSequences[] = {
    {"Uncontended", {Mode::exclusive}, {{1, 1, 0, 0}}},
    // The holder's FAA finds a queue, and its READ follows; the waiter, once granted, reads along.
    {"OneWaiterBehindAWriter", {Mode::exclusive, Mode::exclusive}, {{1, 2, 0, 1}, {2, 2, 0, 0}}},
    {"ReadersBehindAWriter",
     {Mode::exclusive, Mode::shared, Mode::shared},
     {{1, 2, 0, 2}, {2, 2, 0, 0}, {2, 2, 0, 0}}},
};

std::string name_of(const testing::TestParamInfo<LockCosts::ParamType>& info) {
  return std::get<0>(info.param) + std::get<1>(info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, LockCosts,
                         testing::Combine(testing::ValuesIn(kFabrics), testing::ValuesIn(kSequences)),
                         name_of);

// ---------------------------------------------------------------- deadlines

Task<void> hold_until_said(Endpoint& endpoint, member::Membership& membership) {
  Party party{endpoint, membership, 2};
  const Result<Hold> hold = co_await party.client->acquire(kLock, Mode::exclusive);
  CHECK(hold);
  co_await until_said(endpoint, 1);
  CHECK(co_await party.client->release(*hold));
}

struct Tried {
  Errc at_once = Errc::ok;
  Errc in_time = Errc::ok;
  std::int64_t waited_ns = 0;
  bool later = false;
};

Task<void> try_for(Endpoint& endpoint, member::Membership& membership, Tried& tried) {
  Party party{endpoint, membership, 2};
  Worker& worker = endpoint.worker();
  co_await until_queue_has(endpoint, party.shape, 1);
  const Result<Hold> now = co_await party.client->try_acquire(kLock, Mode::shared);
  tried.at_once = now ? Errc::ok : now.error();
  const Time before = worker.now();
  const Result<Hold> soon =
      co_await party.client->acquire_until(kLock, Mode::exclusive, before + milliseconds(5));
  tried.in_time = soon ? Errc::ok : soon.error();
  tried.waited_ns = (worker.now() - before).ns;
  co_await say(endpoint);
  const Result<Hold> later =
      co_await party.client->acquire_until(kLock, Mode::exclusive, before + kHangs);
  tried.later = static_cast<bool>(later);
  if (later) CHECK(co_await party.client->release(*later));
}

TEST_P(Conformance, ADeadlineIsKeptAndALaterAttemptSucceeds) {
  Tried tried;
  stage(2)->run({[](Endpoint& e, member::Membership& m) { return hold_until_said(e, m); },
                 [&](Endpoint& e, member::Membership& m) { return try_for(e, m, tried); }});
  EXPECT_EQ(tried.at_once, Errc::busy);
  EXPECT_EQ(tried.in_time, Errc::timed_out);
  EXPECT_GE(tried.waited_ns, 5'000'000);
  EXPECT_TRUE(tried.later);
}

}  // namespace
}  // namespace declock::conformance
