// A file in shared memory that processes map: a page that says what it is, then words.
//
// A segment is complete from the moment it has a name: it is made without one, and named last. So a creator that is
// killed at any step leaves nothing behind, and of two that come at once one finds the other's.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/descriptor.h"
#include "declock/result.h"

namespace declock::shm {

// The first page of every segment.
struct SegmentHeader {
  static constexpr std::array<char, 8> kMagic{'D', 'e', 'c', 'L', 'o', 'c', 'k', '\n'};
  static constexpr std::uint32_t kVersion = 4;
  enum class Kind : std::uint32_t { cluster = 1, memory = 2 };

  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  Kind kind = Kind::cluster;
  std::uint64_t bytes = 0;    // of the whole file
  std::uint64_t cluster = 0;  // a random number that names the cluster
  std::uint32_t members = 0;
  std::uint32_t workers = 0;    // per member
  std::uint32_t endpoints = 0;  // per member
  std::uint32_t mns = 0;
  std::uint64_t mn_bytes = 0;  // of each memory node
  std::uint32_t mn = 0;        // kind memory: which
  std::uint32_t unused = 0;
};
static_assert(std::has_unique_object_representations_v<SegmentHeader>);  // every byte of it is written
inline constexpr std::size_t kHeaderBytes = 4096;
// In the same page, for memory that is given out by name (names.h).
inline constexpr std::size_t kRootOffset = 2048;
struct MemoryRoot {
  std::uint64_t allocated;  // bytes
  std::uint64_t index;
};
static_assert(sizeof(SegmentHeader) <= kRootOffset && kRootOffset + sizeof(MemoryRoot) <= kHeaderBytes);

// Told before every step of making something; for tests that are killed there.
using Steps = std::function<void(std::string_view step)>;

class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // The file at `path`; none if there is none. An error says what is wrong with it; it is left as it is. The first does
  // not map it: it is DecLock's, and may be damaged.
  static Result<std::optional<Segment>, std::string> find(const std::string& path);
  static Result<std::optional<Segment>, std::string> open(const std::string& path,
                                                          SegmentHeader::Kind kind);
  // Makes a file of header.bytes, zero behind the header, for this user alone. None: somebody else was faster.
  static Result<std::optional<Segment>, std::string> create(const std::string& path,
                                                            const SegmentHeader& header,
                                                            const Steps& step);

  // As it was when the file was opened or made: whatever anybody writes there later changes no size.
  const SegmentHeader& header() const { return header_; }
  MemoryRoot& root() const {
    return *reinterpret_cast<MemoryRoot*>(static_cast<std::byte*>(base_) + kRootOffset);
  }
  // Behind the header.
  std::byte* data() const { return static_cast<std::byte*>(base_) + kHeaderBytes; }
  const std::string& path() const { return path_; }
  // Is it this file that has the name now? It may have been removed, and made again.
  bool is_at_its_path() const;
  // Has it lost its name, or has another file got it? Not if the path cannot be reached (chroot), nor if it was moved away:
  // that does no harm before another one is made.
  bool is_unlinked_or_replaced() const;
  const Descriptor& descriptor() const { return descriptor_; }
  // Somebody else has closed it.

 private:
  Segment(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  Result<std::optional<Segment>, std::string> mapped() &&;

  std::string path_;
  Descriptor descriptor_;
  SegmentHeader header_;
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace declock::shm
