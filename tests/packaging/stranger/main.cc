// Started twice at once: both count, in memory that belongs to neither of them.
#include <declock/declock.h>

#include <cstdio>
#include <mutex>

int main(int argc, char** argv) {
  auto cluster = declock::Cluster::open(argc > 1 ? argv[1] : "shm:stranger?remove=yes");
  if (!cluster) return std::puts(cluster.error().message.c_str()), 1;
  const declock::RemoteAddr counter = *cluster->allocate("counter", 8);
  declock::SharedMutex mutex = cluster->shared_mutex("counter's lock");
  std::uint64_t n = 0;
  for (int mine = 0; n < 4'000; ++mine) {  // the other one adds 2,000 as well
    std::lock_guard guard{mutex};
    if (!cluster->read(counter, {&n, 1})) return 1;
    if (mine == 2'000) std::puts("waits for the other one");
    if (mine >= 2'000) continue;
    n += 1;
    if (!cluster->write(counter, {&n, 1})) return 1;
  }
  return n == 4'000 ? 0 : 1;
}
