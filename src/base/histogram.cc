#include "base/histogram.h"

#include <algorithm>

namespace declock {

std::uint64_t Histogram::middle_of(std::size_t bucket) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << (kExactBits - 1);
  if (bucket < 2 * kHalf) return bucket;
  const std::uint64_t shift = bucket / kHalf - 1;
  const std::uint64_t low = (bucket - shift * kHalf) << shift;
  return low + ((std::uint64_t{1} << shift) - 1) / 2;
}

void Histogram::add(std::uint64_t value) {
  static_assert(std::tuple_size_v<decltype(buckets_)> == bucket_of(~std::uint64_t{0}) + 1);
  buckets_[bucket_of(value)] += 1;
  count_ += 1;
  sum_ += value;
  max_ = std::max(max_, value);
}

Histogram& Histogram::operator+=(const Histogram& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
  return *this;
}

double Histogram::mean() const {
  return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

std::uint64_t Histogram::quantile(unsigned permille) const {
  const std::uint64_t rank = (count_ * permille + 999) / 1000;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank && seen > 0) return std::min(middle_of(i), max_);
  }
  return 0;
}

}  // namespace declock
