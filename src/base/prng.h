// Random numbers that are the same on every machine: xoshiro256++, and distributions in integers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/portable_math.h"
#include "base/time.h"

namespace declock {

class Prng {
 public:
  // Streams of one seed are independent of each other: one per client, worker, NIC.
  Prng(std::uint64_t seed, std::uint64_t stream) {
    std::uint64_t x = seed ^ (stream * 0xD1342543DE82EF95u + 0x632BE59BD9B4E019u);
    for (auto& word : state_) word = splitmix(x);
  }

  std::uint64_t next() {
    const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound). The bias, below bound / 2^64, is of no concern here.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((Wide{next()} * bound) >> 64);
  }

  // Uniform in (0, 1), never an end of it.
  double unit() { return (static_cast<double>(next() >> 12) + 0.5) * 0x1p-52; }

  bool one_in(std::uint64_t n) { return n != 0 && below(n) == 0; }

  // Exponential with this mean, by 1024 quantiles: at most 7.6 means.
  Duration exponential(Duration mean) {
    return {static_cast<std::int64_t>(
        (static_cast<std::uint64_t>(mean.ns) * kExponentialQ16[next() >> 54]) >> 16)};
  }

 private:
  __extension__ using Wide = unsigned __int128;

  static constexpr std::array<std::uint32_t, 1024> kExponentialQ16 = [] {
    std::array<std::uint32_t, 1024> table{};
    for (unsigned i = 0; i < 1024; ++i) {
      table[i] = static_cast<std::uint32_t>(-portable_log((i + 0.5) / 1024) * 65536);
    }
    return table;
  }();

  static std::uint64_t splitmix(std::uint64_t& x) {
    x += 0x9E3779B97F4A7C15u;
    std::uint64_t z = x;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  std::array<std::uint64_t, 4> state_{};
};

}  // namespace declock
