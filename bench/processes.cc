#include "bench/processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace declock::bench {

Children::~Children() {
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (!children_[i].ended) signal(i, SIGKILL);
  }
  wait_for_all();
  for (const Child& child : children_) close(child.says);
}

std::size_t Children::start(const std::function<void()>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error(fmt::format("no pipe: {}", std::strerror(errno)));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    throw std::runtime_error(
        fmt::format("no process could be started: {}; use fewer", std::strerror(errno)));
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    ::signal(SIGINT, SIG_IGN);  // Ctrl-C is the parent's to handle
    int status = 0;
    try {
      work();
    } catch (const std::exception& error) {
      const std::string said = error.what();
      (void)!write(ends[1], said.data(), said.size());
      status = 1;
    }
    _exit(status);
  }
  close(ends[1]);
  children_.push_back({pid, ends[0]});
  return children_.size() - 1;
}

void Children::signal(std::size_t child, int number) {
  if (children_[child].ended) return;
  children_[child].killed = children_[child].killed || number == SIGKILL;
  ::kill(children_[child].pid, number);
}

void Children::reap(Child& child, int options) {
  if (child.ended) return;
  int status = 0;
  if (waitpid(child.pid, &status, options) != child.pid) return;
  child.ended = true;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFSIGNALED(status) && child.killed) return;
  char text[1000];
  const ssize_t got = read(child.says, text, sizeof text);
  child.said = got > 0 ? std::string(text, static_cast<std::size_t>(got))
                       : fmt::format("process {} ended with {} {}", child.pid,
                                     WIFSIGNALED(status) ? "signal" : "status",
                                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

bool Children::has_ended(std::size_t child) {
  reap(children_[child], WNOHANG);
  return children_[child].ended;
}

std::string Children::failure() {
  for (Child& child : children_) {
    reap(child, WNOHANG);
    if (!child.said.empty()) return child.said;
  }
  return {};
}

bool Children::have_all_ended() {
  bool all = true;
  for (std::size_t i = 0; i < children_.size(); ++i) all = has_ended(i) && all;
  return all;
}

void Children::wait_for_all() {
  for (Child& child : children_) reap(child, 0);
}

SharedBytes::SharedBytes(std::size_t bytes) : bytes_(bytes) {
  void* at =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    throw std::runtime_error(
        fmt::format("{} bytes of memory cannot be shared: {}", bytes, std::strerror(errno)));
  }
  base_ = static_cast<std::byte*>(at);
}

SharedBytes::~SharedBytes() {
  munmap(base_, bytes_);
}

}  // namespace declock::bench
