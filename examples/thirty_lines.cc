// Adds to a counter that processes share. Start it several times at once: nothing is lost.
#include <declock/declock.h>

#include <cstdio>
#include <mutex>
#include <shared_mutex>

int main(int argc, char** argv) {
  const char* uri = argc > 1 ? argv[1] : "shm:declock-example-thirty-lines?remove=yes";
  auto cluster = declock::Cluster::open(uri);  // joins; makes the cluster if it is the first
  if (!cluster) {
    std::fprintf(stderr, "%s\n", cluster.error().message.c_str());
    return 1;
  }
  auto counter = cluster->allocate("counter", 8);  // memory of the cluster, zeroed
  if (!counter) return 1;
  declock::SharedMutex mutex = cluster->shared_mutex("counter's lock");

  std::uint64_t n = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::unique_lock guard{mutex};  // nobody else has it, in no process and on no machine
    if (!cluster->read(*counter, {&n, 1})) return 1;
    n += 1;
    if (!cluster->write(*counter, {&n, 1})) return 1;
  }
  std::shared_lock guard{mutex};  // together with other readers
  if (!cluster->read(*counter, {&n, 1})) return 1;
  std::printf("the counter is at %llu\n", static_cast<unsigned long long>(n));
  return n >= 10'000 ? 0 : 1;
}
