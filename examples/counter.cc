// Four processes add to one counter, under a lock that they know by its name. Whatever they add is there at the end.
#include <declock/declock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <stdexcept>

namespace {

constexpr int kProcesses = 4;
constexpr std::uint64_t kTimes = 1'000;

declock::Cluster join(const char* uri) {
  auto cluster = declock::Cluster::open(uri);
  if (!cluster) throw std::runtime_error(cluster.error().message);
  return *cluster;
}

declock::RemoteAddr counter_of(declock::Cluster& cluster) {
  const auto counter = cluster.allocate("example/counter", sizeof(std::uint64_t));
  if (!counter) throw std::runtime_error(counter.error().message);
  return *counter;
}

std::uint64_t value(declock::Cluster& cluster) {
  std::uint64_t n = 0;
  if (!cluster.read(counter_of(cluster), {&n, 1}))
    throw std::runtime_error("the counter cannot be read");
  return n;
}

void add(const char* uri) {
  declock::Cluster cluster = join(uri);
  const declock::RemoteAddr counter = counter_of(cluster);
  declock::SharedMutex mutex = cluster.shared_mutex("example/counter's lock");
  for (std::uint64_t i = 0; i < kTimes; ++i) {
    std::uint64_t n = 0;
    const std::lock_guard guard{mutex};
    if (!cluster.read(counter, {&n, 1})) throw std::runtime_error("the counter cannot be read");
    n += 1;
    if (!cluster.write(counter, {&n, 1})) throw std::runtime_error("the counter cannot be written");
  }
}

int run(const char* uri) {
  // A membership does not outlive a fork(), so processes are made before the cluster is opened. They wait for a byte
  // from this one, which is a member from before the first of them to after the last: else the memory of a cluster with
  // remove=yes might go in between.
  int go[2];
  if (pipe(go) != 0) throw std::runtime_error("no pipe");
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() == 0) {
      close(go[1]);
      char byte = 0;
      if (read(go[0], &byte, 1) != 1) return 1;
      add(uri);
      return 0;
    }
  }
  declock::Cluster cluster = join(uri);
  const std::uint64_t before = value(cluster);
  if (write(go[1], "....", kProcesses) != kProcesses) return 1;

  bool all_fine = true;
  for (int i = 0; i < kProcesses; ++i) {
    int status = 0;
    all_fine = wait(&status) > 0 && status == 0 && all_fine;
  }
  const std::uint64_t sum = value(cluster) - before;
  std::printf("%d processes added %llu times each: %llu\n", kProcesses,
              static_cast<unsigned long long>(kTimes), static_cast<unsigned long long>(sum));
  return all_fine && sum == kProcesses * kTimes ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "shm:declock-example-counter?remove=yes");
  } catch (const std::exception& error) {  // locking throws std::system_error
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
