// What the local locks of a compute node decide, policy by policy.
#include "hier/local_locks.h"

#include <gtest/gtest.h>

#include <deque>

#include "support/lab.h"

namespace declock::hier {
namespace {

constexpr RemoteAddr kLock = Lab::kLock;
constexpr Mode R = Mode::shared;
constexpr Mode W = Mode::exclusive;
using Entry = LocalLocks::Entry;
using Kind = LocalLocks::Leave::Kind;

bool granted(const LocalWaiter& waiter) {
  return !waiter.waiting && waiter.error == Errc::ok;
}

// A remote client that asked then, known a little later.
RemoteWait remote_since(std::uint16_t asked_us) {
  return {Timestamp{asked_us}, Time{} + milliseconds(1)};
}

class Node {
 public:
  explicit Node(Policy policy) : locals(policy, requests) {}

  LocalWaiter& client(Mode mode, std::uint16_t asked_us) {
    LocalWaiter& waiter = clients.emplace_back();
    waiter.addr = kLock;
    waiter.mode = mode;
    waiter.asked = {Timestamp{asked_us}, Time{} + microseconds(asked_us)};
    return waiter;
  }
  Entry enter(LocalWaiter& waiter) { return locals.enter(waiter, WorkerId{0}, now); }
  // As threads that run no worker.
  std::optional<Entry> enter_here(LocalWaiter& waiter) {
    const auto entry = locals.enter_here(requests.find_or_insert(kLock), waiter, now);
    requests.reclaim(requests.find_or_insert(kLock));
    return entry;
  }
  bool leave_here() { return locals.leave_here(requests.find_or_insert(kLock), now); }
  LocalLocks::Leave leave(bool unwritten = false) {
    return locals.leave(kLock, WorkerId{0}, unwritten, now);
  }
  // The first client asks for the CQL lock and gets it, with this remote waiter known.
  void acquire(Mode mode, std::optional<RemoteWait> remote = {}) {
    LocalWaiter& first = client(mode, 0);
    EXPECT_EQ(enter(first), Entry::acquire);
    locals.acquired(Hold{.lock = kLock, .mode = mode, .waiting_since = remote}, WorkerId{0}, now);
    EXPECT_TRUE(granted(first));
  }

  std::size_t in_use() {
    std::size_t count = 0;
    requests.for_each([&](const cql::Record& r) { count += r.is_used() ? 1 : 0; });
    return count;
  }

  cql::Requests requests;
  LocalLocks locals;
  std::deque<LocalWaiter> clients;
  Time now{1};  // 0: nobody has looked at the time
};

TEST(LocalLocks, ReadersJoinAndWritersWait) {
  Node node{{PolicyKind::phase_fair}};
  node.acquire(R);
  EXPECT_EQ(node.enter(node.client(R, 1)), Entry::joined);
  LocalWaiter& writer = node.client(W, 2);
  EXPECT_EQ(node.enter(writer), Entry::look_and_wait);
  EXPECT_EQ(node.enter(node.client(R, 3)), Entry::wait) << "behind the writer, and one look is enough";
  EXPECT_EQ(node.leave().kind, Kind::nothing) << "another reader still holds it";
  const auto leave = node.leave();
  EXPECT_EQ(leave.kind, Kind::release) << "a writer cannot use what the node holds shared";
  EXPECT_EQ(leave.successor.waiter, &writer);
}

TEST(LocalLocks, TheModeThatWasAcquiredIsTheModeThatIsReleased) {  // H11
  Node node{{PolicyKind::slack}};
  node.acquire(W);
  LocalWaiter& reader = node.client(R, 1);
  node.enter(reader);
  EXPECT_EQ(node.leave().kind, Kind::nothing);
  EXPECT_TRUE(granted(reader)) << "under slack, readers may use what the node holds exclusively";
  const auto leave = node.leave();
  EXPECT_EQ(leave.kind, Kind::release);
  EXPECT_EQ(leave.hold.mode, W);
}

TEST(LocalLocks, TaskFairServesInOrderAndGivesWayToWhoeverAskedEarlierElsewhere) {
  Node node{{PolicyKind::task_fair}};
  node.acquire(W, remote_since(10));
  LocalWaiter& early = node.client(W, 9);
  LocalWaiter& late = node.client(W, 11);
  node.enter(early);
  node.enter(late);
  EXPECT_EQ(node.leave().kind, Kind::nothing);
  EXPECT_TRUE(granted(early));
  const auto leave = node.leave();
  EXPECT_EQ(leave.kind, Kind::release);
  EXPECT_EQ(leave.successor.waiter, &late);
}

TEST(LocalLocks, PhaseFairAlternatesBetweenReadersAndWriters) {
  Node node{{PolicyKind::phase_fair}};
  node.acquire(W);
  LocalWaiter& writer = node.client(W, 1);
  LocalWaiter& reader = node.client(R, 2);
  node.enter(writer);
  node.enter(reader);
  EXPECT_EQ(node.leave().successor.waiter, &reader) << "after a writer, a reader";
  node.locals.acquired(Hold{.lock = kLock, .mode = R}, WorkerId{0}, node.now);
  EXPECT_EQ(node.leave().successor.waiter, &writer) << "after readers, a writer";
}

TEST(LocalLocks, SlackLetsALittleDisorderIn) {
  for (const auto& [asked_us, stays] : {std::pair{210, true}, std::pair{211, false}}) {
    Node node{{PolicyKind::slack, microseconds(200)}};
    node.acquire(W, remote_since(10));
    node.enter(node.client(W, static_cast<std::uint16_t>(asked_us)));
    EXPECT_EQ(node.leave().kind, stays ? Kind::nothing : Kind::release) << asked_us;
  }
}

TEST(LocalLocks, SlackAsksExclusivelyForAReaderIfAWriterWaitsToo) {
  for (const auto& [kind, mode] :
       {std::pair{PolicyKind::slack, W}, std::pair{PolicyKind::phase_fair, R}}) {
    Node node{{kind}};
    node.acquire(W, remote_since(0));
    LocalWaiter& reader = node.client(R, 501);
    node.enter(node.client(W, 500));
    node.enter(reader);
    const auto leave = node.leave();
    EXPECT_EQ(leave.kind, Kind::release) << "both came too late";
    EXPECT_EQ(leave.successor.waiter, &reader);
    EXPECT_EQ(leave.successor.mode, mode);
  }
}

TEST(LocalLocks, UnderSlackReadersDoNotJoinWhatIsHeldExclusively) {
  Node node{{PolicyKind::slack}};
  node.acquire(W);
  LocalWaiter& reader = node.client(R, 1);
  node.enter(reader);
  EXPECT_EQ(node.leave().kind, Kind::nothing);
  EXPECT_TRUE(granted(reader));
  EXPECT_NE(node.enter(node.client(R, 2)), Entry::joined) << "readers elsewhere are kept out meanwhile";
}

TEST(LocalLocks, UnderSlackLongSectionsAreSharedBetweenNodes) {
  for (const auto& [section, stays] :
       {std::pair{microseconds(4), true}, std::pair{microseconds(40), false}}) {
    Node node{{PolicyKind::slack}};
    for (int i = 0; i < 100; ++i) {
      node.acquire(W);
      node.now = node.now + section;
      EXPECT_EQ(node.leave().kind, Kind::release);
      node.locals.released(Hold{.lock = kLock});
    }
    node.acquire(W);
    node.enter(node.client(R, 1));
    EXPECT_EQ(node.leave().kind, stays ? Kind::nothing : Kind::release);
  }
}

TEST(LocalLocks, TheOtherPoliciesPreferAsTheySay) {
  struct Case {
    PolicyKind kind;
    std::optional<RemoteWait> remote;
    int in_a_row;
  };
  // How many of six waiting writers get the lock before it is given away.
  for (const auto& [kind, remote, in_a_row] :
       {Case{PolicyKind::remote_prefer, {}, 6}, Case{PolicyKind::remote_prefer, remote_since(100), 0},
        Case{PolicyKind::local_prefer, remote_since(0), 6},
        Case{PolicyKind::local_bound, remote_since(0), 4}}) {
    Node node{{kind}};
    node.acquire(W, remote);
    for (std::uint16_t i = 0; i < 6; ++i) node.enter(node.client(W, 50));
    int count = 0;
    while (node.leave().kind == Kind::nothing) count += 1;
    EXPECT_EQ(count, in_a_row);
  }
}

TEST(LocalLocks, ASharedGrantLetsReadersIn) {
  const auto let_in = [](PolicyKind kind) {
    Node node{{kind}};
    LocalWaiter& first = node.client(R, 0);
    EXPECT_EQ(node.enter(first), Entry::acquire);
    std::array<LocalWaiter*, 4> waiters{&node.client(R, 1), &node.client(W, 2), &node.client(R, 3),
                                        &node.client(R, 200)};
    for (LocalWaiter* waiter : waiters) EXPECT_EQ(node.enter(*waiter), Entry::wait);
    node.locals.acquired(Hold{.lock = kLock, .mode = R, .waiting_since = remote_since(100)},
                         WorkerId{0}, node.now);
    std::string who;
    for (const LocalWaiter* waiter : waiters) who += granted(*waiter) ? '1' : '0';
    return who;
  };
  EXPECT_EQ(let_in(PolicyKind::task_fair), "1000") << "up to the first writer";
  EXPECT_EQ(let_in(PolicyKind::phase_fair), "1011");
  EXPECT_EQ(let_in(PolicyKind::slack), "1011");
}

TEST(LocalLocks, AStreamOfReadersLooksForRemoteWriters) {  // H25
  for (const PolicyKind kind : {PolicyKind::task_fair, PolicyKind::phase_fair, PolicyKind::slack}) {
    Node node{{kind, microseconds(200)}};
    node.acquire(R);
    int joined = 0;
    std::uint16_t asked_us = 1;
    Entry entry = Entry::joined;
    Hold behind;
    for (; joined < 1000; ++joined) {
      LocalWaiter& reader = node.client(R, asked_us++);
      entry = node.enter(reader);
      behind = reader.behind;
      if (entry != Entry::joined) break;
    }
    ASSERT_EQ(entry, Entry::look_and_wait) << "some reader must look before it joins";
    node.locals.looked(behind, {Timestamp{0}}, node.now);
    EXPECT_EQ(node.enter(node.client(R, 300)), Entry::wait) << "a writer came first: no more joining";
  }
}

TEST(LocalLocks, WhoAskedAfterARemoteClientBecameKnownIsLaterForEver) {  // H26
  for (const PolicyKind kind : {PolicyKind::task_fair, PolicyKind::phase_fair, PolicyKind::slack,
                                PolicyKind::remote_prefer, PolicyKind::local_prefer}) {
    for (std::int64_t after_us = 1'000; after_us < 200'000; after_us += 1'000) {
      Node node{{kind, microseconds(200)}};
      node.acquire(R, remote_since(900));
      LocalWaiter& late = node.client(R, 0);
      const Time asked = Time{} + milliseconds(1) + microseconds(after_us);
      late.asked = {timestamp_of(asked), asked};
      EXPECT_EQ(node.enter(late), Entry::wait) << after_us << " us after";
    }
  }
}

// The writer waits for those who held the lock, or were in time, when it became known, and for nobody else.
TEST(LocalLocks, WhoIsLateDoesNotComeAlongWithALocalHandOver) {  // H26
  Node node{{PolicyKind::phase_fair}};
  node.acquire(R, remote_since(900));
  node.now = Time{} + milliseconds(2);
  LocalWaiter& in_time = node.client(R, 100);
  EXPECT_EQ(node.enter(in_time), Entry::look_and_wait);
  LocalWaiter& late = node.client(R, 1'900);
  EXPECT_EQ(node.enter(late), Entry::wait);
  EXPECT_EQ(node.leave().kind, Kind::nothing);
  EXPECT_TRUE(granted(in_time));
  EXPECT_FALSE(granted(late));
}

TEST(LocalLocks, WhoAskedLongBeforeARemoteClientIsInTime) {  // H26
  for (std::int64_t before_us = 0; before_us < 200'000; before_us += 1'000) {
    const Time known = Time{} + milliseconds(300);
    const Time asked = Time{known.ns - 1'000'000 - before_us * 1'000};
    const RemoteWait remote{timestamp_of(Time{known.ns - 500'000}), known};
    EXPECT_TRUE(Policy{}.in_time({timestamp_of(asked), asked}, remote)) << before_us << " us before";
  }
}

TEST(LocalLocks, AClockThatIsAheadMakesARemoteClientNoEarlier) {  // H26
  const Time known = Time{} + milliseconds(300);
  const Time asked = known + milliseconds(-1);
  for (std::int64_t ahead_us = 0; ahead_us < 8'000; ahead_us += 500) {
    const RemoteWait remote{timestamp_of(known + microseconds(ahead_us)), known};
    EXPECT_TRUE(Policy{}.in_time({timestamp_of(asked), asked}, remote)) << ahead_us << " us ahead";
  }
}

TEST(LocalLocks, TimePassingMakesAReaderLookToo) {  // H25
  Node node{{PolicyKind::phase_fair}};
  node.acquire(R);
  EXPECT_EQ(node.enter(node.client(R, 1)), Entry::joined);
  node.now = Time{} + milliseconds(1);
  LocalWaiter& reader = node.client(R, 1000);
  EXPECT_EQ(node.enter(reader), Entry::look_and_wait);
  node.locals.looked(reader.behind, std::optional<Timestamp>{}, node.now);
  EXPECT_TRUE(granted(reader)) << "nobody waits elsewhere";
}

TEST(LocalLocks, OneRequestOnTheMemoryNodeAtATime) {  // H34
  Node node{{PolicyKind::phase_fair}};
  node.acquire(W);
  EXPECT_EQ(node.leave().kind, Kind::release);
  LocalWaiter& elsewhere = node.client(W, 1);
  EXPECT_EQ(node.locals.enter(elsewhere, WorkerId{1}, node.now), Entry::wait)
      << "another endpoint's fetch-and-add could overtake the release";
  EXPECT_EQ(node.locals.released(Hold{.lock = kLock}).waiter, &elsewhere);

  Node other{{PolicyKind::phase_fair}};
  other.acquire(W);
  EXPECT_EQ(other.leave().kind, Kind::release);
  EXPECT_EQ(other.enter(other.client(W, 1)), Entry::acquire) << "behind the release on its endpoint";
  EXPECT_EQ(other.locals.released(Hold{.lock = kLock}).waiter, nullptr);
}

TEST(LocalLocks, AnObjectIsWrittenBeforeALocalClientGetsTheLock) {
  Node node{{PolicyKind::phase_fair}};
  node.acquire(W);
  LocalWaiter& next = node.client(W, 0);
  node.enter(next);
  EXPECT_EQ(node.leave(true).kind, Kind::write_first);
  EXPECT_FALSE(granted(next));
  EXPECT_EQ(node.leave(false).kind, Kind::nothing);
  EXPECT_TRUE(granted(next));
}

TEST(LocalLocks, IdleLocksAreReclaimed) {
  Node node{{PolicyKind::phase_fair}};
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const RemoteAddr addr{MnId{0}, 80 * i};
    LocalWaiter waiter{.addr = addr, .mode = W};
    EXPECT_EQ(node.locals.enter(waiter, WorkerId{0}, node.now), Entry::acquire);
    node.locals.acquired(Hold{.lock = addr, .mode = W}, WorkerId{0}, node.now);
    EXPECT_EQ(node.locals.leave(addr, WorkerId{0}, false, node.now).kind, Kind::release);
    EXPECT_EQ(node.locals.released(Hold{.lock = addr}).waiter, nullptr);
  }
  EXPECT_EQ(node.in_use(), 0u);
  std::size_t records = 0;
  node.requests.for_each([&](const cql::Record&) { records += 1; });
  EXPECT_LE(records, 1024u) << "those that were used lately";
}

TEST(LocalLocks, AWaiterMayGiveUp) {
  Node node{{PolicyKind::phase_fair}};
  node.acquire(R);
  LocalWaiter& writer = node.client(W, 1);
  LocalWaiter& reader = node.client(R, 2);
  writer.may_give_up = true;
  node.enter(writer);
  node.enter(reader);
  node.locals.give_up(reader, Errc::cancelled);
  EXPECT_TRUE(reader.waiting) << "it is one that waits to the end";
  node.locals.give_up(writer, Errc::timed_out);
  EXPECT_EQ(writer.error, Errc::timed_out);
  EXPECT_TRUE(granted(reader)) << "nothing is in its way any more";
  node.locals.give_up(writer, Errc::cancelled);
  EXPECT_EQ(writer.error, Errc::timed_out) << "it had given up";
}

TEST(LocalLocks, TheRequestOfOneWhoGaveUpIsTakenOverOrReleased) {
  Node node{{PolicyKind::phase_fair}};
  const auto ask_and_give_up = [&] {
    LocalWaiter& first = node.client(W, 0);
    first.may_give_up = true;
    EXPECT_EQ(node.enter(first), Entry::acquire);
    node.locals.give_up(first, Errc::timed_out);
  };
  const Hold hold{.lock = kLock, .mode = W};
  ask_and_give_up();
  LocalWaiter& same = node.client(W, 1);
  EXPECT_EQ(node.enter(same), Entry::wait);
  EXPECT_EQ(node.locals.acquired(hold, WorkerId{0}, node.now).kind, Kind::nothing);
  EXPECT_TRUE(granted(same));
  EXPECT_EQ(node.leave().kind, Kind::release);
  node.locals.released(Hold{.lock = kLock});

  ask_and_give_up();
  LocalWaiter& other = node.client(R, 1);
  EXPECT_EQ(node.enter(other), Entry::wait) << "what was asked for is of no use to a reader";
  const auto leave = node.locals.acquired(hold, WorkerId{0}, node.now);
  EXPECT_EQ(leave.kind, Kind::release);
  EXPECT_EQ(leave.successor.waiter, &other);
  node.locals.acquired({.lock = kLock, .mode = R}, WorkerId{0}, node.now);
  EXPECT_EQ(node.leave().kind, Kind::release);
  node.locals.released(Hold{.lock = kLock});

  ask_and_give_up();
  EXPECT_EQ(node.locals.acquired(hold, WorkerId{0}, node.now).kind, Kind::release) << "nobody wants it";
  EXPECT_EQ(node.locals.released(Hold{.lock = kLock}).waiter, nullptr);
  EXPECT_EQ(node.in_use(), 0u);
}

// A place for a writer, asked for on behalf of a reader because a writer waited as well, is of no use once that has given up.
TEST(LocalLocks, APlaceForAWriterThatGaveUpIsNotKeptForAReader) {
  Node node{{PolicyKind::slack}};
  node.acquire(W);
  LocalWaiter& reader = node.client(R, 1);
  LocalWaiter& writer = node.client(W, 2);
  writer.may_give_up = true;
  node.enter(reader);
  node.enter(writer);
  node.requests.find(kLock)->local.reset = cql::Era{};  // it may not be passed on
  const auto leave = node.leave();
  EXPECT_TRUE(leave.successor.waiter == &reader && leave.successor.mode == W);
  const cql::RecordUse record{node.requests, kLock};
  EXPECT_FALSE(record->unwanted);
  node.locals.give_up(writer, Errc::timed_out);
  EXPECT_TRUE(record->unwanted);
  LocalWaiter& other = node.client(W, 3);
  other.may_give_up = true;
  node.enter(other);
  EXPECT_FALSE(record->unwanted) << "it is for this one now";
  node.locals.give_up(other, Errc::timed_out);
  EXPECT_TRUE(record->unwanted);
  const auto again = node.locals.left(kLock);
  EXPECT_TRUE(again.waiter == &reader && again.mode == R);
  EXPECT_FALSE(record->unwanted);
}

// A thread that runs no worker.
struct ThreadOf {
  ThreadOf(Node& node, Mode mode, std::uint16_t asked_us) : waiter(node.client(mode, asked_us)) {
    waiter.thread = &wait;
  }
  LocalWaiter& waiter;
  ThreadWait wait;
};

TEST(LocalLocks, AThreadHandsTheLockOverToTheNextWithoutAWorker) {
  Node node{{PolicyKind::phase_fair}};
  node.acquire(W);
  ThreadOf next{node, W, 1};
  ASSERT_EQ(node.enter_here(next.waiter), Entry::look_and_wait);
  node.locals.looked(next.waiter.behind, std::optional<Timestamp>{}, node.now);
  EXPECT_FALSE(granted(next.waiter));
  EXPECT_TRUE(node.leave_here());
  Looking looking;
  next.wait.wait(looking);
  EXPECT_TRUE(granted(next.waiter));
  EXPECT_EQ(next.waiter.hold.local_sequence, 1u);
  EXPECT_FALSE(node.leave_here()) << "nobody is next here";
  EXPECT_EQ(node.leave().kind, Kind::release);
}

TEST(LocalLocks, AThreadQueuesBehindOneThatWaitsForTheLock) {
  Node node{{PolicyKind::phase_fair}};
  EXPECT_EQ(node.enter(node.client(W, 0)), Entry::acquire);
  cql::HoldCounts counts;
  ThreadOf next{node, W, 1};
  next.waiter.counts = &counts;
  ASSERT_EQ(node.enter_here(next.waiter), Entry::wait);
  node.locals.acquired({.lock = kLock, .mode = W}, WorkerId{0}, node.now);
  EXPECT_FALSE(granted(next.waiter));
  EXPECT_TRUE(node.leave_here());
  EXPECT_TRUE(granted(next.waiter));
  EXPECT_EQ(counts.now, 1u);
  EXPECT_EQ(counts.handed, 1u);
}

// Whether readers may use what the node holds exclusively depends on how long sections are. This one makes them too long.
TEST(LocalLocks, AThreadThatHandsTheLockOverDoesNotChangeItsMind) {
  Node node{{PolicyKind::slack}};
  node.now = node.now + milliseconds(1);
  node.acquire(W);
  LocalWaiter& reader = node.client(R, 1);
  node.enter(reader);
  node.now = node.now + milliseconds(1);
  EXPECT_TRUE(node.leave_here());
  EXPECT_TRUE(granted(reader));
  LocalWaiter& other = node.client(R, 2);
  node.enter(other);
  EXPECT_FALSE(node.leave_here()) << "sections are long";
}

TEST(LocalLocks, AThreadIsSentToAWorkerWhereMoreIsToBeDone) {
  Node node{{PolicyKind::phase_fair}};
  ThreadOf first{node, W, 0};
  EXPECT_FALSE(node.enter_here(first.waiter)) << "nobody here has it";
  EXPECT_EQ(node.in_use(), 0u);
  EXPECT_FALSE(node.leave_here());
  EXPECT_EQ(node.enter(node.client(R, 0)), Entry::acquire);
  ThreadOf reader{node, R, 0};
  EXPECT_FALSE(node.enter_here(reader.waiter)) << "it has not come yet";
  node.locals.acquired({.lock = kLock, .mode = R, .waiting_since = remote_since(5)}, WorkerId{0},
                       node.now);
  ThreadOf early{node, R, 1};
  EXPECT_EQ(node.enter_here(early.waiter), Entry::joined);
  ThreadOf late{node, R, 10};
  EXPECT_FALSE(node.enter_here(late.waiter))
      << "somebody has to look whether the remote client has given up";
  EXPECT_TRUE(node.leave_here()) << "one of two readers";
  ThreadOf writer{node, W, 20};
  EXPECT_EQ(node.enter_here(writer.waiter), Entry::wait);
  EXPECT_FALSE(node.leave_here()) << "the remote client is next";
  EXPECT_FALSE(granted(writer.waiter));
}

// Epochs begin again when the memory node restarts, and so does the count.
TEST(LocalLocks, WrapsOfAnotherLifeOfTheLockAreNotRemembered) {
  cql::Record record;
  record.wraps = {{Epoch{1}, 1}, 7};
  EXPECT_EQ(record.wraps_in({Epoch{1}, 1}), 7u);
  EXPECT_FALSE(record.wraps_in({Epoch{2}, 1}));
  EXPECT_FALSE(record.wraps_in({Epoch{1}, 2}));
}

// A visit of the token, or a phase.
void begin_turn(Node& node, Mode mode, bool in_phase = false) {
  node.locals.acquired({.lock = kLock, .mode = mode, .in_phase = in_phase}, WorkerId{0}, node.now);
}

TEST(LocalLocks, AVisitServesTheWritersWhoWaitedWhenTheTokenCame) {
  Node node{{PolicyKind::token}};
  LocalWaiter& first = node.client(W, 0);
  LocalWaiter& second = node.client(W, 1);
  LocalWaiter& later = node.client(W, 2);
  EXPECT_EQ(node.enter(first), Entry::acquire);
  EXPECT_EQ(node.enter(second), Entry::wait);
  begin_turn(node, W);
  EXPECT_TRUE(granted(first));
  EXPECT_FALSE(granted(second));
  EXPECT_EQ(node.enter(later), Entry::wait);
  EXPECT_EQ(node.leave().kind, Kind::nothing);
  EXPECT_TRUE(granted(second));
  const auto leave = node.leave();
  EXPECT_EQ(leave.kind, Kind::release) << "who came meanwhile waits for the next visit";
  EXPECT_EQ(leave.successor.waiter, &later);
  EXPECT_FALSE(granted(later));
}

TEST(LocalLocks, AVisitServesNoMoreThanTheGate) {
  constexpr std::uint32_t kGate = 3;
  Node node{{.kind = PolicyKind::token, .gate = kGate}};
  for (std::uint16_t i = 0; i < 10; ++i) node.enter(node.client(W, i));
  begin_turn(node, W);
  for (std::uint32_t i = 1; i < kGate; ++i) EXPECT_EQ(node.leave().kind, Kind::nothing);
  EXPECT_EQ(node.leave().kind, Kind::release);
  begin_turn(node, W);
  EXPECT_EQ(node.leave().kind, Kind::nothing) << "another visit, another gate";
}

TEST(LocalLocks, AVisitPassesReadersOver) {
  Node node{{PolicyKind::token}};
  LocalWaiter& first = node.client(W, 0);
  LocalWaiter& reader = node.client(R, 1);
  LocalWaiter& second = node.client(W, 2);
  node.enter(first);
  node.enter(reader);
  node.enter(second);
  begin_turn(node, W);
  EXPECT_EQ(node.leave().kind, Kind::nothing);
  EXPECT_TRUE(granted(second));
  EXPECT_FALSE(granted(reader));
  const auto leave = node.leave();
  EXPECT_EQ(leave.kind, Kind::release);
  EXPECT_EQ(leave.successor.waiter, &reader);
}

TEST(LocalLocks, APhaseIsForTheReadersWhoWaitedWhenItCame) {
  Node node{{PolicyKind::token}};
  LocalWaiter& asker = node.client(W, 0);
  LocalWaiter& one = node.client(R, 1);
  LocalWaiter& writer = node.client(W, 2);
  LocalWaiter& other = node.client(R, 3);
  for (LocalWaiter* waiter : {&asker, &one, &writer, &other}) node.enter(*waiter);
  begin_turn(node, R, true);
  EXPECT_TRUE(granted(one) && granted(other));
  EXPECT_FALSE(granted(asker) || granted(writer));
  LocalWaiter& late = node.client(R, 4);
  EXPECT_EQ(node.enter(late), Entry::wait) << "nobody joins a phase";
  EXPECT_EQ(node.leave().kind, Kind::nothing);
  const auto leave = node.leave();
  EXPECT_EQ(leave.kind, Kind::release);
  EXPECT_EQ(leave.successor.waiter, &asker) << "it is at the head again";
  EXPECT_EQ(leave.successor.mode, W);
}

TEST(LocalLocks, NobodyJoinsAPhaseWhereOnlyReadersAre) {
  Node node{{PolicyKind::token}};
  LocalWaiter& reader = node.client(R, 0);
  LocalWaiter& late = node.client(R, 1);
  node.enter(reader);
  begin_turn(node, R, true);
  EXPECT_TRUE(granted(reader));
  EXPECT_EQ(node.enter(late), Entry::wait);
  using Try = LocalLocks::Try;
  EXPECT_EQ(node.locals.try_enter(node.client(R, 2), false, WorkerId{0}, node.now), Try::busy);
  const auto leave = node.leave();
  EXPECT_EQ(leave.kind, Kind::release);
  EXPECT_EQ(leave.successor.waiter, &late);
}

TEST(LocalLocks, ReadersJoinWhatIsSharedWithoutATokenAndLookBehindThemselves) {  // H25
  Node node{{PolicyKind::token}};
  node.acquire(R);
  node.now = Time{} + milliseconds(1);
  LocalWaiter& looks = node.client(R, 1000);
  EXPECT_EQ(node.enter(looks), Entry::look_and_go) << "a holder at once";
  EXPECT_EQ(node.enter(node.client(R, 1000)), Entry::joined);
  node.locals.looked(looks.behind, {Timestamp{500}}, node.now);
  EXPECT_EQ(node.enter(node.client(R, 1001)), Entry::wait) << "somebody waits elsewhere";
}

TEST(LocalLocks, APlaceOfTheTokensThatNobodyWantsIsPassedOn) {
  Node node{{PolicyKind::token}};
  LocalWaiter& writer = node.client(W, 0);
  writer.may_give_up = true;
  node.enter(writer);
  EXPECT_TRUE(node.locals.time_out(writer) || writer.is_late);
  node.locals.must_wait(kLock);
  EXPECT_EQ(writer.error, Errc::timed_out);
  EXPECT_EQ(node.locals.acquired({.lock = kLock, .mode = W}, WorkerId{0}, node.now).kind,
            Kind::release);
}

TEST(LocalLocks, TryingNeverWaits) {
  using Try = LocalLocks::Try;
  Node node{{PolicyKind::phase_fair}};
  const auto attempt = [&](LocalWaiter& waiter, bool asked) {
    return node.locals.try_enter(waiter, asked, WorkerId{0}, node.now);
  };
  LocalWaiter& first = node.client(R, 0);
  EXPECT_EQ(attempt(first, false), Try::ask_first);
  EXPECT_EQ(node.in_use(), 0u);
  EXPECT_EQ(attempt(first, true), Try::acquire);
  EXPECT_EQ(attempt(node.client(R, 1), false), Try::busy) << "it has not come yet";
  node.locals.acquired({.lock = kLock, .mode = R}, WorkerId{0}, node.now);
  EXPECT_EQ(attempt(node.client(R, 2), false), Try::joined);
  EXPECT_EQ(attempt(node.client(W, 3), false), Try::busy);
  node.now = Time{} + milliseconds(1);
  LocalWaiter& late = node.client(R, 1000);
  EXPECT_EQ(attempt(late, false), Try::look_first) << "H25 holds for those who try as well";
  node.locals.looked(late.behind, {Timestamp{500}}, node.now);
  EXPECT_EQ(attempt(late, false), Try::busy);
}

TEST(LocalLocks, WaitersAreToldOfAFailure) {
  Node node{{PolicyKind::phase_fair}};
  EXPECT_EQ(node.enter(node.client(W, 0)), Entry::acquire);
  LocalWaiter& waiter = node.client(W, 1);
  node.enter(waiter);
  node.locals.failed(kLock, Errc::stuck);
  EXPECT_FALSE(waiter.waiting);
  EXPECT_EQ(waiter.error, Errc::stuck);
  EXPECT_EQ(node.in_use(), 0u);
}

}  // namespace
}  // namespace declock::hier
