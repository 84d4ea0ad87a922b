// Clusters for tests of the public API, and processes that use them.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "declock/declock.h"

namespace declock::api {

// In shared memory, with a name of its own; removed with its last member.
inline std::string fresh_uri(const std::string& options = "") {
  static int count = 0;
  return "shm:api-test-" + std::to_string(getpid()) + "-" + std::to_string(count++) + "?remove=yes" +
         options;
}

inline Cluster open(const std::string& uri, const Options& options = {}) {
  auto opened = Cluster::open(uri, options);
  if (!opened) {
    ADD_FAILURE() << opened.error().message;
    std::abort();
  }
  return std::move(*opened);
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
