// declock::SharedMutex in place of std::shared_timed_mutex: what the standard library's own tests ask of one.
#include "declock/shared_mutex.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "api/support.h"

namespace declock::api {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

class SharedMutexTest : public WithFairness {
 protected:
  const std::string uri = fresh_uri(fairness());
  Cluster cluster = open(uri);
  SharedMutex mutex = cluster.shared_mutex("m");
};

DECLOCK_WITH_FAIRNESS(SharedMutexTest);

// What another thread sees of the mutex.
template <class Fn>
auto elsewhere(Fn fn) {
  decltype(fn()) result{};
  std::jthread{[&] { result = fn(); }}.join();
  return result;
}
bool try_lock_elsewhere(SharedMutex& m) {
  return elsewhere([&] {
    const bool got = m.try_lock();
    if (got) m.unlock();
    return got;
  });
}
bool try_lock_shared_elsewhere(SharedMutex& m) {
  return elsewhere([&] {
    const bool got = m.try_lock_shared();
    if (got) m.unlock_shared();
    return got;
  });
}

TEST_P(SharedMutexTest, LockExcludesEverybody) {
  mutex.lock();
  EXPECT_FALSE(try_lock_elsewhere(mutex));
  EXPECT_FALSE(try_lock_shared_elsewhere(mutex));
  mutex.unlock();
  EXPECT_TRUE(try_lock_elsewhere(mutex));
}

TEST_P(SharedMutexTest, SharedExcludesWritersAlone) {
  mutex.lock_shared();
  EXPECT_TRUE(try_lock_shared_elsewhere(mutex));
  EXPECT_FALSE(try_lock_elsewhere(mutex));
  mutex.unlock_shared();
  EXPECT_TRUE(try_lock_elsewhere(mutex));
}

TEST_P(SharedMutexTest, SeveralReadersAndTheLastOneLetsAWriterIn) {
  mutex.lock_shared();
  mutex.lock_shared();
  EXPECT_FALSE(try_lock_elsewhere(mutex));
  mutex.unlock_shared();
  EXPECT_FALSE(try_lock_elsewhere(mutex));
  mutex.unlock_shared();
  EXPECT_TRUE(try_lock_elsewhere(mutex));
}

TEST_P(SharedMutexTest, TryLockTakesAFreeOne) {
  ASSERT_TRUE(mutex.try_lock());
  EXPECT_FALSE(try_lock_elsewhere(mutex));
  mutex.unlock();
  ASSERT_TRUE(mutex.try_lock_shared());
  EXPECT_TRUE(try_lock_shared_elsewhere(mutex));
  EXPECT_FALSE(try_lock_elsewhere(mutex));
  mutex.unlock_shared();
}

// Waits for at least so long, and not for ever: that would hang.
template <class Try>
void expect_time_out(Try try_for) {
  const auto began = Steady::now();
  EXPECT_FALSE(try_for());
  EXPECT_GE(Steady::now() - began, 20ms);
}

TEST_P(SharedMutexTest, TimeOutsAreNeverEarly) {
  mutex.lock();
  elsewhere([&] {
    expect_time_out([&] { return mutex.try_lock_for(20ms); });
    expect_time_out([&] { return mutex.try_lock_shared_for(20ms); });
    expect_time_out([&] { return mutex.try_lock_until(Steady::now() + 20ms); });
    expect_time_out(
        [&] { return mutex.try_lock_shared_until(std::chrono::system_clock::now() + 20ms); });
    return 0;
  });
  mutex.unlock();
  mutex.lock_shared();
  elsewhere([&] {
    expect_time_out([&] { return mutex.try_lock_for(20ms); });
    EXPECT_TRUE(mutex.try_lock_shared_for(kLong));
    mutex.unlock_shared();
    return 0;
  });
  mutex.unlock_shared();
}

TEST_P(SharedMutexTest, TimesOfTheFractionOfATickAndOfThePastWork) {
  mutex.lock();
  elsewhere([&] {
    EXPECT_FALSE(mutex.try_lock_for(std::chrono::duration<double>(0.001)));
    EXPECT_FALSE(mutex.try_lock_for(std::chrono::duration<float, std::milli>(0.5F)));
    EXPECT_FALSE(mutex.try_lock_for(-1s));
    EXPECT_FALSE(mutex.try_lock_for(0ns));
    EXPECT_FALSE(mutex.try_lock_until(Steady::now() - 1h));
    EXPECT_FALSE(mutex.try_lock_until(Steady::time_point::min()));
    EXPECT_FALSE(mutex.try_lock_for(std::chrono::nanoseconds::min()));
    return 0;
  });
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock_for(std::chrono::hours::max()));  // does not overflow
  mutex.unlock();
  mutex.lock();
  std::atomic<int> got{0};
  {
    std::jthread for_ever{[&] { got += mutex.try_lock_until(Steady::time_point::max()) ? 1 : 0; }};
    EXPECT_TRUE(until_waiting(cluster, 1));
    EXPECT_EQ(got, 0);
    mutex.unlock();
  }
  EXPECT_EQ(got, 1);
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock_until(Steady::now() - 1h));  // it is free
  mutex.unlock();
}

// In nanoseconds none of these exists.
template <class Clock, class Duration>
void expect_never_and_long_ago() {
  using Point = std::chrono::time_point<Clock, Duration>;
  EXPECT_FALSE(detail::has_passed(Point::max()));
  EXPECT_TRUE(detail::has_passed(Point::min()));
  EXPECT_GT(detail::moment_at(Point::max()), Steady::now() + std::chrono::hours(24 * 300));
  const auto long_ago = detail::moment_at(Point::min());
  EXPECT_LE(long_ago, Steady::now());
}

TEST(Deadline, TimesThatNanosecondsDoNotReachAreFarAwayOrLongAgo) {
  expect_never_and_long_ago<std::chrono::system_clock, std::chrono::hours>();
  expect_never_and_long_ago<std::chrono::system_clock, std::chrono::seconds>();
  expect_never_and_long_ago<Steady, std::chrono::days>();
  expect_never_and_long_ago<Steady, std::chrono::nanoseconds>();
  EXPECT_FALSE(detail::has_passed(std::chrono::system_clock::now() + 1s));
  EXPECT_TRUE(detail::has_passed(std::chrono::system_clock::now() - 1us));
}

TEST_P(SharedMutexTest, UnlockingWhatIsNotHeldEndsTheProgram) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  mutex.lock();
  mutex.unlock();
  EXPECT_DEATH(mutex.unlock(), "");
}

// Its place in the queue cannot be taken back, and the holder may keep the lock for ever. If it waited it would hang: its
// patience is longer than a test may take.
TEST_P(SharedMutexTest, ClosingDoesNotWaitForALockThatWasGivenUp) {
  Cluster other = open(uri + "&patience=1000s");
  SharedMutex same = other.shared_mutex("m");
  mutex.lock();
  EXPECT_FALSE(same.try_lock_for(10ms));
  const auto closed = other.close();
  EXPECT_TRUE(closed) << closed.error().message;
  mutex.unlock();
  mutex.lock();  // the place was cleaned up
  mutex.unlock();
}

TEST_P(SharedMutexTest, ATimedWaitEndsWithTheLock) {
  mutex.lock();
  std::atomic<bool> got{false};
  std::jthread waiter{[&] {
    got = mutex.try_lock_for(1h);
    if (got) mutex.unlock();
  }};
  EXPECT_TRUE(until_waiting(cluster, 1));
  EXPECT_FALSE(got);
  mutex.unlock();
  waiter.join();
  EXPECT_TRUE(got);
}

TEST_P(SharedMutexTest, StandardLocksWork) {
  SharedMutex other = cluster.shared_mutex("other");
  {
    std::unique_lock lock{mutex};
    EXPECT_FALSE(try_lock_elsewhere(mutex));
    lock.unlock();
    EXPECT_TRUE(lock.try_lock_for(kLong));
  }
  {
    const std::shared_lock first{mutex};
    const std::shared_lock second{mutex, kLong};
    EXPECT_TRUE(second.owns_lock());
  }
  {
    const std::scoped_lock both{mutex, other};
    EXPECT_FALSE(try_lock_elsewhere(mutex));
    EXPECT_FALSE(try_lock_elsewhere(other));
  }
  EXPECT_TRUE(try_lock_elsewhere(mutex));
  EXPECT_TRUE(try_lock_elsewhere(other));
}

TEST_P(SharedMutexTest, ScopedLocksInOppositeOrderDoNotDeadlock) {
  SharedMutex other = cluster.shared_mutex("other");
  int count = 0;
  {
    std::jthread one{[&] {
      for (int i = 0; i < 500; ++i) {
        const std::scoped_lock both{mutex, other};
        ++count;
      }
    }};
    for (int i = 0; i < 500; ++i) {
      const std::scoped_lock both{other, mutex};
      ++count;
    }
  }
  EXPECT_EQ(count, 1000);
}

TEST_P(SharedMutexTest, AConditionVariableWaitsWithIt) {
  std::condition_variable_any changed;
  int turn = 0;
  std::jthread other{[&] {
    for (int i = 0; i < 50; ++i) {
      std::unique_lock lock{mutex};
      changed.wait(lock, [&] { return turn % 2 == 1; });
      ++turn;
      changed.notify_all();
    }
  }};
  for (int i = 0; i < 50; ++i) {
    std::unique_lock lock{mutex};
    changed.wait(lock, [&] { return turn % 2 == 0; });
    ++turn;
    changed.notify_all();
  }
  other.join();
  EXPECT_EQ(turn, 100);
}

// More threads than workers: some share one.
TEST_P(SharedMutexTest, ManyThreadsCountRight) {
  constexpr int kThreads = 20;
  constexpr int kEach = 300;
  int count = 0;
  std::atomic<bool> torn{false};
  std::array<int, 2> pair{};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          if (t % 4 == 0) {
            const std::shared_lock lock{mutex};
            if (pair[0] != pair[1]) torn = true;
          } else if (t % 4 == 1 && i % 3 == 0) {
            if (!mutex.try_lock_for(50us)) continue;
            ++pair[0];
            ++pair[1];
            mutex.unlock();
          } else {
            const std::unique_lock lock{mutex};
            ++pair[0];
            ++count;
            ++pair[1];
          }
        }
      });
    }
  }
  EXPECT_FALSE(torn);
  EXPECT_EQ(pair[0], pair[1]);
  EXPECT_GE(pair[0], count);
  EXPECT_EQ(cluster.stats().tables[1].acquired_exclusive, static_cast<std::uint64_t>(pair[0]));
}

TEST_P(SharedMutexTest, AnotherThreadMayUnlock) {
  mutex.lock();
  elsewhere([&] {
    mutex.unlock();
    return 0;
  });
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST_P(SharedMutexTest, TokensGrow) {
  Token last{};
  for (int i = 0; i < 100; ++i) {
    const std::unique_lock lock{mutex};
    const Token token = mutex.token();
    EXPECT_LT(last, token);
    last = token;
  }
}

TEST_P(SharedMutexTest, LockAndDataTogether) {
  const RemoteAddr at = *cluster.allocate("pair", 16);
  for (std::uint64_t i = 0; i < 100; ++i) {
    std::array<std::uint64_t, 2> words{7, 7};
    mutex.lock_and_read(at, words);
    EXPECT_EQ(words[0], i);
    EXPECT_EQ(words[1], 2 * i);
    words = {i + 1, 2 * (i + 1)};
    ASSERT_TRUE(mutex.write_and_unlock(at, words));
  }
  std::array<std::uint64_t, 2> words{};
  mutex.lock_shared_and_read(at, words);
  EXPECT_EQ(words[1], 200);
  EXPECT_TRUE(mutex.unlock_shared_checked());
}

TEST_P(SharedMutexTest, ErrorsAreSystemErrors) {
  SharedMutex beyond{cluster, LockRef{{MnId{0}, std::uint64_t{1} << 40}}};
  try {
    beyond.lock();
    FAIL() << "that address is beyond the memory";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), make_error_code(Errc::invalid_argument));
    EXPECT_EQ(error.code(), std::errc::invalid_argument);
  }
  ASSERT_TRUE(cluster.close());
  EXPECT_THROW(mutex.lock(), std::system_error);
  EXPECT_THROW(cluster.shared_mutex("x"), std::system_error);
}

// ---------------------------------------------------------------- processes

class SharedMutexProcesses : public WithFairness {};
DECLOCK_WITH_FAIRNESS(SharedMutexProcesses);

TEST_P(SharedMutexProcesses, CountRightTogether) {
  const std::string uri = fresh_uri(fairness());
  constexpr int kEach = 500;
  const auto add = [&] {
    Cluster cluster = open(uri);
    SharedMutex mutex = cluster.shared_mutex("counter");
    const RemoteAddr at = *cluster.allocate("counter", 8);
    for (int i = 0; i < kEach; ++i) {
      const std::unique_lock lock{mutex};
      std::uint64_t n = 0;
      if (!cluster.read(at, {&n, 1})) return 1;
      n += 1;
      if (!cluster.write(at, {&n, 1})) return 1;
    }
    return 0;
  };
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  Child reader{[&] {  // a member throughout: the cluster goes with its last one
    Cluster cluster = open(uri);
    (void)!write(ready[1], "x", 1);
    if (add() != 0) return 1;
    const RemoteAddr at = *cluster.allocate("counter", 8);
    std::uint64_t n = 0;
    const bool all = soon([&] { return cluster.read(at, {&n, 1}) && n >= 3 * kEach; });
    return all && n == 3 * kEach ? 0 : 1;
  }};
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  Child one{add};
  Child two{add};
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(two.wait(), 0);
  EXPECT_EQ(reader.wait(), 0);
}

TEST_P(SharedMutexProcesses, AHolderThatIsKilledIsFollowedByTheNext) {
  const std::string uri = fresh_uri(fairness());
  std::array<int, 2> held{};
  ASSERT_EQ(pipe(held.data()), 0);
  Child holder{[&]() -> int {
    Cluster cluster = open(uri);
    SharedMutex mutex = cluster.shared_mutex("m");
    mutex.lock();
    (void)!write(held[1], "x", 1);
    for (;;) pause();
  }};
  char byte = 0;
  ASSERT_EQ(read(held[0], &byte, 1), 1);
  Cluster cluster = open(uri);
  SharedMutex mutex = cluster.shared_mutex("m");
  EXPECT_FALSE(mutex.try_lock());
  holder.kill(SIGKILL);
  EXPECT_TRUE(mutex.try_lock_for(kLong));
  mutex.unlock();
  EXPECT_TRUE(cluster.close());
}

TEST_P(SharedMutexTest, WhatIsHeldWhenTheClusterIsClosedIsGivenUp) {
  SharedMutex orders = cluster.shared_mutex("orders");
  SharedMutex others = cluster.shared_mutex("others");
  orders.lock();
  others.lock_shared();
  EXPECT_FALSE(cluster.close());
  EXPECT_EQ(orders.unlock_checked().error(), Errc::closed);
  others.unlock_shared();
  EXPECT_THROW((void)orders.token(), std::system_error);
  EXPECT_THROW(orders.lock(), std::system_error);
}

TEST_P(SharedMutexTest, UnlockingWhatNobodyHoldsEndsTheProgramWithASentence) {
  SharedMutex orders = cluster.shared_mutex("orders");
  const std::uint64_t word = 0;
  EXPECT_DEATH(orders.unlock(), "the lock 'orders' was unlocked, but nobody holds it exclusively");
  EXPECT_DEATH(orders.unlock_shared(), "the lock 'orders' was unlocked, but nobody holds it shared");
  EXPECT_DEATH((void)orders.unlock_checked(), "'orders' was unlocked, but");
  EXPECT_DEATH((void)orders.write_and_unlock({}, {&word, 1}), "'orders' was unlocked, but");
  EXPECT_DEATH((void)orders.token(), "'orders' was asked for a token, but nobody holds it");
  orders.lock();
  orders.unlock();
  EXPECT_DEATH(orders.unlock(), "'orders' was unlocked, but") << "once is enough";
}

}  // namespace
}  // namespace declock::api
