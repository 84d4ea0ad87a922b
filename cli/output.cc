#include "output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "commands.h"

namespace declock::cli {
namespace {

std::atomic<bool> interrupt_seen{false};

void on_interrupt(int) {
  interrupt_seen = true;
}

void write_all(int descriptor, const std::string& text, const std::string& path) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(descriptor, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw CannotRun(
          fmt::format("the result could not be written to '{}': {}", path, std::strerror(errno)));
    }
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace

ResultFile::ResultFile(const std::string& path, const char* option) : path_(path) {
  if (path.empty()) return;
  if (path == "-") {
    descriptor_ = STDOUT_FILENO;
    return;
  }
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    throw BadInput(fmt::format("{}: '{}' is a directory; name a file", option, path));
  }
  const bool special = exists && !S_ISREG(status.st_mode);
  if (!special) temporary_ = fmt::format("{}.{}.tmp", path, ::getpid());
  const std::string& target = special ? path : temporary_;
  descriptor_ = ::open(target.c_str(), O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_EXCL), 0666);
  if (descriptor_ < 0) {
    const int error = errno;
    temporary_.clear();
    throw BadInput(fmt::format("{}: '{}' cannot be written: {}", option, path, std::strerror(error)));
  }
}

ResultFile::~ResultFile() {
  if (descriptor_ > STDERR_FILENO) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void ResultFile::write(const std::string& text) {
  if (descriptor_ < 0) return;
  write_all(descriptor_, text, path_);
  if (temporary_.empty()) return;
  if (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw CannotRun(
        fmt::format("the result could not be written to '{}': {}", path_, std::strerror(errno)));
  }
  temporary_.clear();
}

void open_standard_descriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);
  }
}

void flush_standard_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw CannotRun(fmt::format("standard output could not be written: {}", std::strerror(errno)));
  }
}

ProgressLine::ProgressLine() : visible_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  show("");
}

void ProgressLine::show(const std::string& text) {
  if (visible_) fmt::print(stderr, "\r\033[K{}", text);
}

const std::atomic<bool>& interrupted() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
  return interrupt_seen;
}

}  // namespace declock::cli
