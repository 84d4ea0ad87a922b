// An object with its lock inside, in the memory of a memory node. Two processes move money between its two balances: one
// with a SharedMutex, one with coroutines. Locking brings the object along, and releasing writes it back: where nobody is
// in the way, two messages to the memory node for all of it.
#include <declock/declock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>

namespace {

constexpr std::uint64_t kTransfers = 1'000;

// Behind the lock, in words.
struct Account {
  std::uint64_t left = 0;
  std::uint64_t right = 0;
  std::uint64_t transfers = 0;
};
using Words = std::array<std::uint64_t, sizeof(Account) / 8>;

// | lock, lock_bytes() | left | right | transfers |
struct Place {
  declock::LockRef lock;
  declock::RemoteAddr data;
};

declock::Cluster join(const char* uri) {
  auto cluster = declock::Cluster::open(uri);
  if (!cluster) throw std::runtime_error(cluster.error().message);
  return *cluster;
}

// Memory comes zeroed, and a zeroed lock is a free lock: nothing to initialise.
Place place_of(declock::Cluster& cluster) {
  const auto at = cluster.allocate("example/account", cluster.lock_bytes() + sizeof(Account));
  if (!at) throw std::runtime_error(at.error().message);
  return {declock::LockRef{*at}, *at + cluster.lock_bytes()};
}

// Moves one from left to right. Wraps around below zero: the sum stays what it was.
void transfer(Words& account) {
  account[0] -= 1;
  account[1] += 1;
  account[2] += 1;
}

void with_a_mutex(const char* uri) {
  declock::Cluster cluster = join(uri);
  const Place place = place_of(cluster);
  declock::SharedMutex mutex = cluster.shared_mutex(place.lock);
  for (std::uint64_t i = 0; i < kTransfers; ++i) {
    Words account;
    mutex.lock_and_read(place.data, account);
    transfer(account);
    if (!mutex.write_and_unlock(place.data, account)) throw std::runtime_error("the hold was void");
  }
}

declock::Task<bool> with_coroutines(declock::Client& client, Place place) {
  for (std::uint64_t i = 0; i < kTransfers; ++i) {
    Words account;
    auto guard = co_await client.lock_and_read(place.lock, place.data, account);
    if (!guard) co_return false;
    transfer(account);
    if (!co_await guard->write_and_unlock(place.data, account)) co_return false;
  }
  co_return true;
}

declock::Task<Words> look(declock::Client& client, Place place) {
  Words account{};
  const auto guard = co_await client.lock_shared_and_read(place.lock, place.data, account);
  if (!guard) throw std::system_error(guard.error());
  co_return account;  // the guard goes, and releases
}

int run(const char* uri) {
  int go[2];  // as in counter.cc: the child joins while this process is a member
  if (pipe(go) != 0) throw std::runtime_error("no pipe");
  if (fork() == 0) {
    close(go[1]);
    char byte = 0;
    if (read(go[0], &byte, 1) != 1) return 1;
    with_a_mutex(uri);
    return 0;
  }
  declock::Cluster cluster = join(uri);
  const Place place = place_of(cluster);
  auto client = cluster.client();
  if (!client) throw std::runtime_error(client.error().message);
  const Words before = client->run(look(*client, place));
  if (write(go[1], ".", 1) != 1) return 1;

  const bool here = client->run(with_coroutines(*client, place));
  int status = 0;
  const bool there = wait(&status) > 0 && status == 0;
  const Words account = client->run(look(*client, place));
  const std::uint64_t transfers = account[2] - before[2];
  const std::uint64_t sum = account[0] + account[1];
  std::printf("a lock of %llu bytes, an object of %zu behind it\n",
              static_cast<unsigned long long>(cluster.lock_bytes()), sizeof(Account));
  std::printf("%llu transfers by two processes; the balances add up to %llu\n",
              static_cast<unsigned long long>(transfers), static_cast<unsigned long long>(sum));
  return here && there && transfers == 2 * kTransfers && sum == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "shm:declock-example-embedded-object?remove=yes");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
