// Memory that the device may use. Small pieces come from slabs that are registered once and kept, a free list per power
// of two; large ones are registered singly.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "verbs/device.h"

namespace declock::verbs {

class Slabs {
 public:
  // An error says why no memory can be registered.
  static Result<std::unique_ptr<Slabs>, std::string> make(const Device& device);
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // Throws std::bad_alloc, as new does. REQUIRES: words > 0.
  std::span<std::uint64_t> take(std::size_t words);
  // REQUIRES: as taken.
  void give_back(std::span<std::uint64_t> words);
  // Of memory that was taken, or a part of it.
  std::uint32_t key(const std::uint64_t* words) const {
    const std::size_t slab = slab_of(words);
    return slab < slabs_.size() ? slabs_[slab].region->lkey : large_key(words);
  }

 private:
  static constexpr std::size_t kSlabWords = 8192;
  static constexpr std::size_t kSlabsMax = 4096;  // what does not fit there is registered singly
  static constexpr std::size_t kClasses = 12;     // 1 word, 2, 4, ... 2048
  static constexpr std::size_t kSmallWordsMax = std::size_t{1} << (kClasses - 1);

  struct Unmap {
    void operator()(std::uint64_t* words) const;
  };
  struct Slab {
    Region region;
    std::size_t size_class;
  };
  struct Large {
    std::vector<std::uint64_t> memory;
    Region region;
  };
  // The first word of a piece that nobody has.
  struct Free {
    Free* next;
  };
  static_assert(sizeof(Free) == sizeof(std::uint64_t));

  Slabs(const Device& device, std::uint64_t* arena) : device_(device), arena_(arena) {}
  static std::size_t class_of(std::size_t words) {
    return static_cast<std::size_t>(std::bit_width(words - 1));
  }
  // Beyond all slabs if it is in none.
  std::size_t slab_of(const std::uint64_t* words) const {
    return (reinterpret_cast<std::uintptr_t>(words) - reinterpret_cast<std::uintptr_t>(arena_.get())) /
           (kSlabWords * sizeof *words);
  }
  Region registered(std::uint64_t* words, std::size_t count) const;
  // False: errno says why.
  bool add_slab(std::size_t size_class);
  std::span<std::uint64_t> take_large(std::size_t words);
  std::uint32_t large_key(const std::uint64_t* words) const;

  const Device& device_;
  // Addresses for all slabs, one after the other, so that a piece tells its slab.
  std::unique_ptr<std::uint64_t[], Unmap> arena_;
  std::vector<Slab> slabs_;
  std::array<Free*, kClasses> free_{};
  std::map<const std::uint64_t*, Large> large_;
};

}  // namespace declock::verbs
