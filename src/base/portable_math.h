// log and exp from IEEE additions, multiplications and divisions only. Those are exact to the last bit
// on every machine; libm's functions are not, and a simulation that used them would not repeat.
#pragma once

#include <bit>
#include <cstdint>

namespace declock {

inline constexpr double kLn2 = 0.693147180559945309417;

// REQUIRES: x is positive, finite and normal.
constexpr double portable_log(double x) {
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & kMantissa) | (std::uint64_t{1023} << 52));
  if (m > 1.41421356237309504880) {
    m /= 2;
    exponent += 1;
  }
  // log m = 2 artanh(s), |s| < 0.172: eleven terms reach the last bit of a double.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return 2 * s * sum + exponent * kLn2;
}

// REQUIRES: |x| < 700.
constexpr double portable_exp(double x) {
  const int k = static_cast<int>(x / kLn2 + (x < 0 ? -0.5 : 0.5));
  const double r = x - k * kLn2;
  double sum = 1;
  for (int n = 14; n >= 1; --n) sum = sum * r / n + 1;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

}  // namespace declock
