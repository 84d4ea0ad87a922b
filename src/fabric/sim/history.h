// What the clients at an endpoint have observed, in order. Who goes round in circles, and looks and asks and hears the
// same each time, learns nothing from the third time: it does not count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/mix.h"

namespace declock::sim {

class History {
 public:
  // As if `event` were all that has happened.
  void start_with(std::uint64_t event) {
    events_.clear();
    digests_.assign(1, event);
  }
  void add(std::uint64_t event) {
    events_.push_back(event);
    digests_.push_back(mix(digests_.back(), event));
    for (std::size_t period = 2; period <= kPeriodMax && period * 3 <= events_.size(); ++period) {
      const auto last = events_.end() - static_cast<std::ptrdiff_t>(period);
      if (!std::equal(last, events_.end(), last - static_cast<std::ptrdiff_t>(period)) ||
          !std::equal(last, events_.end(), last - static_cast<std::ptrdiff_t>(2 * period)))
        continue;
      events_.resize(events_.size() - period);
      digests_.resize(digests_.size() - period);
      return;
    }
  }
  std::uint64_t digest() const { return digests_.back(); }

 private:
  static constexpr std::size_t kPeriodMax = 12;

  std::vector<std::uint64_t> events_;
  std::vector<std::uint64_t> digests_{0};  // before the first event, and behind each
};

}  // namespace declock::sim
