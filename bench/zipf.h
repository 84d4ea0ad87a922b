// Ranks 0..n-1, rank k with probability proportional to 1 / (k + 1)^alpha, for any alpha from 0 up, in
// constant memory (rejection-inversion, W. Hoermann and G. Derflinger, 1996). The same on every
// machine.
#pragma once

#include <cstdint>

#include "base/prng.h"

namespace declock::bench {

class Zipf {
 public:
  // REQUIRES: n >= 1, 0 <= alpha <= 10.
  Zipf(std::uint64_t n, double alpha);

  std::uint64_t draw(Prng& random) const;

 private:
  double density(double x) const;   // x^-alpha
  double integral(double x) const;  // of the density, up to a constant
  double inverse_of_integral(double y) const;

  std::uint64_t n_;
  double alpha_;
  double low_ = 0;  // the range of the integral that a uniform draw falls into
  double high_ = 0;
  double shortcut_ =
      0;  // nearer than this to its rank, a point is accepted without a look at the density
};

}  // namespace declock::bench
