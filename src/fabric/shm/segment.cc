#include "shm/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace declock::shm {
namespace {

using Opened = Result<std::optional<Segment>, std::string>;

std::string reason() {
  return std::strerror(errno);
}

Failure<std::string> refused(const std::string& path, const std::string& why) {
  return Failure{fmt::format("{}: {}; it was left as it is", path, why)};
}

std::string directory_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

}  // namespace

Segment::Segment(Segment&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::move(other.descriptor_)),
      header_(other.header_),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(other.bytes_) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(header_, other.header_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

Opened Segment::mapped() && {
  bytes_ = header_.bytes;
  base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.number(), 0);
  if (base_ == MAP_FAILED) {
    base_ = nullptr;
    return Failure{fmt::format("{}: {} bytes cannot be mapped: {}", path_, bytes_, reason())};
  }
  // A forked child is nobody in the cluster: it must not even be able to touch it.
  madvise(base_, bytes_, MADV_DONTFORK);
  return std::optional<Segment>{std::move(*this)};
}

Opened Segment::find(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) {
    if (errno == ENOENT) return std::optional<Segment>{};
    if (errno == ELOOP) return refused(path, "is a symbolic link, not a DecLock region");
    return Failure{fmt::format("{}: cannot be opened: {}; its owner can use it, or choose another name",
                               path, reason())};
  }
  Segment segment{path, descriptor};
  struct stat file {};
  fstat(descriptor, &file);
  if (!S_ISREG(file.st_mode)) return refused(path, "is no ordinary file, so no DecLock region");
  if (file.st_uid != geteuid()) {
    return refused(path, fmt::format("belongs to user {}; choose another name", file.st_uid));
  }
  if ((file.st_mode & 077) != 0) {
    return refused(path, fmt::format("is open to other users (mode {:o}); only mode 600 is trusted",
                                     file.st_mode & 0777));
  }
  SegmentHeader& header = segment.header_;
  header.magic = {};
  const ssize_t got = pread(descriptor, &header, sizeof header, 0);
  if (got != static_cast<ssize_t>(sizeof header) || header.magic != SegmentHeader::kMagic) {
    return refused(path, "is no DecLock region; choose another name, or move it away");
  }
  segment.bytes_ = static_cast<std::size_t>(file.st_size);
  return std::optional<Segment>{std::move(segment)};
}

Opened Segment::open(const std::string& path, SegmentHeader::Kind kind) {
  auto found = find(path);
  if (!found || !*found) return found;
  const SegmentHeader& header = (*found)->header();
  if (header.version != SegmentHeader::kVersion) {
    return refused(path,
                   fmt::format("has format version {}, this program knows {}; use the program that "
                               "made it, or remove it with 'declock shm remove'",
                               header.version, SegmentHeader::kVersion));
  }
  if (header.kind != kind) {
    return refused(path, kind == SegmentHeader::Kind::cluster
                             ? "is a memory node's memory, not a cluster"
                             : "is no memory node's memory");
  }
  const std::size_t size = (*found)->bytes_;
  if (size != header.bytes || size < kHeaderBytes) {
    return refused(path, fmt::format("is damaged: {} bytes long, and should have {}; remove it with "
                                     "'declock shm remove'",
                                     size, header.bytes));
  }
  return std::move(**found).mapped();
}

Opened Segment::create(const std::string& path, const SegmentHeader& header, const Steps& step) {
  const auto at = [&](std::string_view what) {
    if (step) step(what);
  };
  at("make a file without a name");
  const std::string directory = directory_of(path);
  const int descriptor = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return Failure{fmt::format("{}: no file can be made there: {}; choose another directory", directory,
                               reason())};
  }
  Segment segment{path, descriptor};
  at("reserve its memory");
  // All of it now: later, a full file system would be a signal in the middle of a store.
  const int error = posix_fallocate(descriptor, 0, static_cast<off_t>(header.bytes));
  if (error != 0) {
    return Failure{fmt::format("{}: {} bytes cannot be reserved: {}; make room, or ask for less",
                               directory, header.bytes, std::strerror(error))};
  }
  at("write its header");
  if (pwrite(descriptor, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) {
    return Failure{fmt::format("{}: the header cannot be written: {}", path, reason())};
  }
  at("give it its name");
  const std::string link = fmt::format("/proc/self/fd/{}", descriptor);
  if (linkat(AT_FDCWD, link.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    if (errno == EEXIST) return std::optional<Segment>{};
    return Failure{fmt::format("{}: cannot be made: {}", path, reason())};
  }
  at("map it");
  segment.header_ = header;
  return std::move(segment).mapped();
}

bool Segment::is_at_its_path() const {
  struct stat mine {};
  struct stat there {};
  return fstat(descriptor_.number(), &mine) == 0 && stat(path_.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

bool Segment::is_unlinked_or_replaced() const {
  struct stat mine {};
  struct stat there {};
  if (fstat(descriptor_.number(), &mine) != 0) return false;
  if (mine.st_nlink == 0) return true;
  return stat(path_.c_str(), &there) == 0 &&
         (mine.st_dev != there.st_dev || mine.st_ino != there.st_ino);
}

}  // namespace declock::shm
