// What every fabric must do (F1 to F6 in fabric/fabric.h), on all of them. Where two race, each goes on until it has seen
// the other at work: no test passes because one was done before the other began.
#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "conformance/suite.h"

namespace declock::conformance {
namespace {

INSTANTIATE_TEST_SUITE_P(Fabrics, Conformance, testing::ValuesIn(kFabrics),
                         [](const auto& fabric) { return fabric.param; });

// ---------------------------------------------------------------- atomics

struct Adder {
  std::vector<std::uint64_t> olds;
  std::uint64_t interrupted = 0;  // how often somebody else came between two of its own
  bool masked = false;
};
constexpr std::uint64_t kInterruptions = 20;

Task<void> add_many(Endpoint& endpoint, std::uint64_t nodes, std::uint64_t at_least, Adder& mine) {
  mine.masked = endpoint.has_masked_compare_swap();
  Race race{endpoint, nodes};
  co_await race.begin();
  do {
    for (int i = 0; i < 50; ++i) {
      Op add = Op::fetch_add(at(0), 1, Purpose::data);
      CHECK(co_await endpoint.post(add));
      if (!mine.olds.empty() && add.old != mine.olds.back() + 1) mine.interrupted += 1;
      mine.olds.push_back(add.old);
      std::uint64_t expected = 0;
      for (;;) {  // ends: somebody's swap succeeds each time
        Op swap = Op::compare_swap(at(1), expected, expected + 1, Purpose::data);
        CHECK(co_await endpoint.post(swap));
        if (swap.old == expected) break;
        expected = swap.old;
      }
      if (!mine.masked) continue;
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
  } while (
      !co_await race.over(mine.olds.size() >= at_least && mine.interrupted >= kInterruptions).begun());
}

TEST_P(Conformance, AtomicsUnderContentionAddUp) {
  auto fabric = stage(4);
  std::vector<Adder> adders(4);
  std::vector<Script> scripts;
  for (Adder& adder : adders) {
    scripts.push_back([&](Endpoint& e, member::Membership&) { return add_many(e, 4, 500, adder); });
  }
  fabric->run(scripts);
  std::set<std::uint64_t> all;
  std::uint64_t sum = 0;
  std::uint64_t halves = 0;
  for (std::size_t i = 0; i < adders.size(); ++i) {
    const std::vector<std::uint64_t>& olds = adders[i].olds;
    EXPECT_GE(adders[i].interrupted, kInterruptions) << "node " << i << " worked alone";
    EXPECT_TRUE(std::is_sorted(olds.begin(), olds.end()));
    all.insert(olds.begin(), olds.end());
    sum += olds.size();
    if (adders[i].masked) halves += olds.size() << (i % 2 * 32);
  }
  EXPECT_EQ(all.size(), sum) << "each fetch-and-add found another value";
  EXPECT_EQ(fabric->look(0), sum);
  EXPECT_EQ(fabric->look(8), sum);
  EXPECT_EQ(fabric->look(16), halves);
}

// ---------------------------------------------------------------- order (F1) and words (F3)

// One writes until the other has seen it change this often.
constexpr std::uint64_t kChanges = 100;

// Word 0, then word 100; whoever sees word 100 sees word 0. In one chain, and in two that are under way at once.
Task<void> write_in_order(Endpoint& endpoint) {
  Race race{endpoint, 2};
  co_await race.begin();
  for (std::uint64_t i = 1;; ++i) {
    Op first = Op::write(at(0), {&i, 1}, Purpose::data);
    Op second = Op::write(at(100), {&i, 1}, Purpose::data);
    if (i % 2 == 0) {
      CHECK(co_await endpoint.post(first, second));
    } else {
      Doorbell one = endpoint.post(first);
      Doorbell two = endpoint.post(second);
      CHECK(co_await one);
      CHECK(co_await two);
    }
    if (i % 16 == 0 && co_await race.over(true).begun()) co_return;
  }
}
Task<void> read_against_order(Endpoint& endpoint, bool& ordered, std::uint64_t& changes) {
  Race race{endpoint, 2};
  co_await race.begin();
  std::uint64_t last = 0;
  do {
    std::uint64_t early = 0;
    std::uint64_t late = 0;
    Op second = Op::read(at(100), {&late, 1}, Purpose::data);
    Op first = Op::read(at(0), {&early, 1}, Purpose::data);
    CHECK(co_await endpoint.post(second, first));
    ordered = ordered && early >= late && late >= last;
    if (late != last) changes += 1;
    last = late;
  } while (!co_await race.over(changes >= kChanges).begun());
}

TEST_P(Conformance, OperationsOfAnEndpointTakeEffectInTheirOrder) {
  bool ordered = true;
  std::uint64_t changes = 0;
  stage(2)->run(
      {[](Endpoint& e, member::Membership&) { return write_in_order(e); },
       [&](Endpoint& e, member::Membership&) { return read_against_order(e, ordered, changes); }});
  EXPECT_TRUE(ordered);
  EXPECT_GE(changes, kChanges) << "they did not overlap";
}

// A READ behind a WRITE: of two who write their word and then read the other's, one at least sees it. Both begin each
// round together, and go on until both saw the other's in the same round a few times: those rounds overlapped.
constexpr std::uint64_t kOverlapsWanted = 3;
struct Dekker {
  std::uint64_t rounds = 0;
  std::uint64_t overlaps = 0;
  bool nobody_saw = false;  // in some round
};
Task<void> write_then_read(Endpoint& endpoint, std::uint64_t mine, Dekker& seen) {
  const Time begun = endpoint.worker().now();
  // Who saw the other's adds to one of two words in turn: when a round adds to a word, both have read what the last but one
  // left there. Both end in the same round, and the first says in which.
  std::array<std::uint64_t, 2> sums{};
  constexpr std::uint64_t kLastRound = 4;
  for (bool last = false; !last && !seen.nobody_saw;) {
    const std::uint64_t i = ++seen.rounds;
    std::uint64_t other = 0;
    Op write = Op::write(at(100 + 8 * mine), {&i, 1}, Purpose::data);
    Op read = Op::read(at(100 + 8 * (1 - mine)), {&other, 1}, Purpose::data);
    co_await meet(endpoint, 2, 2 * i - 1).begun();
    if (i % 2 == 0) {
      CHECK(co_await endpoint.post(write, read));
    } else {  // from one chain to the next, without waiting for the first
      Doorbell one = endpoint.post(write);
      Doorbell two = endpoint.post(read);
      CHECK(co_await one);
      CHECK(co_await two);
    }
    CHECK(other == i || other == i - 1);
    const Duration took = endpoint.worker().now() - begun;
    const bool enough = took > kRaces && seen.overlaps >= kOverlapsWanted;
    const bool ends = mine == 0 && (enough || took > kHangs);
    Op tell =
        Op::fetch_add(at(120 + i % 2), (other == i ? 1 : 0) + (ends ? kLastRound : 0), Purpose::data);
    CHECK(co_await endpoint.post(tell));
    co_await meet(endpoint, 2, 2 * i).begun();
    const std::uint64_t sum = co_await word_at(endpoint, 120 + i % 2).begun();
    const std::uint64_t told = sum - std::exchange(sums[i % 2], sum);
    last = told >= kLastRound;
    seen.nobody_saw = told % kLastRound == 0;
    seen.overlaps += told % kLastRound == 2 ? 1 : 0;
  }
}

TEST_P(Conformance, AReadDoesNotOvertakeAWrite) {
  Dekker seen[2];
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "two cannot race on one processor";
  stage(2)->run({[&](Endpoint& e, member::Membership&) { return write_then_read(e, 0, seen[0]); },
                 [&](Endpoint& e, member::Membership&) { return write_then_read(e, 1, seen[1]); }});
  EXPECT_FALSE(seen[0].nobody_saw) << "in round " << seen[0].rounds;
  const bool have_raced = seen[0].nobody_saw || seen[0].overlaps >= kOverlapsWanted;
  double load = 0;
  if (!have_raced && getloadavg(&load, 1) == 1 && load > 2.0 * std::thread::hardware_concurrency())
    GTEST_SKIP() << "others keep the processors busy (load " << load << "): the two did not race";
  EXPECT_TRUE(have_raced) << "they did not overlap in " << seen[0].rounds << " rounds";
}

// A READ behind a fetch-and-add sees what that made of the word, or what others made of it since.
struct AddThenRead {
  bool sees_its_own = true;
  std::uint64_t chains = 0;
  std::uint64_t interrupted = 0;
};
Task<void> add_then_read(Endpoint& endpoint, AddThenRead& mine) {
  Race race{endpoint, 2};
  co_await race.begin();
  std::uint64_t last = 0;
  do {
    std::uint64_t seen = 0;
    Op add = Op::fetch_add(at(0), 1, Purpose::data);
    Op read = Op::read(at(0), {&seen, 1}, Purpose::data);
    if (mine.chains % 2 == 0) {
      CHECK(co_await endpoint.post(add, read));
    } else {  // from one chain to the next, without waiting for the first
      Doorbell one = endpoint.post(add);
      Doorbell two = endpoint.post(read);
      CHECK(co_await one);
      CHECK(co_await two);
    }
    mine.sees_its_own = mine.sees_its_own && seen >= add.old + 1 && add.old >= last;
    if (add.old > last) mine.interrupted += 1;
    last = seen;
    mine.chains += 1;
  } while (!co_await race.over(mine.chains >= 200 && mine.interrupted >= kInterruptions).begun());
}

TEST_P(Conformance, AReadBehindAFetchAndAddSeesItsResult) {
  auto fabric = stage(2);
  AddThenRead seen[2];
  fabric->run({[&](Endpoint& e, member::Membership&) { return add_then_read(e, seen[0]); },
               [&](Endpoint& e, member::Membership&) { return add_then_read(e, seen[1]); }});
  for (const AddThenRead& mine : seen) {
    EXPECT_TRUE(mine.sees_its_own);
    EXPECT_GE(mine.interrupted, kInterruptions) << "they did not overlap";
  }
  EXPECT_EQ(fabric->look(0), seen[0].chains + seen[1].chains);
}

// F3: values whose halves agree, and that never go back; a word in which they differ was torn.
Task<void> write_words(Endpoint& endpoint) {
  Race race{endpoint, 2};
  co_await race.begin();
  for (std::uint64_t i = 1;; ++i) {
    const std::array<std::uint64_t, 4> words{i << 32 | i, i << 32 | i, i << 32 | i, i << 32 | i};
    Op write = Op::write(at(8), words, Purpose::data);
    CHECK(co_await endpoint.post(write));
    if (i % 16 == 0 && co_await race.over(true).begun()) co_return;
  }
}
Task<void> read_words(Endpoint& endpoint, bool& whole, std::uint64_t& changes) {
  Race race{endpoint, 2};
  co_await race.begin();
  std::array<std::uint64_t, 4> last{};
  do {
    std::array<std::uint64_t, 4> words{};
    Op read = Op::read(at(8), words, Purpose::data);
    CHECK(co_await endpoint.post(read));
    for (std::size_t i = 0; i < words.size(); ++i) {
      whole = whole && words[i] >> 32 == (words[i] & 0xFFFF'FFFF) && words[i] >= last[i];
    }
    if (words != last) changes += 1;
    last = words;
  } while (!co_await race.over(changes >= kChanges).begun());
}

TEST_P(Conformance, AReadMayTearBetweenWordsButNotInsideOne) {
  bool whole = true;
  std::uint64_t changes = 0;
  stage(2)->run({[](Endpoint& e, member::Membership&) { return write_words(e); },
                 [&](Endpoint& e, member::Membership&) { return read_words(e, whole, changes); }});
  EXPECT_TRUE(whole);
  EXPECT_GE(changes, kChanges) << "they did not overlap";
}

// ---------------------------------------------------------------- messages (F4)

// Three send, and none is ahead of another by more than one of their parts.
constexpr std::uint64_t kParts = 10;
constexpr std::uint64_t kPart = 100;
Task<void> send_many(Endpoint& endpoint, EndpointId to) {
  co_await until_said(endpoint, 1);  // until somebody listens; before, messages fall on deaf ears
  for (std::uint64_t part = 0; part < kParts; ++part) {
    co_await meet(endpoint, 3, part + 1).begun();
    for (std::uint64_t i = 1; i <= kPart; ++i) send_number(endpoint, to, part * kPart + i);
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
  const auto sender = [](Endpoint& e, member::Membership&) { return send_many(e, EndpointId{0}); };
  stage(4)->run(
      {[&](Endpoint& e, member::Membership&) { return listen(e, 3 * kParts * kPart, ordered); }, sender,
       sender, sender});
  EXPECT_TRUE(ordered);
}

// Long ones among short ones. In shared memory these alone are more than a mailbox holds.
constexpr std::size_t kLengths[] = {0, 128, 3, 127, 1, 7, 6, 13, 3, 12, 128, 3};
static_assert(std::ranges::max(kLengths) == MessageWords::kMax);
constexpr std::uint64_t kRounds = 20;
// The `i`-th of somebody.
Message of_any_length(EndpointId from, std::uint64_t i) {
  Message message;
  for (std::uint64_t word = 0; word < kLengths[i % std::size(kLengths)]; ++word)
    message.words.push_back(std::uint64_t{from.value} << 48 | i << 16 | word);
  return message;
}
class Comparer final : public Receiver {
 public:
  void on_message(EndpointId from, const Message& message) override {
    const Message expected = of_any_length(from, next_[from.value]++);
    if (!std::ranges::equal(message.words, expected.words)) wrong += 1;
    count += 1;
  }
  std::uint64_t count = 0;
  std::uint64_t wrong = 0;

 private:
  std::array<std::uint64_t, 4> next_{};
};
// Without a pause, so that whoever sends to itself does not listen meanwhile.
Task<void> send_all_lengths(Endpoint& endpoint, std::uint64_t nodes, EndpointId to) {
  std::uint64_t i = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    co_await meet(endpoint, nodes, round).begun();
    for (std::size_t k = 0; k < std::size(kLengths); ++k)
      endpoint.send(to, of_any_length(endpoint.id(), i++));
  }
  co_await until_said(endpoint, 1);  // what did not fit is sent while the worker runs
}
Task<void> compare(Endpoint& endpoint, std::uint64_t nodes, Comparer& comparer) {
  endpoint.set_receiver(&comparer);
  Task<void> own = send_all_lengths(endpoint, nodes, endpoint.id());
  own.start();
  const Time latest = endpoint.worker().now() + kHangs;
  while (comparer.count < nodes * kRounds * std::size(kLengths) && endpoint.worker().now() < latest)
    co_await endpoint.worker().sleep_for(microseconds(100));
  co_await say(endpoint);
  while (!own.done()) co_await endpoint.worker().sleep_for(microseconds(100));
  endpoint.set_receiver(nullptr);
}

TEST_P(Conformance, MessagesOfAnyLengthArriveWholeAndInOrder) {
  Comparer comparer;
  const auto sender = [](Endpoint& e, member::Membership&) {
    return send_all_lengths(e, 4, EndpointId{0});
  };
  stage(4)->run({[&](Endpoint& e, member::Membership&) { return compare(e, 4, comparer); }, sender,
                 sender, sender});
  EXPECT_EQ(comparer.count, 4 * kRounds * std::size(kLengths));
  EXPECT_EQ(comparer.wrong, 0u);
}

// ---------------------------------------------------------------- timers and counts (F6)

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

}  // namespace
}  // namespace declock::conformance
