// The stepped engine offers everything that can happen, and nothing else.
#include "sim/stepped.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "declock/task.h"

namespace declock::sim {
namespace {

constexpr RemoteAddr at(std::uint64_t word) {
  return {MnId{0}, 8 * word};
}

class Stepped : public testing::Test {
 protected:
  Stepped()
      : engine{4},
        a{engine.add_endpoint(engine.add_worker())},
        b{engine.add_endpoint(engine.add_worker())} {}

  std::vector<Choice> choices(Choice::Kind kind) {
    std::vector<Choice> all, some;
    engine.enabled(all);
    std::copy_if(all.begin(), all.end(), std::back_inserter(some),
                 [&](const Choice& c) { return c.kind == kind; });
    return some;
  }
  void take_effect(const SimEndpoint& e) {
    engine.perform({Choice::Kind::effect, static_cast<std::uint8_t>(e.id().value)});
  }
  void complete(const SimEndpoint& e) {
    engine.perform({Choice::Kind::complete, static_cast<std::uint8_t>(e.id().value)});
  }
  // What the read that `e` has under way may see.
  std::set<std::vector<std::uint64_t>> sights(const SimEndpoint& e) {
    std::set<std::vector<std::uint64_t>> seen;
    for (const Choice& choice : choices(Choice::Kind::complete)) {
      if (choice.who == e.id().value) seen.insert(engine.would_see(choice, 0));
    }
    return seen;
  }

  SteppedEngine engine;
  SimEndpoint& a;
  SimEndpoint& b;
};

TEST_F(Stepped, AReadSeesEveryCombinationOfTheValuesThatItsWordsHadMeanwhile) {
  std::array<std::uint64_t, 2> words{};
  Op read = Op::read(at(0), words, Purpose::data);
  Op first = Op::fetch_add(at(0), 1, Purpose::data);
  Op again = Op::fetch_add(at(0), 1, Purpose::data);
  Op second = Op::fetch_add(at(1), 5, Purpose::data);
  const Doorbell looking = a.post(read);
  EXPECT_EQ(sights(a), (std::set<std::vector<std::uint64_t>>{{0, 0}}));
  const Doorbell writing = b.post(first, again, second);
  take_effect(b);
  take_effect(b);
  EXPECT_EQ(sights(a), (std::set<std::vector<std::uint64_t>>{{0, 0}, {1, 0}, {2, 0}}));
  take_effect(b);
  EXPECT_EQ(sights(a),
            (std::set<std::vector<std::uint64_t>>{{0, 0}, {1, 0}, {2, 0}, {0, 5}, {1, 5}, {2, 5}}));
  complete(b);
  complete(a);
  EXPECT_TRUE(looking.await_ready() && writing.await_ready());
}

TEST_F(Stepped, AReadDoesNotSeeWhatItsEndpointDoesAfterIt) {  // F1
  std::array<std::uint64_t, 1> word{};
  Op read = Op::read(at(0), word, Purpose::data);
  Op add = Op::fetch_add(at(0), 1, Purpose::data);
  Op other = Op::fetch_add(at(0), 10, Purpose::data);
  const Doorbell chain = a.post(read, add);
  const Doorbell meanwhile = b.post(other);
  take_effect(a);
  take_effect(b);
  EXPECT_EQ(sights(a), (std::set<std::vector<std::uint64_t>>{{0}}));
  complete(a);
  complete(b);
}

TEST_F(Stepped, AReadBehindAReadBeginsWhenThatIsOver) {  // F1
  std::array<std::uint64_t, 1> first{}, second{};
  Op one = Op::read(at(0), first, Purpose::data);
  Op two = Op::read(at(1), second, Purpose::data);
  Op write_second = Op::fetch_add(at(1), 1, Purpose::data);
  const Doorbell chain = a.post(one, two);
  const Doorbell writing = b.post(write_second);
  take_effect(b);  // while the first read is under way: the second cannot miss it
  EXPECT_TRUE(sights(a).empty());
  take_effect(a);
  complete(a);
  complete(b);
  EXPECT_EQ(second[0], 1u);
}

TEST_F(Stepped, EffectsCompletionsAndMessagesAreStepsOfTheirOwnAndInOrder) {
  Op x = Op::fetch_add(at(0), 1, Purpose::data);
  Op y = Op::fetch_add(at(0), 2, Purpose::data);
  const Doorbell first = a.post(x);
  const Doorbell second = a.post(y);
  a.send(b.id(), Message{{1, 0, 0}});
  a.send(b.id(), Message{{2, 0, 0}});
  EXPECT_EQ(choices(Choice::Kind::effect).size(), 1u);
  EXPECT_EQ(choices(Choice::Kind::complete).size(), 0u);
  ASSERT_EQ(choices(Choice::Kind::deliver).size(), 1u);
  EXPECT_EQ(engine.next_letter(choices(Choice::Kind::deliver)[0]).message.words[0], 1u);
  engine.perform(choices(Choice::Kind::deliver)[0]);
  EXPECT_EQ(engine.next_letter(choices(Choice::Kind::deliver)[0]).message.words[0], 2u);
  take_effect(a);
  EXPECT_FALSE(first.await_ready());
  take_effect(a);
  complete(a);
  EXPECT_TRUE(first.await_ready());
  EXPECT_FALSE(second.await_ready());
  complete(a);
  EXPECT_EQ(x.old, 0u);
  EXPECT_EQ(y.old, 1u);
}

TEST_F(Stepped, EvictedMeansThatNothingOfTheChainTookEffect) {  // F5
  Op x = Op::fetch_add(at(0), 1, Purpose::data);
  Op y = Op::fetch_add(at(1), 1, Purpose::data);
  Op all[] = {x, y, x, y, x, y};
  const Doorbell whole = a.post(all[0], all[1]);
  const Doorbell half = a.post(all[2], all[3]);
  const Doorbell none = a.post(all[4], all[5]);
  for (int i = 0; i < 3; ++i) take_effect(a);
  engine.revoke(a.id(), MnId{0});
  take_effect(a);  // the rest of the second chain is refused
  take_effect(a);
  for (int i = 0; i < 3; ++i) complete(a);
  EXPECT_TRUE(whole.await_resume());
  EXPECT_EQ(half.await_resume().error(), Errc::outcome_unknown);
  EXPECT_EQ(none.await_resume().error(), Errc::evicted);
  EXPECT_EQ(engine.memory(MnId{0}).load(0), 2u);
  EXPECT_EQ(engine.memory(MnId{0}).load(8), 1u);
}

Task<void> reconnected(SimEndpoint& endpoint) {
  EXPECT_TRUE(co_await endpoint.reconnect(MnId{0}));
}

TEST_F(Stepped, WhatWasUnderWayWhenTheConnectionBrokeMayTakeEffectUntilReconnect) {  // F2
  for (const bool takes_effect : {false, true}) {
    const std::uint64_t before = engine.memory(MnId{0}).load(0);
    Op x = Op::fetch_add(at(0), 1, Purpose::data);
    Op lost = Op::fetch_add(at(0), 100, Purpose::data);
    const Doorbell under_way = a.post(x);
    engine.sever(a.id());
    const Doorbell behind = a.post(lost);
    complete(a);
    complete(a);
    EXPECT_EQ(under_way.await_resume().error(), Errc::outcome_unknown);
    EXPECT_EQ(behind.await_resume().error(), Errc::outcome_unknown);
    EXPECT_EQ(choices(Choice::Kind::effect).size(), 1u);
    if (takes_effect) take_effect(a);
    Task<void> task = reconnected(a);
    task.start();
    ASSERT_EQ(choices(Choice::Kind::reconnect).size(), 1u);
    engine.perform(choices(Choice::Kind::reconnect)[0]);
    EXPECT_TRUE(task.done());
    EXPECT_TRUE(choices(Choice::Kind::effect).empty());
    EXPECT_EQ(engine.memory(MnId{0}).load(0), before + (takes_effect ? 1 : 0));
  }
}

TEST_F(Stepped, ARestartedMemoryNodeHasFreshMemoryAndNobodyIsConnected) {
  Op done = Op::fetch_add(at(0), 1, Purpose::data);
  Op later = Op::fetch_add(at(0), 1, Purpose::data);
  const Doorbell reported = a.post(done);
  const Doorbell lost = b.post(later);
  take_effect(a);
  engine.restart_memory();
  EXPECT_EQ(engine.memory(MnId{0}).load(0), 0u);
  EXPECT_EQ(choices(Choice::Kind::effect).size(), 0u);
  EXPECT_EQ(choices(Choice::Kind::complete).size(), 3u) << "of a: as a success, or unknown";
  complete(a);
  complete(b);
  EXPECT_TRUE(reported.await_resume());
  EXPECT_EQ(lost.await_resume().error(), Errc::outcome_unknown);
  EXPECT_EQ(b.incarnation(MnId{0}), 1u);
  Task<void> task = reconnected(b);
  task.start();
  engine.perform(choices(Choice::Kind::reconnect)[0]);
  EXPECT_EQ(b.incarnation(MnId{0}), 2u);
}

class Inbox final : public Receiver {
 public:
  explicit Inbox(Endpoint& at) { at.set_receiver(this); }
  void on_message(EndpointId, const Message& message) override { got.push_back(message.words[0]); }
  std::vector<std::uint64_t> got;
};

TEST_F(Stepped, AMessageCanBeLostOrComeTwice) {
  Inbox inbox{b};
  for (const std::uint64_t word : {1, 2, 3}) a.send(b.id(), Message{{word, 0, 0}});
  engine.lose(choices(Choice::Kind::deliver)[0]);
  engine.repeat(choices(Choice::Kind::deliver)[0]);
  ASSERT_EQ(choices(Choice::Kind::deliver).size(), 2u) << "the third, and the second once more";
  engine.perform(choices(Choice::Kind::deliver)[0]);
  engine.perform(choices(Choice::Kind::deliver)[0]);
  EXPECT_EQ(inbox.got, (std::vector<std::uint64_t>{2, 3, 2}));
  b.set_receiver(nullptr);
}

TEST(SteppedAtOnce, AWordIsAddedToInOneStepIfItIsAsExpected) {
  SteppedEngine engine{4, true};
  SimEndpoint& a = engine.add_endpoint(engine.add_worker());
  EXPECT_TRUE(a.completes_at_once());
  EXPECT_TRUE(a.add_at_once(at(0), 0, 5, Purpose::data));
  EXPECT_EQ(a.load_at_once(at(0)), 5u);
  EXPECT_FALSE(a.add_at_once(at(0), 4, 1, Purpose::data));
  EXPECT_EQ(a.load_at_once(at(0)), 5u);
  EXPECT_EQ(a.counts().of(OpKind::fetch_add, Purpose::data), 1u);
}

Task<void> nap(Worker& worker) {
  co_await worker.sleep_for(microseconds(1));
}

TEST_F(Stepped, TimersAreOfferedApart) {
  Task<void> task = nap(a.worker());
  task.start();
  Op x = Op::fetch_add(at(0), 1, Purpose::data);
  {
    const Doorbell bell = b.post(x);
    EXPECT_TRUE(choices(Choice::Kind::timer).empty());
    take_effect(b);
    complete(b);
  }
  EXPECT_TRUE(choices(Choice::Kind::timer).empty());
  std::vector<Choice> timers;
  engine.timers(timers);
  ASSERT_EQ(timers.size(), 1u);
  engine.perform(timers[0]);
  EXPECT_TRUE(task.done());
}

TEST_F(Stepped, TheDigestTellsStatesApartAndARepeatedLookIsNone) {
  std::array<std::uint64_t, 1> word{};
  const auto look = [&] {
    Op read = Op::read(at(0), word, Purpose::data);
    const Doorbell bell = a.post(read);
    complete(a);
    return engine.digest();
  };
  const std::uint64_t start = engine.digest();
  const std::uint64_t looked = look();
  EXPECT_NE(looked, start);
  EXPECT_EQ(look(), looked);
  engine.memory(MnId{0}).store(0, 7);
  const std::uint64_t changed = engine.digest();
  EXPECT_NE(changed, looked);
  EXPECT_NE(look(), changed);
}

}  // namespace
}  // namespace declock::sim
