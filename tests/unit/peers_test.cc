#include <gtest/gtest.h>

#include "peers/ideal.h"
#include "support/lab.h"

namespace declock {
namespace {

TEST(Ideal, IsPhaseFairAndCostsNothing) {
  Lab lab{4};
  peers::IdealLocks locks;
  std::deque<peers::IdealLock> clients;
  for (auto& node : lab.nodes) clients.emplace_back(locks, node.endpoint);
  std::array<Visit, 4> seen;
  const auto go = [&](std::size_t i, Mode mode) {
    lab.start(visit(lab.nodes[i].worker, clients[i], Lab::kLock, mode, microseconds(10), seen[i]));
    lab.run(microseconds(1));
  };
  go(0, Mode::exclusive);
  go(1, Mode::exclusive);
  go(2, Mode::shared);
  go(3, Mode::shared);
  EXPECT_TRUE(seen[0].entered);
  EXPECT_FALSE(seen[1].entered || seen[2].entered || seen[3].entered);
  lab.run(microseconds(8));  // the writer has left: both readers, before the writer that came first
  EXPECT_TRUE(seen[0].left && seen[2].entered && seen[3].entered);
  EXPECT_FALSE(seen[1].entered);
  lab.run(microseconds(10));
  EXPECT_TRUE(seen[2].left && seen[3].left && seen[1].entered);
  lab.run(microseconds(10));
  EXPECT_TRUE(lab.all_done());
  EXPECT_EQ(lab.engine.counts().of(Purpose::acquire) + lab.engine.counts().of(Purpose::release), 0u);
  EXPECT_EQ(lab.engine.counts().messages, 0u);
}

TEST(Ideal, AReaderDoesNotPassAWaitingWriter) {
  Lab lab{3};
  peers::IdealLocks locks;
  EXPECT_TRUE(locks.try_enter(Lab::kLock, Mode::shared));
  EXPECT_TRUE(locks.try_enter(Lab::kLock, Mode::shared));
  EXPECT_FALSE(locks.try_enter(Lab::kLock, Mode::exclusive));
  locks.wait(Lab::kLock, Mode::exclusive, {&lab.nodes[0].worker, std::noop_coroutine()});
  EXPECT_FALSE(locks.try_enter(Lab::kLock, Mode::shared));
}

// What goes on at one lock without any time in between: who is inside, and who has been.
class Turns {
 public:
  explicit Turns(peers::IdealLocks& locks) : locks_(locks) {}

  // False: it waits.
  bool come(Mode mode) {
    tasks_.push_back(stay(mode));
    const std::uint32_t before = inside_[index(mode)];
    tasks_.back().start();
    return inside_[index(mode)] > before;
  }
  void leave(Mode mode) {
    lab_.start(go(mode));
    lab_.run(microseconds(1));
  }
  std::uint32_t readers() const { return inside_[index(Mode::shared)]; }
  std::uint32_t writers() const { return inside_[index(Mode::exclusive)]; }

 private:
  static std::size_t index(Mode mode) { return mode == Mode::exclusive ? 1 : 0; }
  Task<void> stay(Mode mode) {
    co_await client_.acquire(Lab::kLock, mode);
    inside_[index(mode)] += 1;
  }
  Task<void> go(Mode mode) {
    co_await lab_.nodes[0].worker.sleep_for(Duration{1});
    inside_[index(mode)] -= 1;
    locks_.leave(Lab::kLock, mode);
  }

  Lab lab_{1};
  peers::IdealLocks& locks_;
  peers::IdealLock client_{locks_, lab_.nodes[0].endpoint};
  std::array<std::uint32_t, 2> inside_{};
  std::deque<Task<void>> tasks_;
};

TEST(IdealGroup, LetsInAllWaitingReadersBehindTheWritersThatWaitedWhenTheirPhaseBegan) {
  peers::IdealLocks locks{3};
  Turns turns{locks};
  EXPECT_TRUE(turns.come(Mode::shared));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(turns.come(Mode::exclusive));
  turns.leave(Mode::shared);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(turns.come(Mode::shared));
  for (int phase_left = 3; phase_left > 0; --phase_left) {
    ASSERT_EQ(turns.writers(), 1u);
    ASSERT_EQ(turns.readers(), 0u);
    EXPECT_FALSE(turns.come(Mode::shared));
    EXPECT_FALSE(turns.come(Mode::exclusive));  // not of this phase
    turns.leave(Mode::exclusive);
  }
  EXPECT_EQ(turns.writers(), 0u);
  EXPECT_EQ(turns.readers(), 7u) << "all of them, those that came during the phase as well";
}

TEST(IdealGroup, ReadersJoinThoseInsideUntilAsManyHaveLeftAsAWriterFound) {
  peers::IdealLocks locks{peers::IdealLocks::kWritersInGroup};
  Turns turns{locks};
  EXPECT_TRUE(turns.come(Mode::shared));
  EXPECT_TRUE(turns.come(Mode::shared));
  EXPECT_FALSE(turns.come(Mode::exclusive));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(turns.come(Mode::shared));
  turns.leave(Mode::shared);
  EXPECT_TRUE(turns.come(Mode::shared));
  turns.leave(Mode::shared);
  EXPECT_FALSE(turns.come(Mode::shared)) << "the writer is not starved";
  while (turns.readers() > 0) turns.leave(Mode::shared);
  EXPECT_EQ(turns.writers(), 1u);
}

TEST(IdealGroup, ReadersWaitForOneGroupOfWritersAtMost) {
  peers::IdealLocks locks{peers::IdealLocks::kWritersInGroup};
  Turns turns{locks};
  EXPECT_TRUE(turns.come(Mode::shared));
  for (int i = 0; i < 200; ++i) turns.come(Mode::exclusive);
  turns.leave(Mode::shared);
  EXPECT_FALSE(turns.come(Mode::shared));
  for (std::uint32_t i = 0; i < peers::IdealLocks::kWritersInGroup; ++i) {
    ASSERT_EQ(turns.writers(), 1u);
    ASSERT_EQ(turns.readers(), 0u);
    turns.leave(Mode::exclusive);
  }
  EXPECT_EQ(turns.writers(), 0u);
  EXPECT_EQ(turns.readers(), 1u);
}

TEST(IdealGroup, WritersAloneTakeNoBreaks) {
  peers::IdealLocks locks{2};
  Turns turns{locks};
  EXPECT_TRUE(turns.come(Mode::exclusive));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(turns.come(Mode::exclusive));
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(turns.writers(), 1u);
    turns.leave(Mode::exclusive);
  }
  EXPECT_TRUE(turns.come(Mode::shared));
}

}  // namespace
}  // namespace declock
