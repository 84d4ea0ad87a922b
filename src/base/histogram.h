// A histogram of non-negative integers with a relative error below 1 % at any size of value.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace declock {

class Histogram {
 public:
  void add(std::uint64_t value);
  Histogram& operator+=(const Histogram& other);

  std::uint64_t count() const { return count_; }
  std::uint64_t max() const { return max_; }
  double mean() const;
  // The smallest recorded size that at least `permille` of a thousand values do not exceed; 0 if empty.
  std::uint64_t quantile(unsigned permille) const;

 private:
  // Below 2^kExactBits every value has a bucket; above, every power of two has 2^(kExactBits-1).
  static constexpr unsigned kExactBits = 8;
  static constexpr std::size_t bucket_of(std::uint64_t value) {
    constexpr std::uint64_t kHalf = std::uint64_t{1} << (kExactBits - 1);
    if (value < 2 * kHalf) return value;
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - kExactBits;
    return shift * kHalf + (value >> shift);
  }
  static std::uint64_t middle_of(std::size_t bucket);

  // In place: a process can leave its figures to another in memory that both see.
  std::array<std::uint64_t, 7424> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
  std::uint64_t sum_ = 0;
};

}  // namespace declock
