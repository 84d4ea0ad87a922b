// A number that one thread at a time adds to, and any may read at any moment.
#pragma once

#include <atomic>
#include <cstdint>

namespace declock {

class Tally {
 public:
  Tally() = default;
  Tally(std::uint64_t n) : value_(n) {}
  Tally(const Tally& other) : value_(other.get()) {}
  Tally& operator=(const Tally& other) {
    set(other.get());
    return *this;
  }

  // Relaxed: whoever reads it wants no more than a number.
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }
  void set(std::uint64_t n) { value_.store(n, std::memory_order_relaxed); }
  void add(std::uint64_t n = 1) { set(get() + n); }

  operator std::uint64_t() const { return get(); }
  Tally& operator+=(std::uint64_t n) {
    set(get() + n);
    return *this;
  }
  Tally& operator-=(std::uint64_t n) {
    set(get() - n);
    return *this;
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace declock
