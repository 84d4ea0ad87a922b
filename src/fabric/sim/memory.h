// The memory of one simulated MN: words that are 0 until written, stored sparsely.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace declock::sim {

class Memory {
 public:
  std::uint64_t load(std::uint64_t offset) const;
  void store(std::uint64_t offset, std::uint64_t word);
  void read(std::uint64_t offset, std::span<std::uint64_t> into) const;
  void write(std::uint64_t offset, std::span<const std::uint64_t> from);

  // All words 0 again; keeps what it allocated.
  void clear();

 private:
  // Two levels: a page is small, because locks are touched at their headers, a stride apart.
  static constexpr std::uint64_t kPageWords = 64;
  static constexpr std::uint64_t kPagesPerDirectory = 512;
  using Page = std::array<std::uint64_t, kPageWords>;
  using Directory = std::array<std::unique_ptr<Page>, kPagesPerDirectory>;

  const Page* find(std::uint64_t page) const;
  Page& touch(std::uint64_t page);

  std::vector<std::unique_ptr<Directory>> directories_;
  std::vector<Page*> pages_;
};

}  // namespace declock::sim
