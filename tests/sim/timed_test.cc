// The contract of the fabric (F1 to F5) and the NIC model, on the timed simulator.
#include "sim/timed.h"

#include <gtest/gtest.h>

#include <deque>

#include "support/lab.h"

namespace declock::sim {
namespace {

constexpr RemoteAddr at(std::uint64_t word) {
  return {MnId{0}, 8 * word};
}

// Endpoints, each on a core of its own, and the chains that they have posted.
class Wire {
 public:
  Wire(const NicModel& nic, unsigned endpoints, std::uint64_t seed = 1) : engine{nic, 1, seed} {
    for (unsigned i = 0; i < endpoints; ++i) ends.push_back(&engine.add_endpoint(engine.add_worker()));
  }
  Op& op(const Op& prototype) { return ops.emplace_back(prototype); }
  template <class... Ops>
  Doorbell& post(std::size_t end, Ops&... chain) {
    return bells.emplace_back(*ends[end], std::initializer_list<Op*>{&chain...});
  }
  // When this chain completes, running until then.
  Time completion(const Doorbell& bell) {
    while (!bell.await_ready()) EXPECT_TRUE(engine.step());
    return engine.now();
  }
  void settle() {
    while (engine.step()) {
    }
  }

  TimedEngine engine;
  std::vector<SimEndpoint*> ends;
  std::deque<Op> ops;
  std::deque<Doorbell> bells;
};

// Of a chain of one operation, but for what it takes at the NIC.
std::int64_t way_and_back(const NicModel& nic) {
  return nic.verb_cpu_ns + 2 * nic.one_way_ns;
}

TEST(NicModelTimes, AnUnloadedReadTakesAboutThreeMicroseconds) {
  Wire wire{quiet_nic(), 1};
  std::uint64_t word = 0;
  Op& read = wire.op(Op::read(at(0), {&word, 1}, Purpose::data));
  EXPECT_EQ(wire.completion(wire.post(0, read)).ns,
            way_and_back(quiet_nic()) + quiet_nic().read_write_ns);
  EXPECT_NEAR(static_cast<double>(wire.engine.now().ns), 3000, 100);
}

TEST(NicModelTimes, AnAtomicHoldsItsSlot) {
  Wire wire{quiet_nic(), 3};
  Op& a = wire.op(Op::fetch_add(at(0), 1, Purpose::data));
  Op& b = wire.op(Op::fetch_add(at(0), 1, Purpose::data));
  Op& c = wire.op(Op::fetch_add(at(1), 1, Purpose::data));
  const Doorbell& first = wire.post(0, a);
  const Doorbell& same_word = wire.post(1, b);
  const Doorbell& other_word = wire.post(2, c);
  const NicModel nic = quiet_nic();
  const std::int64_t alone = way_and_back(nic) + nic.atomic_slot_held_ns;
  EXPECT_EQ(wire.completion(first).ns, alone);
  EXPECT_EQ(wire.completion(other_word).ns, alone + nic.atomic_ns);
  EXPECT_EQ(wire.completion(same_word).ns, alone + nic.atomic_slot_held_ns);
}

TEST(NicModelTimes, AWaitingAtomicBlocksWhatIsBehindItInItsUnit) {
  NicModel one_unit = quiet_nic();
  one_unit.processing_units = 1;
  NicModel many_units = quiet_nic();
  many_units.processing_units = 1024;
  std::int64_t read_done[2];
  for (int i = 0; i < 2; ++i) {
    Wire wire{i == 0 ? one_unit : many_units, 3};
    std::uint64_t word = 0;
    Op& a = wire.op(Op::fetch_add(at(0), 1, Purpose::data));
    Op& b = wire.op(Op::fetch_add(at(0), 1, Purpose::data));
    Op& r = wire.op(Op::read(at(7), {&word, 1}, Purpose::data));
    wire.post(0, a);
    wire.post(1, b);
    read_done[i] = wire.completion(wire.post(2, r)).ns;
    wire.settle();
  }
  EXPECT_GE(read_done[0], read_done[1] + 90);
}

TEST(NicModelTimes, RatesAreNicWide) {
  struct Case {
    bool atomic;
    std::size_t words;
    std::int64_t ns_each;
  };
  const NicModel nic = quiet_nic();
  for (const Case& c : {Case{false, 1, nic.read_write_ns}, Case{true, 1, nic.atomic_ns},
                        Case{false, 256, 256 * 8 * nic.payload_ps_per_byte / 1000}}) {
    Wire wire{nic, 500};
    std::vector<std::vector<std::uint64_t>> buffers(500, std::vector<std::uint64_t>(c.words));
    for (std::size_t i = 0; i < 500; ++i) {
      Op& op = wire.op(c.atomic ? Op::fetch_add(at(i), 1, Purpose::data)
                                : Op::read(at(i), buffers[i], Purpose::data));
      wire.post(i, op);
    }
    wire.settle();
    const double each = static_cast<double>(wire.engine.now().ns - way_and_back(nic)) / 500;
    const auto expected = static_cast<double>(c.ns_each);
    EXPECT_NEAR(each, expected, expected * 0.05) << c.atomic << " " << c.words;
  }
}

TEST(NicModelTimes, PostingCostsTheCoreTime) {
  Wire wire{quiet_nic(), 1};
  Op& a = wire.op(Op::fetch_add(at(0), 1, Purpose::data));
  Op& b = wire.op(Op::fetch_add(at(1), 1, Purpose::data));
  wire.post(0, a);
  EXPECT_EQ(wire.completion(wire.post(0, b)).ns,
            quiet_nic().verb_cpu_ns + way_and_back(quiet_nic()) + quiet_nic().atomic_slot_held_ns);
}

TEST(Contract, AtomicsUnderContentionAddUp) {  // F2, F3
  Wire wire{NicModel{}, 64};
  for (std::size_t i = 0; i < 6400; ++i) {
    wire.post(i % 64, wire.op(Op::fetch_add(at(0), 1, Purpose::data)));
  }
  wire.settle();
  EXPECT_EQ(wire.engine.memory(MnId{0}).load(0), 6400u);
  std::vector<bool> seen(6400);
  for (const Op& op : wire.ops) seen[op.old] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 6400);
}

TEST(Contract, CompareSwapSwapsOnlyWhatItExpects) {
  Wire wire{quiet_nic(), 1};
  Op& hit = wire.op(Op::compare_swap(at(0), 0, 7, Purpose::data));
  Op& miss = wire.op(Op::compare_swap(at(0), 0, 9, Purpose::data));
  wire.completion(wire.post(0, hit, miss));
  EXPECT_EQ(hit.old, 0u);
  EXPECT_EQ(miss.old, 7u);
  EXPECT_EQ(wire.engine.memory(MnId{0}).load(0), 7u);
}

TEST(Contract, MaskedCompareSwapComparesAndReplacesOnlyTheBitsItNames) {
  Wire wire{quiet_nic(), 1};
  wire.engine.memory(MnId{0}).store(0, 0xAB12);
  Op& hit = wire.op(Op::masked_compare_swap(at(0), 0xFF12, 0x00FF, 0x34CD, 0xFF00, Purpose::data));
  Op& miss = wire.op(Op::masked_compare_swap(at(0), 0x0013, 0x00FF, 0, 0xFFFF, Purpose::data));
  wire.completion(wire.post(0, hit, miss));
  EXPECT_EQ(hit.old, 0xAB12u);
  EXPECT_EQ(miss.old, 0x3412u);
  EXPECT_EQ(wire.engine.memory(MnId{0}).load(0), 0x3412u);
}

TEST(Contract, OperationsOfOneEndpointTakeEffectInOrder) {  // F1, with torn reads, jitter and hiccups
  NicModel nic;
  nic.hiccup_one_in = 20;
  nic.torn_read_one_in = 2;
  Wire wire{nic, 8};
  struct Round {
    std::uint64_t value;
    std::array<std::uint64_t, 16> seen{};
  };
  std::deque<Round> rounds;
  std::deque<std::array<std::uint64_t, 16>> sources;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::size_t end = i % 8;
    const RemoteAddr area = at(100 * end);
    sources.emplace_back().fill(i);
    rounds.push_back({i});
    Op& write = wire.op(Op::write(area, sources.back(), Purpose::data));
    Op& read = wire.op(Op::read(area, rounds.back().seen, Purpose::data));
    if (i % 3 == 0) {
      wire.post(end, write, read);
    } else {
      wire.post(end, write);
      wire.post(end, read);
    }
  }
  wire.settle();
  for (const Round& round : rounds) {
    for (const std::uint64_t word : round.seen) EXPECT_EQ(word, round.value);
  }
}

TEST(Contract, ReadsOfSeveralWordsTearBetweenWords) {  // F3
  NicModel nic;
  nic.torn_read_one_in = 4;
  Wire wire{nic, 2};
  int torn = 0, whole = 0;
  for (std::uint64_t i = 1; i <= 2000; ++i) {
    const std::vector<std::uint64_t> value(8, i);
    std::vector<std::uint64_t> seen(8);
    Op write = Op::write(at(0), value, Purpose::data);
    Op read = Op::read(at(0), seen, Purpose::data);
    const Doorbell w = wire.ends[0]->post(write);
    const Doorbell r = wire.ends[1]->post(read);
    wire.settle();
    for (const std::uint64_t word : seen) EXPECT_TRUE(word == i || word == i - 1);
    const bool mixed = std::count(seen.begin(), seen.end(), seen[0]) != 8;
    (mixed ? torn : whole) += 1;
  }
  EXPECT_GT(torn, 10);
  EXPECT_GT(whole, 10);
}

class Inbox final : public Receiver {
 public:
  void on_message(EndpointId from, const Message& message) override {
    got.emplace_back(from.value, message.words[0]);
  }
  std::vector<std::pair<std::uint32_t, std::uint64_t>> got;
};

TEST(Contract, MessagesArriveInOrderPerPair) {  // F4
  NicModel nic;
  nic.hiccup_one_in = 10;
  Wire wire{nic, 3};
  Inbox inbox;
  wire.ends[2]->set_receiver(&inbox);
  for (std::uint64_t i = 0; i < 500; ++i) {
    wire.ends[i % 2]->send(wire.ends[2]->id(), Message{{i, 0, 0}});
  }
  wire.settle();
  ASSERT_EQ(inbox.got.size(), 500u);
  std::array<std::uint64_t, 2> last{};
  bool interleaved = false;
  for (std::size_t i = 0; i < inbox.got.size(); ++i) {
    const auto [from, number] = inbox.got[i];
    EXPECT_GE(number, last[from]);
    last[from] = number;
    interleaved = interleaved || number != i;
  }
  EXPECT_TRUE(interleaved);  // there was something to get wrong
  EXPECT_EQ(wire.engine.counts().messages, 500u);
}

TEST(Contract, CountsByKindAndPurpose) {  // F5
  Wire wire{quiet_nic(), 1};
  std::uint64_t word = 0;
  Op& faa = wire.op(Op::fetch_add(at(0), 1, Purpose::release));
  Op& read = wire.op(Op::read(at(0), {&word, 1}, Purpose::refetch));
  wire.completion(wire.post(0, faa, read));
  const OpCounts& counts = wire.ends[0]->counts();
  EXPECT_EQ(counts.of(OpKind::fetch_add), 1u);
  EXPECT_EQ(counts.of(OpKind::read), 1u);
  EXPECT_EQ(counts.of(Purpose::release), 1u);
  EXPECT_EQ(counts.of(Purpose::refetch), 1u);
  EXPECT_EQ(counts.of(Purpose::acquire), 0u);
}

TEST(Memory, IsZeroUntilWrittenAndSparse) {
  Memory memory;
  EXPECT_EQ(memory.load(std::uint64_t{1} << 40), 0u);
  memory.store(8 * 1000, 5);
  std::vector<std::uint64_t> words(300, 9);
  memory.read(8 * 900, words);
  EXPECT_EQ(words[100], 5u);
  EXPECT_EQ(std::count(words.begin(), words.end(), 0u), 299);
  memory.clear();
  EXPECT_EQ(memory.load(8 * 1000), 0u);
}

}  // namespace
}  // namespace declock::sim
