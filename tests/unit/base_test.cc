#include <gtest/gtest.h>

#include <cmath>

#include "base/histogram.h"
#include "base/portable_math.h"
#include "base/prng.h"
#include "base/units.h"
#include "declock/result.h"

namespace declock {
namespace {

TEST(Histogram, QuantilesAreWithinOnePercentAtAnySize) {
  for (const std::uint64_t scale : {1ull, 1'000ull, 1'000'000ull, 1'000'000'000'000ull}) {
    Histogram h;
    for (std::uint64_t i = 1; i <= 1000; ++i) h.add(i * scale);
    for (const unsigned permille : {1u, 10u, 500u, 990u, 999u, 1000u}) {
      const double exact = static_cast<double>(permille * scale);
      EXPECT_NEAR(static_cast<double>(h.quantile(permille)), exact, exact * 0.01);
    }
    EXPECT_EQ(h.max(), 1000 * scale);
    EXPECT_DOUBLE_EQ(h.mean(), 500.5 * static_cast<double>(scale));
  }
}

TEST(Histogram, TakesTheLargestValueAndIsZeroWhenEmpty) {
  Histogram h;
  EXPECT_EQ(h.quantile(500), 0u);
  h.add(~std::uint64_t{0});
  EXPECT_EQ(h.count(), 1u);
  EXPECT_GT(h.quantile(500), ~std::uint64_t{0} / 100 * 99);
}

TEST(PortableMath, AgreesWithTheLibraryToTwelveDigits) {
  for (double x = 1e-9; x < 1e9; x *= 1.37) {
    EXPECT_NEAR(portable_log(x), std::log(x), 1e-12 * (1 + std::abs(std::log(x))));
  }
  for (double x = -200; x < 200; x += 0.77) {
    EXPECT_NEAR(portable_exp(x) / std::exp(x), 1.0, 1e-12);
  }
}

TEST(Prng, IsTheSameOnEveryMachine) {
  Prng random{1, 2};
  std::uint64_t digest = 0;
  for (int i = 0; i < 1000; ++i) digest ^= random.next() + random.below(1000);
  EXPECT_EQ(digest, 13111997197287046986u);
}

TEST(Prng, StreamsOfOneSeedDiffer) {
  EXPECT_NE((Prng{1, 1}.next()), (Prng{1, 2}.next()));
  EXPECT_NE((Prng{1, 1}.next()), (Prng{2, 1}.next()));
}

TEST(Prng, ExponentialHasItsMean) {
  Prng random{7, 0};
  double sum = 0;
  constexpr int kDraws = 200'000;
  for (int i = 0; i < kDraws; ++i) sum += static_cast<double>(random.exponential(Duration{10'000}).ns);
  EXPECT_NEAR(sum / kDraws, 10'000, 100);
}

TEST(Units, ParsesDurationsAndSaysWhatIsAccepted) {
  EXPECT_EQ(parse_duration("2s")->ns, 2'000'000'000);
  EXPECT_EQ(parse_duration("1.5ms")->ns, 1'500'000);
  EXPECT_EQ(parse_duration("200us")->ns, 200'000);
  EXPECT_EQ(parse_duration("0ns")->ns, 0);
  for (const char* wrong : {"", "2", "s", "-1s", "2 s", "2h", "1e3s", "nan", "99999999999s", "2sx"}) {
    const auto parsed = parse_duration(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_NE(parsed.error().find("100ms"), std::string::npos) << parsed.error();
  }
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(format_duration(milliseconds(100)), "100ms");
  EXPECT_EQ(format_duration(microseconds(1500)), "1500us");
  EXPECT_EQ(format_duration(Duration{}), "0s");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1'234'567), "1,234,567");
}

TEST(Result, HoldsAValueOrAReason) {
  const Result<int> value{7};
  EXPECT_TRUE(value);
  EXPECT_EQ(*value, 7);
  const Result<int> failure{Failure{Errc::stuck}};
  EXPECT_FALSE(failure);
  EXPECT_EQ(failure.error(), Errc::stuck);
  EXPECT_DEATH((void)*failure, "invariant broken");
  EXPECT_DEATH((void)value.error(), "invariant broken");
}

}  // namespace
}  // namespace declock
