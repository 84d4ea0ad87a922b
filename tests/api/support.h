// Clusters for tests of the public API, and processes that use them.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "client/seeing.h"
#include "declock/declock.h"
#include "shm/cluster.h"
#include "support/soon.h"

namespace declock::api {

// For calls that want a time, and get the lock long before it.
inline constexpr std::chrono::nanoseconds kLong{kHangs.ns};

// In shared memory, with a name of its own; removed with its last member.
inline std::string fresh_uri(const std::string& options = "") {
  static int count = 0;
  const std::string name = "api-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
  // A process that had this number and was killed may have left one.
  (void)shm::remove_cluster("/dev/shm", name);
  return "shm:" + name + "?remove=yes" + options;
}

inline Cluster open(const std::string& uri, const Options& options = {}) {
  auto opened = Cluster::open(uri, options);
  if (!opened) {
    ADD_FAILURE() << opened.error().message;
    std::abort();
  }
  return std::move(*opened);
}

// Locks with tokens and without are different protocols, and the public API is the same: its tests run with both.
class WithFairness : public ::testing::TestWithParam<const char*> {
 protected:
  std::string fairness() const { return std::string{"&fairness="} + GetParam(); }
};
#define DECLOCK_WITH_FAIRNESS(Suite)                           \
  INSTANTIATE_TEST_SUITE_P(                                    \
      Fairness, Suite, testing::Values("phase-fair", "token"), \
      [](const auto& one) { return one.param == std::string_view{"token"} ? "token" : "phasefair"; })

// Until so many threads and coroutines of its processes wait for locks. They say so once a second.
inline bool until_waiting(Cluster& cluster, std::uint64_t count) {
  return soon([&] {
    const auto reports = client::read_reports(cluster);
    std::uint64_t waiting = 0;
    if (reports) {
      for (const client::Report& report : *reports) waiting += report.waiting;
    }
    return waiting == count;
  });
}

// Runs fn in another process, before this one has threads that matter; what it returns is its exit status.
class Child {
 public:
  explicit Child(const std::function<int()>& fn) : pid_(fork()) {
    if (pid_ == 0) _exit(fn());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) wait();
  }
  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  int wait() {
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

}  // namespace declock::api
