// Coroutines: many at a time on one thread, time-outs, cancellation, guards, lock and data at once.
#include "declock/client.h"

#include <array>
#include <chrono>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <vector>

#include "api/support.h"

namespace declock::api {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

class ClientTest : public WithFairness {
 protected:
  const std::string uri = fresh_uri(fairness());
  Cluster cluster = open(uri);
  Client client = *cluster.client();
  LockTable locks = *cluster.lock_table("locks", 100);
  RemoteAddr memory = *cluster.allocate("memory", 4096);
};

DECLOCK_WITH_FAIRNESS(ClientTest);

Task<int> answer() {
  co_return 42;
}
Task<int> thrown() {
  throw std::runtime_error{"no"};
  co_return 0;
}

TEST_P(ClientTest, RunGivesWhatTheCoroutineGivesOrThrows) {
  EXPECT_EQ(client.run(answer()), 42);
  EXPECT_THROW(client.run(thrown()), std::runtime_error);
}

Task<void> add(Client& client, LockRef lock, RemoteAddr at, int times, Errc& error) {
  for (int i = 0; i < times; ++i) {
    std::uint64_t n = 0;
    Result<Guard> guard = co_await client.lock_and_read(lock, at, {&n, 1});
    if (!guard) {
      error = guard.error();
      co_return;
    }
    if (i % 4 == 0) co_await client.sleep_for(10us);
    n += 1;
    const Result<void> done = co_await guard->write_and_unlock(at, {&n, 1});
    if (!done) error = done.error();
  }
}

TEST_P(ClientTest, HundredsOfCoroutinesCountRight) {
  Errc error = Errc::ok;
  for (int i = 0; i < 300; ++i) client.spawn(add(client, locks[0], memory, 5, error));
  client.run_all();
  EXPECT_EQ(error, Errc::ok);
  std::uint64_t n = 0;
  ASSERT_TRUE(cluster.read(memory, {&n, 1}));
  EXPECT_EQ(n, 300 * 5);
}

TEST_P(ClientTest, ClientsOfSeveralThreadsAndMutexesExcludeEachOther) {
  Errc error = Errc::ok;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        Client mine = *cluster.client();
        for (int i = 0; i < 20; ++i) mine.spawn(add(mine, locks[0], memory, 20, error));
        mine.run_all();
      });
    }
    threads.emplace_back([&] {
      SharedMutex mutex = cluster.shared_mutex(locks[0]);
      for (int i = 0; i < 200; ++i) {
        std::uint64_t n = 0;
        mutex.lock_and_read(memory, {&n, 1});
        n += 1;
        ASSERT_TRUE(mutex.write_and_unlock(memory, {&n, 1}));
      }
    });
  }
  EXPECT_EQ(error, Errc::ok);
  std::uint64_t n = 0;
  ASSERT_TRUE(cluster.read(memory, {&n, 1}));
  EXPECT_EQ(n, 3 * 20 * 20 + 200);
}

Task<void> guards(Client& client, LockRef lock) {
  {
    Result<Guard> guard = co_await client.lock(lock);
    EXPECT_TRUE(guard) << to_string(guard.error());
    EXPECT_EQ(guard->mode(), Mode::exclusive);
    EXPECT_EQ(guard->lock(), lock);
    EXPECT_EQ((co_await client.try_lock(lock)).error(), Errc::busy);
    EXPECT_EQ((co_await client.try_lock_shared(lock)).error(), Errc::busy);
  }  // releases itself
  Result<Guard> one = co_await client.lock_shared(lock);
  Result<Guard> two = co_await client.try_lock_shared(lock);
  EXPECT_TRUE(one && two);
  EXPECT_EQ((co_await client.try_lock(lock)).error(), Errc::busy);
  Guard moved = std::move(*one);
  EXPECT_FALSE(one->owns_lock());
  EXPECT_TRUE(moved.owns_lock());
  EXPECT_TRUE(co_await moved.unlock());
  EXPECT_FALSE(moved.owns_lock());
  two->unlock_behind();
  Result<Guard> again = co_await client.try_lock(lock);
  EXPECT_TRUE(again);
}

TEST_P(ClientTest, GuardsReleaseThemselves) {
  client.run(guards(client, locks[1]));
  SharedMutex mutex = cluster.shared_mutex(locks[1]);
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

Task<void> nap(Client& client) {
  co_await client.sleep_for(5ms);
}

Task<Result<Guard>> take(Client& client, LockRef lock) {
  co_return co_await client.lock(lock);
}

TEST_P(ClientTest, AGuardMayBeDestroyedOutsideAndAfterItsClient) {
  {
    Result<Guard> kept = client.run(take(client, locks[2]));
    ASSERT_TRUE(kept);
    const Client gone = std::move(client);
  }
  SharedMutex mutex = cluster.shared_mutex(locks[2]);
  EXPECT_TRUE(mutex.try_lock_for(kLong));
  mutex.unlock();
}

Task<Result<void>> unlock_twice(Client& client, LockRef lock) {
  Guard guard = std::move(*co_await client.lock(lock));
  (void)co_await guard.unlock();
  co_return co_await guard.unlock();
}

Task<Result<Token>> token_of_reader(Client& client, LockRef lock) {
  Guard guard = std::move(*co_await client.lock_shared(lock));
  co_return co_await guard.token();
}

TEST_P(ClientTest, MisuseEndsTheProgramWithASentence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child opens a cluster of its own
  EXPECT_DEATH((void)client.run(unlock_twice(client, locks[2])), "a Guard was used that holds no lock");
  EXPECT_DEATH((void)client.run(token_of_reader(client, locks[2])), "but it holds its lock shared");
  Guard guard = std::move(*client.run(take(client, locks[2])));
  EXPECT_DEATH((void)guard.unlock().operator co_await(), "used outside of its run");
}

TEST_P(ClientTest, AGuardMayOutliveTheCluster) {
  Result<Guard> kept = client.run(take(client, locks[2]));
  ASSERT_TRUE(kept);
  const auto closed = cluster.close();
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, Errc::busy);
  EXPECT_NE(closed.error().message.find("1 locks were still held"), std::string::npos)
      << closed.error().message;
  EXPECT_TRUE(cluster.close());  // once is enough
  // Who comes next removes the member that did not leave, and with it, at the end, the cluster.
  EXPECT_TRUE(open(uri).close());
  EXPECT_EQ(client.run(take(client, locks[3])).error(), Errc::closed);
  client.run(nap(client));
  client.spawn(nap(client));
  client.run_all();
}

Task<void> time_out(Client& client, LockRef lock) {
  const auto began = Steady::now();
  EXPECT_EQ((co_await client.try_lock_for(lock, 20ms)).error(), Errc::timed_out);
  EXPECT_GE(Steady::now() - began, 20ms);
  EXPECT_EQ((co_await client.try_lock_shared_until(lock, Steady::now() + 20ms)).error(),
            Errc::timed_out);
  EXPECT_GE(Steady::now() - began, 40ms);
  EXPECT_EQ((co_await client.try_lock_until(lock, Steady::time_point::min())).error(), Errc::timed_out);
}

TEST_P(ClientTest, TimeOutsAreNeverEarly) {
  SharedMutex mutex = cluster.shared_mutex(locks[4]);
  mutex.lock();
  client.run(time_out(client, locks[4]));
  mutex.unlock();
}

Task<Errc> wait_until_stopped(Client& client, LockRef lock, std::stop_token stop) {
  Result<Guard> guard = co_await client.lock(lock, stop);
  co_return guard ? Errc::ok : guard.error();
}

TEST_P(ClientTest, AWaitIsCancelledFromAnyThread) {
  SharedMutex mutex = cluster.shared_mutex(locks[5]);
  mutex.lock();
  std::stop_source stop;
  std::jthread canceller{[&] {
    EXPECT_TRUE(until_waiting(cluster, 1));
    stop.request_stop();
  }};
  EXPECT_EQ(client.run(wait_until_stopped(client, locks[5], stop.get_token())), Errc::cancelled);
  EXPECT_EQ(client.run(wait_until_stopped(client, locks[5], stop.get_token())), Errc::cancelled);
  mutex.unlock();
  EXPECT_EQ(client.run(wait_until_stopped(client, locks[5], std::stop_source{}.get_token())), Errc::ok);
  const Stats stats = cluster.stats();
  EXPECT_EQ(stats.tables[2].table, "locks");
  EXPECT_EQ(stats.tables[2].cancelled, 2);
}

Task<void> tokens(Client& client, LockRef lock, Token& last) {
  for (int i = 0; i < 5; ++i) {
    Result<Guard> guard = co_await client.lock(lock);
    const Result<Token> token = co_await guard->token();
    EXPECT_TRUE(token);
    EXPECT_LT(last, *token);
    last = *token;
  }
}

TEST_P(ClientTest, TokensGrowOverCoroutinesOfOneClient) {
  Token last{};
  for (int i = 0; i < 10; ++i) client.spawn(tokens(client, locks[6], last));
  client.run_all();
  EXPECT_LT(Token{}, last);
}

Task<void> wait_for(Client& client, LockRef lock, int& went_on) {
  Result<Guard> guard = co_await client.lock(lock);
  went_on += 1;
}
Task<void> fail_later(Client& client) {
  co_await client.sleep_for(1ms);
  throw std::runtime_error{"later"};
}

TEST_P(ClientTest, WhatASpawnedCoroutineThrowsRunAllThrows) {
  int went_on = 0;
  client.spawn(fail_later(client));
  client.spawn(wait_for(client, locks[7], went_on));
  EXPECT_THROW(client.run_all(), std::runtime_error);
  EXPECT_EQ(went_on, 1);
  client.run_all();
}

// Between two calls of run() nobody runs the application's coroutines: not even who answers other processes.
TEST_P(ClientTest, CoroutinesGoOnInsideRunAlone) {
  SharedMutex mutex = cluster.shared_mutex(locks[8]);
  mutex.lock();
  int went_on = 0;
  client.spawn(wait_for(client, locks[8], went_on));
  client.run(nap(client));
  mutex.unlock();
  // The client's worker gets the lock meanwhile.
  EXPECT_TRUE(soon([&] { return cluster.stats().tables[2].acquired_exclusive == 2; }));
  EXPECT_EQ(went_on, 0);
  client.run_all();
  EXPECT_EQ(went_on, 1);
}

Task<void> hold_for_a_while(Client& client, LockRef lock) {
  Result<Guard> guard = co_await client.lock(lock);
  co_await client.sleep_for(5ms);
}
Task<void> count(Client&, int& went_on) {
  went_on += 1;
  co_return;
}
Task<void> spawn_another(Client& client, int& went_on) {
  client.spawn(count(client, went_on));
  co_return;
}

TEST_P(ClientTest, ACoroutineMaySpawnAnother) {
  int went_on = 0;
  client.spawn(spawn_another(client, went_on));
  client.run_all();
  EXPECT_EQ(went_on, 1);
}

TEST_P(ClientTest, AClientIsNotGivenAWorkerOnWhichAThreadWaits) {
  SharedMutex mutex = cluster.shared_mutex(locks[10]);
  mutex.lock();
  std::vector<std::jthread> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back([&] {
      mutex.lock_shared();
      mutex.unlock_shared();
    });
  }
  EXPECT_TRUE(until_waiting(cluster, 4));
  for (int i = 0; i < 2; ++i) {
    Client another = *cluster.client();
    another.run(nap(another));
  }
  mutex.unlock();
}

TEST_P(ClientTest, CoroutinesOfAClientThatEndsGoOnToTheirEnd) {
  SharedMutex mutex = cluster.shared_mutex(locks[9]);
  int went_on = 0;
  {
    Client brief = *cluster.client();
    mutex.lock();
    brief.spawn(wait_for(brief, locks[9], went_on));
    brief.run(nap(brief));
    mutex.unlock();
    // One holds a lock and sleeps, the other waits for that.
    brief.spawn(hold_for_a_while(brief, locks[9]));
    brief.spawn(wait_for(brief, locks[9], went_on));
    brief.run(nap(brief));
  }
  EXPECT_EQ(went_on, 2);
  EXPECT_TRUE(mutex.try_lock_for(kLong));
  mutex.unlock();
}

TEST_P(ClientTest, WhatWasSpawnedIsDoneAlsoIfNothingRunsIt) {
  int went_on = 0;
  {
    Client brief = *cluster.client();
    brief.spawn(wait_for(brief, locks[9], went_on));
  }
  EXPECT_EQ(went_on, 1);
}

TEST_P(ClientTest, ThereAreAsManyClientsAsWorkersButOne) {
  std::vector<Client> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(*cluster.client());
  const auto more = cluster.client();
  ASSERT_FALSE(more);
  EXPECT_NE(more.error().message.find("workers="), std::string::npos);
  clients.pop_back();
  EXPECT_TRUE(cluster.client());
}

Task<void> odd_addresses(Client& client, RemoteAddr memory) {
  std::uint64_t word = 0;
  EXPECT_EQ((co_await client.lock(LockRef{memory + 4})).error(), Errc::invalid_argument);
  EXPECT_EQ((co_await client.read(memory + 1, {&word, 1})).error(), Errc::invalid_argument);
  EXPECT_EQ((co_await client.read({MnId{9}, 0}, {&word, 1})).error(), Errc::invalid_argument);
  EXPECT_EQ((co_await client.write(memory, {})).error(), Errc::invalid_argument);
  Result<Guard> guard = co_await client.lock(LockRef{memory});
  EXPECT_TRUE(guard);
  // Released in any case.
  EXPECT_EQ((co_await guard->write_and_unlock(memory + 4, {&word, 1})).error(), Errc::invalid_argument);
  EXPECT_TRUE(co_await client.try_lock(LockRef{memory}));
}

TEST_P(ClientTest, WrongAddressesAreRefusedAndNothingIsDone) {
  client.run(odd_addresses(client, memory));
}

}  // namespace
}  // namespace declock::api
