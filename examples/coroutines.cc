// A client with hundreds of coroutines on one thread: they wait for locks at the same time, with time-outs, and one is
// told to stop. A token tells a storage service which holder is the later one.
#include <declock/declock.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>

using namespace std::chrono_literals;

namespace {

struct Tally {
  int added = 0;
  int failed = 0;
  int timed_out = 0;
  int cancelled = 0;
  int gave_up = 0;  // for whatever reason
  bool tokens_grow = true;
  declock::Token last{};
};

declock::Task<void> add(declock::Client& client, declock::LockRef lock, declock::RemoteAddr counter,
                        Tally& tally) {
  std::uint64_t n = 0;
  auto guard = co_await client.lock_and_read(lock, counter, {&n, 1});
  if (!guard) {
    tally.failed += 1;
    co_return;
  }
  const auto token = co_await guard->token();
  tally.tokens_grow = tally.tokens_grow && token && tally.last < *token;
  if (token) tally.last = *token;
  n += 1;
  const auto done = co_await guard->write_and_unlock(counter, {&n, 1});
  (done ? tally.added : tally.failed) += 1;
}

// Others go on while a coroutine sleeps, but not those that want its lock: it holds until so many have given up.
declock::Task<void> hold(declock::Client& client, declock::LockRef lock, const Tally& tally,
                         int others) {
  const auto guard = co_await client.lock(lock);
  while (guard && tally.gave_up < others) co_await client.sleep_for(1ms);
}  // the guard releases

declock::Task<void> not_for_long(declock::Client& client, declock::LockRef lock, Tally& tally) {
  const auto guard = co_await client.try_lock_for(lock, 20ms);
  if (!guard) tally.gave_up += 1;
  if (!guard && guard.error() == declock::Errc::timed_out) tally.timed_out += 1;
}

declock::Task<void> until_told(declock::Client& client, declock::LockRef lock, std::stop_token stop,
                               Tally& tally) {
  const auto guard = co_await client.lock(lock, stop);
  if (!guard) tally.gave_up += 1;
  if (!guard && guard.error() == declock::Errc::cancelled) tally.cancelled += 1;
}

template <class T>
T need(declock::Result<T, declock::Error> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return *std::move(result);
}

int run(const char* uri) {
  constexpr int kAdders = 400;
  constexpr int kHasty = 100;
  declock::Cluster cluster = need(declock::Cluster::open(uri));
  const declock::LockTable locks = need(cluster.lock_table("example/locks", 2));
  const declock::RemoteAddr counter = need(cluster.allocate("example/count", 8));
  declock::Client client = need(cluster.client());
  Tally tally;

  std::uint64_t before = 0;
  std::uint64_t after = 0;
  if (!cluster.read(counter, {&before, 1})) return 1;
  for (int i = 0; i < kAdders; ++i) client.spawn(add(client, locks[0], counter, tally));
  client.run_all();
  if (!cluster.read(counter, {&after, 1})) return 1;
  std::printf("%d coroutines added: %llu; %s token grew\n", kAdders,
              static_cast<unsigned long long>(after - before),
              tally.tokens_grow ? "every" : "not every");

  client.spawn(hold(client, locks[1], tally, kHasty + 1));
  for (int i = 0; i < kHasty; ++i) client.spawn(not_for_long(client, locks[1], tally));
  std::stop_source stop;
  client.spawn(until_told(client, locks[1], stop.get_token(), tally));
  std::jthread other{[&] {  // a stop may be requested from any thread
    std::this_thread::sleep_for(50ms);
    stop.request_stop();
  }};
  client.run_all();
  std::printf("behind one that held on: %d of %d timed out after 20 ms, %d cancelled after 50 ms\n",
              tally.timed_out, kHasty, tally.cancelled);
  return after - before == kAdders && tally.added == kAdders && tally.failed == 0 &&
                 tally.tokens_grow && tally.timed_out == kHasty && tally.cancelled == 1
             ? 0
             : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "shm:declock-example-coroutines?remove=yes");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
