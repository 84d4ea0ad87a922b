// What every fabric must do (F1 to F6 in fabric/fabric.h), on all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "conformance/stage.h"
#include "hier/hier.h"
#include "support/soon.h"

namespace declock::conformance {
namespace {

constexpr RemoteAddr at(std::uint64_t word) {
  return {MnId{0}, 8 * word};
}

class Conformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = why_not(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  std::unique_ptr<Stage> stage(std::uint32_t nodes) const { return make_stage(GetParam(), nodes); }
};

Task<void> add_many(Endpoint& endpoint, std::uint64_t times, std::vector<std::uint64_t>& olds,
                    bool& masked) {
  masked = endpoint.has_masked_compare_swap();
  for (std::uint64_t i = 0; i < times; ++i) {
    Op add = Op::fetch_add(at(0), 1, Purpose::data);
    CHECK(co_await endpoint.post(add));
    olds.push_back(add.old);
    std::uint64_t expected = 0;
    for (;;) {  // ends: somebody's swap succeeds each time
      Op swap = Op::compare_swap(at(1), expected, expected + 1, Purpose::data);
      CHECK(co_await endpoint.post(swap));
      if (swap.old == expected) break;
      expected = swap.old;
    }
    if (!endpoint.has_masked_compare_swap()) continue;
    // Each adds to a counter in the upper or lower half of one word, the other half being somebody else's.
    const unsigned shift = endpoint.id().value % 2 * 32;
    const std::uint64_t half = std::uint64_t{0xFFFF'FFFF} << shift;
    std::uint64_t seen = 0;
    for (;;) {
      Op swap = Op::masked_compare_swap(at(2), seen, half, ((seen >> shift) + 1) << shift, half,
                                        Purpose::data);
      CHECK(co_await endpoint.post(swap));
      if (((swap.old ^ seen) & half) == 0) break;
      seen = swap.old;
    }
  }
}

TEST_P(Conformance, AtomicsUnderContentionAddUp) {
  constexpr std::uint64_t kTimes = 500;
  auto fabric = stage(4);
  std::vector<std::vector<std::uint64_t>> olds(4);
  bool masked[4] = {};
  std::vector<Script> scripts;
  for (std::size_t i = 0; i < olds.size(); ++i) {
    scripts.push_back(
        [&, i](Endpoint& e, member::Membership&) { return add_many(e, kTimes, olds[i], masked[i]); });
  }
  fabric->run(scripts);
  EXPECT_EQ(fabric->look(0), 4 * kTimes);
  EXPECT_EQ(fabric->look(8), 4 * kTimes);
  EXPECT_EQ(fabric->look(16), masked[0] ? 2 * kTimes << 32 | 2 * kTimes : 0);
  std::set<std::uint64_t> all;
  for (const auto& mine : olds) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(mine.begin(), mine.end());
  }
  EXPECT_EQ(all.size(), 4 * kTimes) << "each fetch-and-add found another value";
}

// F1, writes: word 0, then word 1; whoever sees word 1 sees word 0.
Task<void> write_in_order(Endpoint& endpoint, std::uint64_t rounds) {
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    Op first = Op::write(at(0), {&i, 1}, Purpose::data);
    Op second = Op::write(at(100), {&i, 1}, Purpose::data);
    if (i % 2 == 0) {
      CHECK(co_await endpoint.post(first, second));
    } else {
      CHECK(co_await endpoint.post(first));
      CHECK(co_await endpoint.post(second));
    }
  }
}
Task<void> read_against_order(Endpoint& endpoint, std::uint64_t rounds, bool& ordered) {
  for (std::uint64_t last = 0; last < rounds;) {
    std::uint64_t early = 0;
    std::uint64_t late = 0;
    Op second = Op::read(at(100), {&late, 1}, Purpose::data);
    Op first = Op::read(at(0), {&early, 1}, Purpose::data);
    CHECK(co_await endpoint.post(second, first));
    ordered = ordered && early >= late && late >= last;
    last = late;
  }
}

TEST_P(Conformance, OperationsOfAnEndpointTakeEffectInTheirOrder) {
  bool ordered = true;
  stage(2)->run(
      {[](Endpoint& e, member::Membership&) { return write_in_order(e, 2000); },
       [&](Endpoint& e, member::Membership&) { return read_against_order(e, 2000, ordered); }});
  EXPECT_TRUE(ordered);
}

// F1, a READ behind a WRITE: of two who write their word and then read the other's, one at least sees it.
Task<void> write_then_read(Endpoint& endpoint, std::uint64_t mine, std::uint64_t rounds,
                           std::vector<std::uint64_t>& seen) {
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    const std::uint64_t place = 200 + 16 * i;
    const std::uint64_t one = 1;
    std::uint64_t other = 0;
    Op write = Op::write(at(place + 8 * mine), {&one, 1}, Purpose::data);
    Op read = Op::read(at(place + 8 * (1 - mine)), {&other, 1}, Purpose::data);
    CHECK(co_await endpoint.post(write, read));
    seen.push_back(other);
  }
}

TEST_P(Conformance, AReadDoesNotOvertakeAWrite) {
  std::vector<std::uint64_t> seen[2];
  stage(2)->run(
      {[&](Endpoint& e, member::Membership&) { return write_then_read(e, 0, 400, seen[0]); },
       [&](Endpoint& e, member::Membership&) { return write_then_read(e, 1, 400, seen[1]); }});
  for (std::size_t i = 0; i < seen[0].size(); ++i) EXPECT_TRUE(seen[0][i] == 1 || seen[1][i] == 1) << i;
}

// F3: values whose halves agree, and that never go back; a word in which they differ was torn.
Task<void> write_words(Endpoint& endpoint, std::uint64_t rounds) {
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    const std::array<std::uint64_t, 4> words{i << 32 | i, i << 32 | i, i << 32 | i, i << 32 | i};
    Op write = Op::write(at(8), words, Purpose::data);
    CHECK(co_await endpoint.post(write));
  }
}
Task<void> read_words(Endpoint& endpoint, std::uint64_t rounds, bool& whole) {
  std::array<std::uint64_t, 4> last{};
  while (last[3] != (rounds << 32 | rounds)) {
    std::array<std::uint64_t, 4> words{};
    Op read = Op::read(at(8), words, Purpose::data);
    CHECK(co_await endpoint.post(read));
    for (std::size_t i = 0; i < words.size(); ++i) {
      whole = whole && words[i] >> 32 == (words[i] & 0xFFFF'FFFF) && words[i] >= last[i];
    }
    last = words;
  }
}

TEST_P(Conformance, AReadMayTearBetweenWordsButNotInsideOne) {
  bool whole = true;
  stage(2)->run({[](Endpoint& e, member::Membership&) { return write_words(e, 2000); },
                 [&](Endpoint& e, member::Membership&) { return read_words(e, 2000, whole); }});
  EXPECT_TRUE(whole);
}

// Counts what it gets, per sender, and whether it came in order.
class Listener final : public Receiver {
 public:
  explicit Listener(Endpoint& endpoint) : endpoint_(endpoint) { endpoint.set_receiver(this); }
  ~Listener() override { endpoint_.set_receiver(nullptr); }
  void on_message(EndpointId from, const Message& message) override {
    ordered_ = ordered_ && message.words[0] == ++last_[from.value % last_.size()] &&
               message.words[1] == ~message.words[0] && message.words[2] == from.value;
    count_ += 1;
    heard_[from.value % heard_.size()] += 1;
  }
  bool ordered() const { return ordered_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t count(EndpointId from) const { return heard_[from.value % heard_.size()]; }

 private:
  Endpoint& endpoint_;
  std::array<std::uint64_t, 8> last_{};
  std::array<std::uint64_t, 8> heard_{};
  bool ordered_ = true;
  std::uint64_t count_ = 0;
};

// One node says how far it is, for another to wait for.
Task<void> say(Endpoint& endpoint) {
  Op one_more = Op::fetch_add(at(50), 1, Purpose::data);
  CHECK(co_await endpoint.post(one_more));
}
Task<void> until_said(Endpoint& endpoint, std::uint64_t times) {
  std::uint64_t word = 0;
  while (word < times) {
    Op look = Op::read(at(50), {&word, 1}, Purpose::data);
    CHECK(co_await endpoint.post(look));
    co_await endpoint.worker().sleep_for(microseconds(20));
  }
}

Task<void> send_many(Endpoint& endpoint, EndpointId to, std::uint64_t count) {
  co_await until_said(endpoint, 1);  // until somebody listens; before, messages fall on deaf ears
  for (std::uint64_t i = 1; i <= count; ++i) {
    endpoint.send(to, {{i, ~i, endpoint.id().value}});
    if (i % 100 == 0) co_await endpoint.worker().sleep_for(microseconds(50));
  }
  co_await until_said(endpoint, 2);  // what did not fit is sent while the worker runs
}
Task<void> listen(Endpoint& endpoint, std::uint64_t count, bool& ordered) {
  Listener listener{endpoint};
  co_await say(endpoint);
  while (listener.count() < count) co_await endpoint.worker().sleep_for(microseconds(100));
  ordered = listener.ordered() && listener.count() == count;
  co_await say(endpoint);
}

TEST_P(Conformance, MessagesArriveOnceAndInTheOrderOfTheirSender) {
  bool ordered = false;
  const auto sender = [](Endpoint& e, member::Membership&) {
    return send_many(e, EndpointId{0}, 1000);
  };
  stage(4)->run({[&](Endpoint& e, member::Membership&) { return listen(e, 3000, ordered); }, sender,
                 sender, sender});
  EXPECT_TRUE(ordered);
}

Task<void> sleep_and_look(Endpoint& endpoint,
                          std::vector<std::pair<std::int64_t, std::int64_t>>& slept) {
  Worker& worker = endpoint.worker();
  for (const std::int64_t us : {1, 30, 100, 3000, 200}) {
    const Time before = worker.now();
    co_await worker.sleep_for(microseconds(us));
    slept.emplace_back(us * 1000, (worker.now() - before).ns);
  }
}

TEST_P(Conformance, ATimerDoesNotFireEarlyNorNever) {
  std::vector<std::pair<std::int64_t, std::int64_t>> slept;
  stage(1)->run({[&](Endpoint& e, member::Membership&) { return sleep_and_look(e, slept); }});
  ASSERT_EQ(slept.size(), 5u);
  for (const auto& [asked_ns, took_ns] : slept) {
    EXPECT_GE(took_ns, asked_ns);
    EXPECT_LT(took_ns, kHangs.ns);
  }
}

Task<void> one_of_each(Endpoint& endpoint, OpCounts& counts) {
  std::uint64_t word = 0;
  Op read = Op::read(at(0), {&word, 1}, Purpose::verify);
  Op write = Op::write(at(0), {&word, 1}, Purpose::data);
  Op add = Op::fetch_add(at(0), 1, Purpose::acquire);
  CHECK(co_await endpoint.post(write, add, read));
  endpoint.send(endpoint.id(), {});
  counts = endpoint.counts();
}

TEST_P(Conformance, EveryOperationIsCountedByKindAndPurpose) {
  OpCounts counts;
  stage(1)->run({[&](Endpoint& e, member::Membership&) { return one_of_each(e, counts); }});
  EXPECT_EQ(counts.of(OpKind::read, Purpose::verify), 1u);
  EXPECT_EQ(counts.of(OpKind::write, Purpose::data), 1u);
  EXPECT_EQ(counts.of(OpKind::fetch_add, Purpose::acquire), 1u);
  EXPECT_EQ(counts.of(Purpose::release), 0u);
  EXPECT_EQ(counts.messages, 1u);
}

// A node that adds to a counter, and sends, for ever.
Task<void> work_for_ever(Endpoint& endpoint, EndpointId peer) {
  for (std::uint64_t i = 0;; ++i) {
    Op add = Op::fetch_add(at(0), 1, Purpose::data);
    if (!co_await endpoint.post(add)) co_return;
    endpoint.send(peer, {{i, 0, 0}});
    co_await endpoint.worker().yield();
  }
}

// Until a member was removed; then a while longer.
Task<void> outlive(Endpoint& endpoint, member::Membership& membership, std::uint64_t& at_removal,
                   std::uint64_t& later, std::uint64_t& removals, bool& answered) {
  Worker& worker = endpoint.worker();
  while (membership.known().removals == 0) {
    CHECK(co_await membership.refresh(worker));
    co_await worker.sleep_for(microseconds(100));
  }
  removals = membership.known().removals;
  std::uint64_t word = 0;
  Op look = Op::read(at(0), {&word, 1}, Purpose::verify);
  CHECK(co_await endpoint.post(look));
  at_removal = word;
  // Messages to the dead hold up nobody: not this node, and not its messages to others.
  for (std::uint64_t i = 0; i < 300; ++i) endpoint.send(EndpointId{1}, {{i, 0, 0}});
  Listener echo{endpoint};
  endpoint.send(endpoint.id(), {{1, ~std::uint64_t{1}, endpoint.id().value}});
  const Time latest = worker.now() + kHangs;
  while (echo.count(endpoint.id()) == 0 && worker.now() < latest)
    co_await worker.sleep_for(microseconds(100));
  answered = echo.count(endpoint.id()) == 1;
  co_await worker.sleep_for(milliseconds(20));
  CHECK(co_await endpoint.post(look));
  later = word;
}

TEST_P(Conformance, AMemberThatDiedIsRemovedAndCanDoNothingAfterThat) {
  auto fabric = stage(2);
  fabric->set_victim({1, [&] { return fabric->look(0) > 100; }});
  std::uint64_t at_removal = 0;
  std::uint64_t later = 1;
  std::uint64_t removals = 0;
  bool answered = false;
  fabric->run({[&](Endpoint& e, member::Membership& m) {
                 return outlive(e, m, at_removal, later, removals, answered);
               },
               [](Endpoint& e, member::Membership&) { return work_for_ever(e, EndpointId{0}); }});
  EXPECT_GT(at_removal, 100u);
  EXPECT_EQ(at_removal, later);
  EXPECT_EQ(removals, 1u);
  EXPECT_TRUE(answered);
}

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

const std::string kFabrics[] = {"sim", "shm", "tcp", "verbs"};
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
INSTANTIATE_TEST_SUITE_P(Fabrics, Conformance, testing::ValuesIn(kFabrics),
                         [](const auto& fabric) { return fabric.param; });

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
