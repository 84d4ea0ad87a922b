#include "member_net/state_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

namespace declock::member {
namespace {

constexpr std::string_view kMagic = "declock cluster 2\n";

// Written, and on disk.
bool write_file(const std::string& path, std::string_view bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) return false;
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  const bool stored = bytes.empty() && fsync(descriptor) == 0;
  return (close(descriptor) == 0) && stored;
}

bool sync_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool stored = fsync(descriptor) == 0;
  close(descriptor);
  return stored;
}

}  // namespace

Result<StateFile, std::string> StateFile::open(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return Failure{fmt::format("--state {}: {}", directory, std::strerror(errno))};
  const std::string path = directory + "/lock";
  const int lock = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0)
    return Failure{fmt::format("--state {}: {}: {}", directory, path, std::strerror(errno))};
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return Failure{
        fmt::format("--state {}: another process uses it; give each coordinator its own", directory)};
  }
  return StateFile{directory, lock};
}

StateFile::StateFile(StateFile&& other) noexcept
    : directory_(std::move(other.directory_)), lock_(std::exchange(other.lock_, -1)) {}

StateFile& StateFile::operator=(StateFile&& other) noexcept {
  std::swap(directory_, other.directory_);
  std::swap(lock_, other.lock_);
  return *this;
}

StateFile::~StateFile() {
  if (lock_ >= 0) close(lock_);
}

Result<std::optional<ClusterState>, std::string> StateFile::load() const {
  std::ifstream file{path(), std::ios::binary};
  if (!file) {
    if (errno == ENOENT) return std::optional<ClusterState>{};
    return Failure{fmt::format("{}: {}", path(), std::strerror(errno))};
  }
  const std::string bytes{std::istreambuf_iterator<char>{file}, {}};
  std::optional<ClusterState> state;
  if (bytes.starts_with(kMagic))
    state = from_bytes<ClusterState>(std::string_view{bytes}.substr(kMagic.size()));
  if (!state || !state->is_valid()) {
    return Failure{fmt::format(
        "{}: not the state of a cluster, or of another version; restore it, or use an empty directory",
        path())};
  }
  return state;
}

void StateFile::save(const ClusterState& state) const {
  const std::string next = path() + ".next";
  const bool saved = write_file(next, std::string{kMagic} + to_bytes(state)) &&
                     std::rename(next.c_str(), path().c_str()) == 0 && sync_directory(directory_);
  if (saved) return;
  fmt::print(stderr,
             "declock: {}: {}; the cluster stops, so that nobody hears of what is not on disk\n",
             path(), std::strerror(errno));
  std::exit(2);
}

}  // namespace declock::member
