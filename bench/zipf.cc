#include "bench/zipf.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/portable_math.h"

namespace declock::bench {
namespace {

// (exp(x) - 1) / x and log(1 + x) / x, continued to x = 0: alpha = 1 needs no case of its own.
double expm1_over(double x) {
  if (x > -1e-5 && x < 1e-5) return 1 + x / 2 * (1 + x / 3);
  return (portable_exp(x) - 1) / x;
}
double log1p_over(double x) {
  if (x > -1e-5 && x < 1e-5) return 1 - x / 2 * (1 - 2 * x / 3);
  return portable_log(1 + x) / x;
}

}  // namespace

Zipf::Zipf(std::uint64_t n, double alpha) : n_(n), alpha_(alpha) {
  CHECK(n >= 1 && alpha >= 0 && alpha <= 10);
  low_ = integral(1.5) - 1;
  high_ = integral(static_cast<double>(n) + 0.5);
  shortcut_ = 2 - inverse_of_integral(integral(2.5) - density(2));
}

double Zipf::density(double x) const {
  return portable_exp(-alpha_ * portable_log(x));
}

double Zipf::integral(double x) const {
  const double log_x = portable_log(x);
  return expm1_over((1 - alpha_) * log_x) * log_x;
}

double Zipf::inverse_of_integral(double y) const {
  double t = y * (1 - alpha_);
  if (t < -1 + 1e-15) t = -1 + 1e-15;  // rounding may step over the pole
  return portable_exp(log1p_over(t) * y);
}

std::uint64_t Zipf::draw(Prng& random) const {
  if (alpha_ == 0) return random.below(n_);
  for (;;) {  // more than two rounds are rare: at least two thirds of all points are accepted
    const double u = high_ + random.unit() * (low_ - high_);
    const double x = inverse_of_integral(u);
    const double k = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(n_));
    if (k - x <= shortcut_ || u >= integral(k + 0.5) - density(k)) {
      return static_cast<std::uint64_t>(k) - 1;
    }
  }
}

}  // namespace declock::bench
