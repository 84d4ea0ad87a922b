// A lock of a cluster with the locks of the standard library: unique_lock, shared_lock, scoped_lock over two,
// condition_variable_any, try_lock_for. The threads could as well be in different processes, but for the condition
// variable, which is one of this process.
#include <declock/declock.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>

using namespace std::chrono_literals;

namespace {

int failures = 0;

void expect(bool fine, const char* what) {
  std::printf("%-60s %s\n", what, fine ? "yes" : "NO");
  if (!fine) failures += 1;
}

// Two locks at once, in either order: std::scoped_lock avoids the deadlock.
void two_at_once(declock::SharedMutex& a, declock::SharedMutex& b) {
  int from = 1000;
  int to = 0;
  const auto move = [&](declock::SharedMutex& first, declock::SharedMutex& second) {
    for (int i = 0; i < 500; ++i) {
      const std::scoped_lock both{first, second};
      from -= 1;
      to += 1;
    }
  };
  {
    std::jthread one{[&] { move(a, b); }};
    std::jthread other{[&] { move(b, a); }};
  }
  expect(from == 0 && to == 1000, "scoped_lock: two threads, two locks, nothing lost");
}

void readers_together(declock::SharedMutex& mutex) {
  std::atomic<int> inside = 0;
  std::atomic<bool> met = false;
  const auto latest = std::chrono::steady_clock::now() + 2min;  // somebody else may need the cores
  const auto read = [&] {
    const std::shared_lock guard{mutex};
    inside += 1;
    while (!met && std::chrono::steady_clock::now() < latest) {
      if (inside == 2) met = true;
      std::this_thread::sleep_for(1ms);
    }
  };
  {
    std::jthread one{read};
    std::jthread other{read};
  }
  expect(met, "shared_lock: two readers at the same time");
}

void not_for_ever(declock::SharedMutex& mutex) {
  const std::unique_lock mine{mutex};
  bool got = true;
  std::chrono::steady_clock::duration took{};
  std::jthread{[&] {
    const auto start = std::chrono::steady_clock::now();
    got = mutex.try_lock_for(50ms);
    took = std::chrono::steady_clock::now() - start;
    if (got) mutex.unlock();
  }}.join();
  expect(!got && took >= 50ms, "try_lock_for: gives up after 50 ms, and not before");
}

void waiting_for_news(declock::SharedMutex& mutex) {
  std::condition_variable_any changed;
  bool ready = false;
  bool heard = false;
  {
    std::jthread listener{[&] {
      std::unique_lock guard{mutex};
      heard = changed.wait_for(guard, 2min, [&] { return ready; });
    }};
    {
      const std::unique_lock guard{mutex};
      ready = true;
    }
    changed.notify_all();
  }
  expect(heard, "condition_variable_any: a listener hears of it");
}

void checked_release(declock::SharedMutex& mutex) {
  std::unique_lock guard{mutex};
  const declock::Token first = mutex.token();
  guard.release();  // from here on by hand: unlock() would not say whether the hold was good to the end
  const bool good = mutex.unlock_checked().has_value();
  guard = std::unique_lock{mutex};
  expect(good && first < mutex.token(), "unlock_checked: the hold was good; the next token is larger");
}

}  // namespace

int main(int argc, char** argv) {
  auto cluster =
      declock::Cluster::open(argc > 1 ? argv[1] : "shm:declock-example-std-adapters?remove=yes");
  if (!cluster) {
    std::fprintf(stderr, "%s\n", cluster.error().message.c_str());
    return 1;
  }
  try {
    declock::SharedMutex a = cluster->shared_mutex("example/a");
    declock::SharedMutex b = cluster->shared_mutex("example/b");
    two_at_once(a, b);
    readers_together(a);
    not_for_ever(a);
    waiting_for_news(b);
    checked_release(a);
  } catch (const std::system_error& error) {
    if (error.code() == declock::Errc::evicted) std::fprintf(stderr, "taken for dead; open again\n");
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  const auto closed =
      cluster->close();  // waits for releases, and says if one of them found that its hold was void
  if (!closed) std::fprintf(stderr, "%s\n", closed.error().message.c_str());
  return closed && failures == 0 ? 0 : 1;
}
