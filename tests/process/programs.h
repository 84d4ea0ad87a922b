// Programs that a test starts, watches and kills.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "support/soon.h"

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
      (void)wait();
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
  // Until it has said that, after what it had said at `from`. False: it hangs, or has ended without.
  bool says(std::string_view text, std::size_t from = 0) {
    const auto has_said = [&] { return output().find(text, from) != std::string::npos; };
    return soon([&] { return has_said() || has_ended(); }) && has_said();
  }
  bool has_ended() {
    int status = 0;
    if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) {
      ended_ = true;
      status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return ended_;
  }
  // Its exit status, or 128 and the signal that ended it. -1: it hangs.
  int wait() {
    (void)soon([&] { return has_ended(); });
    (void)output();
    return status_;
  }

 private:
  pid_t pid_ = 0;
  int says_ = -1;
  std::string output_;
  bool ended_ = false;
  int status_ = -1;
};

// The time that a process has worked.
inline Duration cpu_time_of(pid_t process) {
  clockid_t clock{};
  timespec used{};
  CHECK(clock_getcpuclockid(process, &clock) == 0 && clock_gettime(clock, &used) == 0);
  return seconds(used.tv_sec) + Duration{used.tv_nsec};
}

inline std::size_t descriptors_of(pid_t process) {
  const std::filesystem::directory_iterator all{"/proc/" + std::to_string(process) + "/fd"};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}
// Of its memory, what is not shared with a file.
inline std::size_t resident_kib_of(pid_t process) {
  std::ifstream status{"/proc/" + std::to_string(process) + "/status"};
  std::size_t kib = 0;
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") status >> kib;
  }
  return kib;
}

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
