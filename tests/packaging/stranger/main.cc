// Two processes count together in memory that belongs to neither of them.
#include <declock/declock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <string>

int main(int argc, char** argv) {
  constexpr std::uint64_t kTimes = 20'000;
  const bool is_first = argc == 1;
  const std::string uri =
      is_first ? "shm:stranger-" + std::to_string(getpid()) + "?remove=yes" : argv[1];
  auto cluster = declock::Cluster::open(uri);
  if (!cluster) return std::fprintf(stderr, "%s\n", cluster.error().message.c_str()), 1;
  const pid_t second = is_first ? fork() : -1;
  if (second == 0) execl(argv[0], argv[0], uri.c_str(), nullptr);

  const declock::RemoteAddr counter = *cluster->allocate("counter", 8);
  declock::SharedMutex mutex = cluster->shared_mutex("counter");
  std::uint64_t n = 0;
  for (std::uint64_t i = 0; i < kTimes; ++i) {
    std::lock_guard guard{mutex};
    if (!cluster->read(counter, {&n, 1})) return 1;
    n += 1;
    if (!cluster->write(counter, {&n, 1})) return 1;
  }
  if (!is_first) return 0;

  int status = -1;
  if (waitpid(second, &status, 0) != second || status != 0) return 1;
  if (!cluster->read(counter, {&n, 1})) return 1;
  std::printf("%llu of %llu\n", static_cast<unsigned long long>(n), 2ull * kTimes);
  return n == 2 * kTimes ? 0 : 1;
}
