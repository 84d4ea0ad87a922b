#include "wire/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace declock::wire {
namespace {

constexpr std::size_t kDigits = 2 * sizeof(Secret::key);

std::string reason() {
  return std::strerror(errno);
}

// What is wrong with an open file, if something is.
std::string fault_of(int descriptor, const std::string& path) {
  struct stat file {};
  if (fstat(descriptor, &file) != 0) return fmt::format("cannot be examined: {}", reason());
  if (!S_ISREG(file.st_mode)) {
    return "is no ordinary file, and a secret is one; choose another name: `declock secret FILE` makes "
           "one";
  }
  if (file.st_uid != geteuid() && file.st_uid != 0) {
    return fmt::format(
        "belongs to user {}; a secret belongs to the user that runs this ({}) or to root: `chown {} "
        "{}`",
        file.st_uid, geteuid(), geteuid(), path);
  }
  if ((file.st_mode & 077) != 0) {
    return fmt::format(
        "is open to other users (mode {:o}); only mode 600 or 400 is accepted: `chmod 600 {}`, and "
        "make "
        "another secret if somebody may have read it",
        file.st_mode & 0777, path);
  }
  return {};
}

bool write_secret(int descriptor) {
  Secret secret;
  randombytes_buf(secret.key.data(), secret.key.size());
  std::array<char, kDigits + 1> text{};
  sodium_bin2hex(text.data(), text.size(), secret.key.data(), secret.key.size());
  text.back() = '\n';
  // The mode once more, whatever the user's mask takes away.
  if (fchmod(descriptor, 0600) != 0) return false;
  errno = ENOSPC;  // for a write that is merely too short
  return write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
         fsync(descriptor) == 0;
}

// A file has survived a crash only when its name has.
bool sync_directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool synced = fsync(descriptor) == 0;
  close(descriptor);
  return synced;
}

}  // namespace

Result<Secret, std::string> read_secret(const std::string& path) {
  // Non-blocking: a pipe without a writer must be refused, not waited for.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    if (errno == ENOENT) {
      return Failure{
          fmt::format("{}: there is no such file; `declock secret {}` makes one", path, path)};
    }
    return Failure{fmt::format(
        "{}: cannot be opened: {}; a secret is a file that the user that runs this can read", path,
        reason())};
  }
  std::string fault = fault_of(descriptor, path);
  std::array<char, kDigits + 2> text{};  // one more than the longest: it shows what is too long
  const ssize_t got = fault.empty() ? read(descriptor, text.data(), text.size()) : 0;
  if (got < 0) fault = fmt::format("cannot be read: {}", reason());
  close(descriptor);
  if (!fault.empty()) return Failure{fmt::format("{}: {}", path, fault)};

  std::string_view digits{text.data(), static_cast<std::size_t>(got)};
  if (digits.ends_with('\n')) digits.remove_suffix(1);
  Secret secret;
  std::size_t made = 0;
  if (digits.size() != kDigits ||
      sodium_hex2bin(secret.key.data(), secret.key.size(), digits.data(), digits.size(), nullptr, &made,
                     nullptr) != 0 ||
      made != secret.key.size()) {
    return Failure{fmt::format(
        "{}: has no secret in it; exactly {} hex digits and a newline are accepted: move it away, "
        "then `declock secret {}` makes one",
        path, kDigits, path)};
  }
  return secret;
}

Result<void, std::string> create_secret(const std::string& path) {
  CHECK(sodium_init() >= 0);
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    if (errno == EEXIST) {
      return Failure{fmt::format(
          "{}: exists already, and a secret is never overwritten; choose another name, or move it away",
          path)};
    }
    return Failure{fmt::format("{}: cannot be made: {}; choose another name", path, reason())};
  }
  const bool written = write_secret(descriptor) && sync_directory_of(path);
  const int error = errno;
  close(descriptor);
  if (written) return {};
  unlink(path.c_str());
  return Failure{
      fmt::format("{}: cannot be written: {}; it was removed again: make room, or choose "
                  "another place",
                  path, std::strerror(error))};
}

}  // namespace declock::wire
