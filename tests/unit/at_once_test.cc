// Locks where operations take no time: one client that meets nobody, and what becomes of its hold when others come.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>

#include "hier/hier.h"
#include "member_shm/compute_node.h"
#include "support/soon.h"

namespace declock::hier {
namespace {

constexpr RemoteAddr kLock{MnId{0}, 0};
constexpr Mode R = Mode::shared;
constexpr Mode W = Mode::exclusive;

// Compute nodes in this process, each with one worker that the test runs.
class AtOnce : public testing::Test {
 protected:
  AtOnce() {
    config_.cluster.name = fmt::format("at-once-{}", getpid());
    config_.cluster.members = 2;
    config_.cluster.mn_bytes = 4096;
    // A process that had this number and was killed may have left one.
    (void)shm::remove_cluster(config_.cluster.directory, config_.cluster.name);
    for (int i = 0; i < 2; ++i) nodes_.emplace_back(config_, shape_);
  }
  ~AtOnce() override {
    tasks_.clear();
    nodes_.clear();
    (void)shm::remove_cluster(config_.cluster.directory, config_.cluster.name);
  }

  struct Node {
    Node(const member::ComputeNode::Config& config, const LockShape& shape)
        : process(std::move(*member::ComputeNode::join(config))),
          locks(shape, Policy{}, cql::Options{.patience = milliseconds(1)},
                std::vector<Station>{{&process->endpoint(0), &process->membership(0)}}) {}
    ~Node() { locks.stop(); }
    std::unique_ptr<member::ComputeNode> process;
    hier::Node locks;
    std::unique_ptr<TimedLockClient> client() { return locks.client(0); }
  };

  // Lets everything happen that can.
  void settle() {
    for (int i = 0; i < 20; ++i) {
      for (Node& node : nodes_) (void)node.process->worker(0).progress();
    }
  }
  struct Waiting {
    std::optional<Result<Hold>> got;
  };
  static Task<void> acquire(Worker&, LockClient& client, Mode mode, Waiting& waiting) {
    waiting.got = co_await client.acquire(kLock, mode);
  }
  Waiting& start(Node& node, LockClient& client, Mode mode) {
    Waiting& waiting = waiting_.emplace_back();
    tasks_.push_back(acquire(node.process->worker(0), client, mode, waiting));
    tasks_.back().start();
    return waiting;
  }
  Hold take(Node& node, LockClient& client, Mode mode) {
    const Waiting& waiting = start(node, client, mode);
    EXPECT_TRUE(waiting.got && *waiting.got);
    return waiting.got && *waiting.got ? **waiting.got : Hold{};
  }
  static bool release(Node& node, LockClient& client, const Hold& hold) {
    return static_cast<bool>(node.process->worker(0).run([&] { return client.release(hold); }));
  }
  Header header() { return shape_.header.decode(nodes_[0].process->cluster().word(kLock).load()); }

  LockShape shape_{2, 2, QueueLayout::owner};
  member::ComputeNode::Config config_;
  std::deque<Node> nodes_;
  std::deque<Waiting> waiting_;
  std::deque<Task<void>> tasks_;
};

TEST_F(AtOnce, ALoneClientCostsTwoOperations) {
  auto client = nodes_[0].client();
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Hold hold = take(nodes_[0], *client, i % 2 == 0 ? W : R);
    EXPECT_EQ(hold.ticket, Ticket{i});
    ASSERT_TRUE(release(nodes_[0], *client, hold));
  }
  const OpCounts& counts = nodes_[0].process->endpoint(0).counts();
  EXPECT_EQ(counts.of(Purpose::acquire), 100u);
  EXPECT_EQ(counts.of(Purpose::release), 100u);
  EXPECT_EQ(header(), (Header{Ticket{100}, 0, 0, Epoch{0}, ResetId{0}}));
}

// At once, as SharedMutex does it.
class NearLock : public AtOnce {
 protected:
  struct Near {
    Near(Node& node, const LockShape& lock_shape)
        : shape(lock_shape),
          requests(node.locks.requests()),
          record(requests.keep(kLock, lock_shape, 1)),
          words{node.process->endpoint(0).word_at(kLock)},
          mn_incarnation(node.process->endpoint(0).incarnation(kLock.mn)) {}
    ~Near() { requests.keep_no_longer(record); }
    bool acquire(Mode mode, Hold& hold) {
      const std::lock_guard guard{requests.mutex()};
      if (!acquire_at_once(record, words, shape, {}, mn_incarnation, mode)) return false;
      hold = record.local.hold;
      return true;
    }
    bool release() {
      const std::lock_guard guard{requests.mutex()};
      cql::Owing owing;
      return release_at_once(record, words, shape, {}, true, owing) == Released::yes;
    }
    const LockShape& shape;
    cql::Requests& requests;
    cql::Record& record;
    cql::WordsHere words;
    std::uint32_t mn_incarnation;
  };
  Near here_{nodes_[0], shape_};
  Near elsewhere_{nodes_[1], shape_};
  Hold hold_;
  Hold none_;
};

TEST_F(NearLock, IsAcquiredAndReleasedAsByFetchAndAdd) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(here_.acquire(i % 2 == 0 ? W : R, hold_));
    EXPECT_EQ(hold_.ticket, Ticket{i});
    EXPECT_EQ(header(), (Header{Ticket{i}, 1, i % 2 == 0 ? 1u : 0u, Epoch{0}, ResetId{0}}));
    ASSERT_TRUE(here_.release());
  }
  EXPECT_EQ(header(), (Header{Ticket{100}, 0, 0, Epoch{0}, ResetId{0}}));
  auto client = nodes_[0].client();
  ASSERT_TRUE(here_.acquire(W, hold_));
  ASSERT_TRUE(release(nodes_[0], *client, hold_)) << "it is the same hold";
  hold_ = take(nodes_[0], *client, W);
  ASSERT_TRUE(here_.release());
}

TEST_F(NearLock, IsLeftAsItIsWhereSomebodyIsInTheWay) {
  ASSERT_TRUE(here_.acquire(R, hold_));
  EXPECT_FALSE(here_.acquire(R, none_)) << "the node has it already (H34)";
  EXPECT_FALSE(elsewhere_.acquire(W, none_));
  EXPECT_TRUE(elsewhere_.acquire(R, none_)) << "readers share";
  EXPECT_EQ(header().qsize, 2u);
  ASSERT_TRUE(elsewhere_.release());
  ASSERT_TRUE(here_.release());
  EXPECT_FALSE(here_.release()) << "nobody holds it";
  EXPECT_EQ(header().qsize, 0u);
}

TEST_F(NearLock, AnotherClientOfTheNodeFindsTheHold) {
  auto client = nodes_[0].client();
  ASSERT_TRUE(here_.acquire(W, hold_));
  Waiting& waiting = start(nodes_[0], *client, W);
  settle();
  EXPECT_FALSE(here_.release()) << "somebody here waits for it";
  EXPECT_TRUE(release(nodes_[0], *client, hold_));
  settle();
  ASSERT_TRUE(waiting.got && *waiting.got);
  EXPECT_FALSE(here_.acquire(W, none_));
  EXPECT_TRUE(release(nodes_[0], *client, **waiting.got));
  EXPECT_TRUE(here_.acquire(W, hold_));
  EXPECT_TRUE(here_.release());
}

TEST_F(NearLock, WhoOwesAHandOverDoesNotLeaveItUndone) {
  auto client = nodes_[0].client();
  auto other = nodes_[1].client();
  ASSERT_TRUE(here_.acquire(W, hold_));
  Waiting& waiting = start(nodes_[1], *other, W);
  settle();
  EXPECT_EQ(header().qsize, 2u);
  cql::Owing owing;
  {
    const std::lock_guard guard{here_.requests.mutex()};
    ASSERT_EQ(release_at_once(here_.record, here_.words, shape_, {}, true, owing), Released::owing);
  }
  EXPECT_FALSE(may_act_at_once(here_.record)) << "until it is handed over";
  EXPECT_EQ(header().qsize, 1u);
  settle();
  EXPECT_FALSE(waiting.got);
  EXPECT_TRUE(nodes_[0].process->worker(0).run(
      [&] { return nodes_[0].locks.worker(0).cql().hand_over_behind(hold_, owing); }));
  EXPECT_TRUE(may_act_at_once(here_.record));
  settle();
  ASSERT_TRUE(waiting.got && *waiting.got);
  EXPECT_TRUE(release(nodes_[1], *other, **waiting.got));
}

// A thread that watches its entry, as NearLock of the library does.
struct Watcher {
  explicit Watcher(const member::Member& self, Ticket ticket, Mode mode)
      : key{kLock, {Epoch{0}, 1}, ticket},
        at(1u + self.slot.value),
        watching(encode(cql::entry_of(self, key, mode, {}, kWatching))) {}
  cql::GrantKey key;
  std::size_t at;
  std::uint64_t watching;
};

TEST_F(NearLock, WhoWatchesItsEntryIsGrantedTheLockThereWithoutAMessage) {
  const Watcher watcher{nodes_[1].process->membership(0).self(), Ticket{1}, W};
  ASSERT_TRUE(here_.acquire(W, hold_));
  (void)elsewhere_.words.add(0, shape_.header.acquire_delta(W));
  elsewhere_.words.store(watcher.at, watcher.watching);
  EXPECT_TRUE(here_.release());
  EXPECT_TRUE(may_act_at_once(here_.record));
  Entry granted = decode_entry(watcher.watching);
  granted.worker = kGrantedLast;
  EXPECT_EQ(decode_entry(elsewhere_.words.load(watcher.at)), granted);
  EXPECT_EQ(nodes_[0].process->endpoint(0).counts().messages, 0u);
}

TEST_F(NearLock, AGrantInPlaceSaysWhoWaitsBehindIt) {
  const Watcher first{nodes_[1].process->membership(0).self(), Ticket{1}, W};
  const Timestamp asked{77};
  ASSERT_TRUE(here_.acquire(W, hold_));
  for (int i = 0; i < 2; ++i) (void)elsewhere_.words.add(0, shape_.header.acquire_delta(W));
  elsewhere_.words.store(first.at, first.watching);
  Entry second = decode_entry(first.watching);
  second.tag = 2;
  second.timestamp = asked;
  here_.words.store(1u + nodes_[0].process->membership(0).self().slot.value, encode(second));
  EXPECT_TRUE(here_.release());
  const Entry granted = decode_entry(elsewhere_.words.load(first.at));
  EXPECT_EQ(granted.worker, kGranted);
  EXPECT_EQ(cql::behind_grant(granted), asked);
}

// Who sleeps is told by a message, though it watched when the queue was read.
TEST_F(NearLock, WhoNoLongerWatchesIsLeftToAWorker) {
  const Watcher watcher{nodes_[1].process->membership(0).self(), Ticket{1}, W};
  ASSERT_TRUE(here_.acquire(W, hold_));
  (void)elsewhere_.words.add(0, shape_.header.acquire_delta(W));
  Entry asleep = decode_entry(watcher.watching);
  asleep.worker = WorkerId{0};
  elsewhere_.words.store(watcher.at, encode(asleep));
  EXPECT_FALSE(cql::grant_in_place(here_.words, watcher.at, watcher.watching, {}));
  EXPECT_EQ(decode_entry(elsewhere_.words.load(watcher.at)), asleep);
  cql::Owing owing;
  const std::lock_guard guard{here_.requests.mutex()};
  EXPECT_EQ(release_at_once(here_.record, here_.words, shape_, {}, true, owing), Released::owing);
}

// Others may have taken this member for dead, and marked the entry, or given its slot to somebody else.
TEST_F(NearLock, OnlyAGrantOfThisWaitIsTakenForOne) {
  const Watcher watcher{nodes_[1].process->membership(0).self(), Ticket{1}, W};
  cql::Waiting waiting{.key = watcher.key, .mode = W};
  Entry left = decode_entry(watcher.watching);
  left.worker = kNobody;
  Entry of_another_wait = decode_entry(watcher.watching);
  of_another_wait.worker = kGrantedLast;
  of_another_wait.tag = 2;
  Entry of_another_epoch = decode_entry(watcher.watching);
  of_another_epoch.worker = kGrantedLast;
  of_another_epoch.epoch = Epoch{1};
  for (const Entry& entry : {left, of_another_wait, of_another_epoch}) {
    EXPECT_FALSE(cql::note_granted(waiting, entry, {}));
    EXPECT_EQ(waiting.state, cql::Waiting::State::waits);
  }
  Entry granted = decode_entry(watcher.watching);
  granted.worker = kGrantedLast;
  EXPECT_TRUE(cql::note_granted(waiting, granted, {}));
  EXPECT_EQ(waiting.state, cql::Waiting::State::granted);
}

// What a thread looks at first says the same as the verdict on the header's fields.
TEST(AtOnceShape, WhatSurelyGivesALockIsHeld) {
  const LockShape shape{8, 8, QueueLayout::owner};
  const cql::Record record;
  int surely = 0;
  for (const std::uint64_t ticket : {std::uint64_t{0}, shape.ticket_limit.value - 9,
                                     shape.ticket_limit.value - 1, shape.ticket_limit.value}) {
    for (std::uint32_t qsize = 0; qsize < 12; ++qsize) {
      for (std::uint32_t wcnt = 0; wcnt <= qsize; ++wcnt) {
        for (const std::uint16_t reset_id : {std::uint16_t{0}, std::uint16_t{5}}) {
          for (const Mode mode : {R, W}) {
            const Header header{Ticket{ticket}, qsize, wcnt, Epoch{3}, ResetId{reset_id}};
            const bool held = cql::verdict_on(header, mode, 1, record, shape, {}) == cql::Verdict::held;
            const bool given = shape.surely_gives(shape.header.encode(header), mode);
            EXPECT_TRUE(held || !given) << ticket << " " << qsize << " " << wcnt << " " << reset_id;
            surely += given ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_EQ(surely, 2 * (1 + 8)) << "of two early tickets, free or shared by up to 7";
}

TEST_F(NearLock, AResetIsNotPassedBy) {
  ASSERT_TRUE(here_.acquire(W, hold_));
  nodes_[1].locks.worker(0).cql().reset_for_nothing(kLock);
  settle();
  EXPECT_NE(header().reset_id, ResetId{0});
  ASSERT_FALSE(here_.release()) << "an answer is owed";
  EXPECT_FALSE(elsewhere_.acquire(W, none_)) << "it is being reset";
  auto client = nodes_[0].client();
  EXPECT_TRUE(release(nodes_[0], *client, hold_));
  settle();
  EXPECT_EQ(header().reset_id, ResetId{0});
  EXPECT_EQ(header().epoch, Epoch{1});
  EXPECT_FALSE(here_.acquire(W, none_)) << "it has to be seen first that the reset is over";
}

TEST_F(AtOnce, AnotherClientOfTheNodeFindsTheHoldAndQueuesBehindIt) {
  auto first = nodes_[0].client();
  auto second = nodes_[0].client();
  const Hold hold = take(nodes_[0], *first, W);
  Waiting& waiting = start(nodes_[0], *second, W);
  settle();
  EXPECT_FALSE(waiting.got);
  EXPECT_EQ(header().qsize, 1u) << "a node asks once (H34)";
  EXPECT_TRUE(release(nodes_[0], *first, hold));
  settle();
  ASSERT_TRUE(waiting.got && *waiting.got);
  EXPECT_EQ((**waiting.got).local_sequence, 1u) << "handed over here";
  EXPECT_TRUE(release(nodes_[0], *second, **waiting.got));
  EXPECT_EQ(header().qsize, 0u);
}

TEST_F(AtOnce, ReadersOfTheNodeShareAReadersHold) {
  auto first = nodes_[0].client();
  auto second = nodes_[0].client();
  const Hold hold = take(nodes_[0], *first, R);
  const Waiting& waiting = start(nodes_[0], *second, R);
  ASSERT_TRUE(waiting.got && *waiting.got);
  EXPECT_EQ(header().qsize, 1u);
  EXPECT_TRUE(release(nodes_[0], *first, hold));
  EXPECT_EQ(header().qsize, 1u) << "the second still holds it";
  EXPECT_TRUE(release(nodes_[0], *second, **waiting.got));
  EXPECT_EQ(header().qsize, 0u);
}

TEST_F(AtOnce, ABusyLockIsAwaitedWithOneEntryAndComesByAGrant) {
  auto holder = nodes_[0].client();
  auto waiter = nodes_[1].client();
  auto third = nodes_[1].client();
  const Hold hold = take(nodes_[0], *holder, W);
  Waiting& waiting = start(nodes_[1], *waiter, W);
  Waiting& behind = start(nodes_[1], *third, W);
  settle();
  const OpCounts& counts = nodes_[1].process->endpoint(0).counts();
  EXPECT_EQ(counts.of(OpKind::fetch_add, Purpose::acquire), 1u);
  EXPECT_EQ(counts.of(OpKind::write, Purpose::acquire), 1u);
  EXPECT_TRUE(release(nodes_[0], *holder, hold));
  settle();
  ASSERT_TRUE(waiting.got && *waiting.got);
  EXPECT_FALSE(behind.got);
  EXPECT_TRUE(release(nodes_[1], *waiter, **waiting.got));
  settle();
  ASSERT_TRUE(behind.got && *behind.got);
  EXPECT_TRUE(release(nodes_[1], *third, **behind.got));
  EXPECT_EQ(counts.of(Purpose::acquire), 2u) << "the node asked once";
  EXPECT_EQ(header().qsize, 0u);
}

// H8: whoever comes after a reset began must not get the lock by a local hand-over, also if it was acquired at once.
TEST_F(AtOnce, AResetOfAHoldIsRememberedByWhoeverComesNext) {
  auto holder = nodes_[0].client();
  auto next = nodes_[0].client();
  const Hold hold = take(nodes_[0], *holder, W);
  nodes_[1].locks.worker(0).cql().reset_for_nothing(kLock);
  settle();
  EXPECT_EQ(header().epoch, Epoch{0}) << "it waits for the holder (H9)";
  EXPECT_NE(header().reset_id, ResetId{0});
  Waiting& waiting = start(nodes_[0], *next, W);
  settle();
  EXPECT_TRUE(release(nodes_[0], *holder, hold));
  ASSERT_TRUE(soon([&] {
    settle();
    return waiting.got.has_value();
  }));
  ASSERT_TRUE(*waiting.got);
  EXPECT_EQ((**waiting.got).epoch, Epoch{1}) << "not what the node had of the epoch that was reset";
  EXPECT_TRUE(release(nodes_[0], *next, **waiting.got));
}

// After its answer to a reset a member adds nothing to the header until it has seen that the reset is over.
TEST_F(AtOnce, WhoHasAnsweredAResetDoesNotEnterBeforeItIsOver) {
  auto holder = nodes_[1].client();
  auto next = nodes_[0].client();
  const Hold hold = take(nodes_[1], *holder, R);
  nodes_[1].locks.worker(0).cql().reset_for_nothing(kLock);
  settle();
  const Header claimed = header();
  ASSERT_NE(claimed.reset_id, ResetId{0}) << "it waits for the holder, and for nobody else";
  Waiting& waiting = start(nodes_[0], *next, R);
  settle();
  EXPECT_FALSE(waiting.got);
  EXPECT_EQ(header(), claimed) << "nothing was added";
  EXPECT_EQ(nodes_[0].process->endpoint(0).counts().of(OpKind::fetch_add), 0u);
  EXPECT_TRUE(release(nodes_[1], *holder, hold));
  ASSERT_TRUE(soon([&] {
    settle();
    return waiting.got.has_value();
  }));
  ASSERT_TRUE(*waiting.got);
  EXPECT_TRUE(release(nodes_[0], *next, **waiting.got));
}

TEST_F(AtOnce, ALoneHolderAnswersAResetWhenItReleases) {
  auto holder = nodes_[0].client();
  const Hold hold = take(nodes_[0], *holder, R);
  nodes_[1].locks.worker(0).cql().reset_for_nothing(kLock);
  settle();
  EXPECT_EQ(header().epoch, Epoch{0});
  EXPECT_TRUE(release(nodes_[0], *holder, hold));
  settle();
  EXPECT_EQ(header(), (Header{Ticket{header().ticket}, 0, 0, Epoch{1}, ResetId{0}}));
}

Task<Errc> add_one(Endpoint& endpoint) {
  Op add = Op::fetch_add(kLock, 1, Purpose::data);
  const Result<void> posted = co_await endpoint.post(add);
  co_return posted ? Errc::ok : posted.error();
}

TEST_F(AtOnce, WhoIsEvictedChangesNothing) {  // F5
  member::ComputeNode& process = *nodes_[0].process;
  process.start();
  (void)unlink(process.cluster().file().path().c_str());
  (void)unlink(shm::memory_path_of(config_.cluster.directory, config_.cluster.name, 0).c_str());
  ASSERT_TRUE(soon([&] { return process.membership(0).evicted(); }));
  EXPECT_EQ(process.worker(0).run([&] { return add_one(process.endpoint(0)); }), Errc::evicted);
  auto client = nodes_[0].client();
  EXPECT_FALSE(process.worker(0).run([&] { return client->acquire(kLock, W); }));
  EXPECT_EQ(nodes_[1].process->cluster().word(kLock).load(), 0u);
  process.stop();
}

}  // namespace
}  // namespace declock::hier
