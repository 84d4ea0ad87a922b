// A histogram of non-negative integers with a relative error below 1 % at any size of value.
#pragma once

#include <cstdint>
#include <vector>

namespace declock {

class Histogram {
 public:
  Histogram();

  void add(std::uint64_t value);

  std::uint64_t count() const { return count_; }
  std::uint64_t max() const { return max_; }
  double mean() const;
  // The smallest recorded size that at least `permille` of a thousand values do not exceed; 0 if empty.
  std::uint64_t quantile(unsigned permille) const;

 private:
  // Below 2^kExactBits every value has a bucket; above, every power of two has 2^(kExactBits-1).
  static constexpr unsigned kExactBits = 8;
  static std::size_t bucket_of(std::uint64_t value);
  static std::uint64_t middle_of(std::size_t bucket);

  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
  std::uint64_t sum_ = 0;
};

}  // namespace declock
