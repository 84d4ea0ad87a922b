// What every fabric must do when something fails (F2, F4 and F5 in fabric/fabric.h).
#include <algorithm>
#include <atomic>

#include "conformance/suite.h"

namespace declock::conformance {
namespace {

// ---------------------------------------------------------------- unknown outcomes (F2)

constexpr std::size_t kChains = 4;
constexpr std::size_t kCounters = 2 * kChains;
struct Outcomes {
  std::uint64_t known[kCounters] = {};  // what each counter must be
  std::uint64_t ok = 0;
  std::uint64_t unknown = 0;
  std::string wrong;  // the first thing that was
};
void must_be(Outcomes& seen, std::size_t counter, std::uint64_t value, std::uint64_t most,
             const char* when) {
  const std::uint64_t least = seen.known[counter];
  if (!seen.wrong.empty() || (value >= least && value <= most)) return;
  seen.wrong = "counter " + std::to_string(counter) + " is " + std::to_string(value) + " " + when +
               ", and not " + std::to_string(least) + " to " + std::to_string(most);
}

// Four chains of two fetch-and-adds each, every one on a counter of its own, are under way when the connection breaks.
Task<void> add_across_breaks(Endpoint& endpoint, Stage& fabric, int breaks, Outcomes& seen) {
  for (int i = 0; i < breaks && seen.wrong.empty(); ++i) {
    std::array<Op, kCounters> ops{};
    for (std::size_t c = 0; c < kCounters; ++c) ops[c] = Op::fetch_add(at(c), 1, Purpose::data);
    Result<void> ended[kChains];
    {
      Doorbell first = endpoint.post(ops[0], ops[1]);
      Doorbell second = endpoint.post(ops[2], ops[3]);
      fabric.break_memory();
      Doorbell third = endpoint.post(ops[4], ops[5]);
      Doorbell fourth = endpoint.post(ops[6], ops[7]);
      ended[0] = co_await first;
      ended[1] = co_await second;
      ended[2] = co_await third;
      ended[3] = co_await fourth;
    }
    bool unknown = false;
    for (std::size_t c = 0; c < kCounters; ++c) {
      const Result<void>& chain = ended[c / 2];
      if (chain) {
        must_be(seen, c, ops[c].old, seen.known[c], "before an addition that was made");
        seen.known[c] += 1;
        seen.ok += 1;
      } else {
        CHECK(chain.error() == Errc::outcome_unknown);
        unknown = true;
        seen.unknown += 1;
      }
    }
    fabric.mend();
    if (!unknown) continue;
    const Result<void> again = co_await endpoint.reconnect(MnId{0});
    CHECK(again);
    std::array<std::uint64_t, kCounters> now{};
    Op look = Op::read(at(0), now, Purpose::data);
    CHECK(co_await post_until_known(endpoint, look));
    for (std::size_t c = 0; c < kCounters; ++c) {
      const bool may_have = !ended[c / 2];
      must_be(seen, c, now[c], seen.known[c] + (may_have ? 1 : 0), "after reconnect()");
      // From here on it stays so: what was posted before takes effect no more.
      seen.known[c] = now[c];
    }
  }
}

TEST_P(Conformance, AfterAnUnknownOutcomeAndAReconnectionNothingTakesEffectAnyMore) {
  auto fabric = stage(1);
  if (!fabric->can(Stage::Can::break_memory)) GTEST_SKIP() << "nothing is ever under way";
  Outcomes seen;
  fabric->run(
      {[&](Endpoint& e, member::Membership&) { return add_across_breaks(e, *fabric, 30, seen); }});
  EXPECT_EQ(seen.wrong, "");
  EXPECT_GT(seen.unknown, 10u) << "nothing broke";
  for (std::size_t c = 0; c < kCounters; ++c) EXPECT_EQ(fabric->look(8 * c), seen.known[c]) << c;
}

// ---------------------------------------------------------------- messages across a broken connection (F4)

// Both send to each other, and one of them breaks the connection while messages are under way.
constexpr std::uint64_t kBatch = 40;
constexpr std::uint64_t kBreaks = 8;
constexpr std::uint64_t kSentInAll = kBatch * kBreaks + 1;
struct Heard {
  bool ordered = false;
  std::uint64_t count = 0;
  std::size_t broken = 0;
};
Task<void> talk_across_breaks(Endpoint& endpoint, EndpointId peer, Stage* breaks, Heard& heard) {
  Worker& worker = endpoint.worker();
  const Time latest = worker.now() + kHangs;
  Listener listener{endpoint};
  co_await meet(endpoint, 2);
  const auto until_heard = [&](std::uint64_t count) -> Task<void> {
    while (listener.count(peer) < count && worker.now() < latest)
      co_await worker.sleep_for(microseconds(100));
  };
  for (std::uint64_t i = 1; i <= kBatch * kBreaks; ++i) {
    send_number(endpoint, peer, i);
    if (breaks != nullptr && i % kBatch == kBatch / 2) heard.broken += breaks->break_peers();
    if (i % kBatch != 0) continue;
    if (breaks != nullptr) breaks->mend();
    co_await until_heard(i);  // they keep in step, so that there is something to break each time
  }
  // Behind everything else: what comes twice comes before it.
  co_await meet(endpoint, 2, 2);
  send_number(endpoint, peer, kSentInAll);
  co_await until_heard(kSentInAll);
  heard.ordered = listener.ordered();
  heard.count = listener.count(peer);
  co_await meet(endpoint, 2, 3);
}

TEST_P(Conformance, MessagesArriveOnceAndInOrderAlthoughTheConnectionBroke) {
  auto fabric = stage(2);
  if (!fabric->can(Stage::Can::break_peers)) GTEST_SKIP() << "there is no connection to break";
  Heard heard[2];
  fabric->run({[&](Endpoint& e, member::Membership&) {
                 return talk_across_breaks(e, EndpointId{1}, fabric.get(), heard[0]);
               },
               [&](Endpoint& e, member::Membership&) {
                 return talk_across_breaks(e, EndpointId{0}, nullptr, heard[1]);
               }});
  EXPECT_GE(heard[0].broken, kBreaks / 2) << "nothing broke";
  for (const Heard& one : heard) {
    EXPECT_TRUE(one.ordered);
    EXPECT_EQ(one.count, kSentInAll);
  }
}

// ---------------------------------------------------------------- a member that is removed (F5)

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
  CHECK(co_await post_until_known(endpoint, look));
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
  CHECK(co_await post_until_known(endpoint, look));
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

// The same although it lives: it is only cut off from whoever decides. It finds out by what becomes of its operations:
// ok: made; evicted: certainly not; outcome_unknown: either.
struct Evicted {
  std::uint64_t ok = 0;
  std::uint64_t unknown = 0;
  std::uint64_t evicted = 0;
  Errc other = Errc::ok;
  bool in_vain = true;             // what it tried once it knew
  std::atomic<bool> tried{false};  // all that it was to try
};
void count_outcome(Evicted& seen, const Result<void>& chain) {
  if (chain) {
    seen.ok += 1;
  } else if (chain.error() == Errc::outcome_unknown) {
    seen.unknown += 1;
  } else if (chain.error() == Errc::evicted) {
    seen.evicted += 1;
  } else {
    seen.other = chain.error();
  }
}
Task<void> work_until_evicted(Endpoint& endpoint, Evicted& seen) {
  co_await until_said(endpoint, 1);
  for (bool knows = false; !knows && seen.other == Errc::ok;) {  // ends: the lease does
    std::array<Op, 8> ops{};
    for (std::size_t i = 0; i < ops.size(); ++i) ops[i] = Op::fetch_add(at(i % 2), 1, Purpose::data);
    const std::uint64_t unknown_before = seen.unknown;
    {
      Doorbell first = endpoint.post(ops[0], ops[1]);
      Doorbell second = endpoint.post(ops[2], ops[3]);
      Doorbell third = endpoint.post(ops[4], ops[5]);
      Doorbell fourth = endpoint.post(ops[6], ops[7]);
      count_outcome(seen, co_await first);
      count_outcome(seen, co_await second);
      count_outcome(seen, co_await third);
      count_outcome(seen, co_await fourth);
    }
    knows = seen.evicted > 0;
    if (knows || seen.unknown == unknown_before) continue;
    const Result<void> again = co_await endpoint.reconnect(MnId{0});
    knows = !again && again.error() == Errc::evicted;
  }
  for (int i = 0; i < 20; ++i) {
    Op first = Op::fetch_add(at(0), 1, Purpose::data);
    Op second = Op::fetch_add(at(1), 1, Purpose::data);
    const Result<void> tried = co_await endpoint.post(first, second);
    const Result<void> again = co_await endpoint.reconnect(MnId{0});
    seen.in_vain = seen.in_vain && !tried && tried.error() == Errc::evicted && !again &&
                   again.error() == Errc::evicted;
  }
  seen.tried = true;
}

struct Remaining {
  std::array<std::uint64_t, 2> at_removal{};
  std::array<std::uint64_t, 2> later{};
};
Task<void> watch_a_removal(Endpoint& endpoint, member::Membership& membership,
                           const std::atomic<bool>& tried, Remaining& seen) {
  Worker& worker = endpoint.worker();
  co_await say(endpoint);
  while (membership.known().removals == 0) {
    CHECK(co_await membership.refresh(worker));
    co_await worker.sleep_for(microseconds(100));
  }
  Op look = Op::read(at(0), seen.at_removal, Purpose::verify);
  CHECK(co_await post_until_known(endpoint, look));
  const Time latest = worker.now() + kHangs;
  while (!tried && worker.now() < latest) co_await worker.sleep_for(microseconds(100));
  Op again = Op::read(at(0), seen.later, Purpose::verify);
  CHECK(co_await post_until_known(endpoint, again));
}

TEST_P(Conformance, AMemberThatIsRemovedWhileItLivesCanDoNothingAndKnowsWhatItDid) {
  auto fabric = stage(2);
  if (!fabric->can(Stage::Can::remove_the_living)) GTEST_SKIP() << "only the dead are removed";
  fabric->set_victim({1, [&] { return fabric->look(0) > 100; }, true});
  Evicted victim;
  Remaining seen;
  fabric->run(
      {[&](Endpoint& e, member::Membership& m) { return watch_a_removal(e, m, victim.tried, seen); },
       [&](Endpoint& e, member::Membership&) { return work_until_evicted(e, victim); }});
  EXPECT_TRUE(victim.tried) << "it never found out";
  EXPECT_TRUE(victim.in_vain);
  EXPECT_EQ(victim.other, Errc::ok);
  EXPECT_EQ(seen.later, seen.at_removal) << "something took effect after the removal";
  for (const std::uint64_t counter : seen.later) {
    EXPECT_GE(counter, victim.ok) << "what succeeded did not take effect";
    EXPECT_LE(counter, victim.ok + victim.unknown) << "what was evicted took effect";
  }
  EXPECT_GE(seen.later[0], seen.later[1]) << "a chain took effect in its order";
}

}  // namespace
}  // namespace declock::conformance
