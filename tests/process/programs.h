// Programs that a test starts, watches and kills.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/futex.h"

extern char** environ;

namespace declock::process {

// A running program whose output, both kinds, the test can read.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    CHECK(posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    says_ = ends[0];
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (!ended_) {
      send(SIGKILL);
      send(SIGCONT);
      (void)wait(seconds(10));
    }
    close(says_);
  }

  void send(int signal) {
    if (!ended_) kill(pid_, signal);
  }
  pid_t pid() const { return pid_; }
  // What it has said so far.
  const std::string& output() {
    char bytes[4096];
    for (ssize_t got = 0; (got = read(says_, bytes, sizeof bytes)) > 0;)
      output_.append(bytes, static_cast<std::size_t>(got));
    return output_;
  }
  // Until it has said that, after what it had said at `from`. False: it has not, in this time.
  bool says(std::string_view text, Duration patience = seconds(20), std::size_t from = 0) {
    const Time latest = monotonic_now() + patience;
    while (output().find(text, from) == std::string::npos) {
      if (monotonic_now() > latest) return false;
      usleep(1000);
    }
    return true;
  }
  // Its exit status, 128 and the signal that ended it, or -1: it is still running.
  int wait(Duration patience = seconds(30)) {
    const Time latest = monotonic_now() + patience;
    int status = 0;
    while (!ended_) {
      ended_ = waitpid(pid_, &status, WNOHANG) == pid_;
      if (ended_) status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (ended_ || monotonic_now() >= latest) break;
      usleep(500);
    }
    (void)output();
    return ended_ ? status_ : -1;
  }

 private:
  pid_t pid_ = 0;
  int says_ = -1;
  std::string output_;
  bool ended_ = false;
  int status_ = -1;
};

// A directory of the test's own.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "declock-test-XXXXXX";
    CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace declock::process
