#include "bench/micro.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/zipf.h"

namespace declock::bench {
namespace {

MicroConfig small() {
  MicroConfig config;
  config.cns = 4;
  config.clients = 8;
  config.workers = 4;
  config.locks = 1000;
  config.duration = milliseconds(20);
  config.warmup = milliseconds(2);
  return config;
}

TEST(Zipf, HasTheRightFrequencies) {
  for (const double alpha : {0.0, 0.5, 0.9, 0.99, 1.0, 1.3, 3.0}) {
    constexpr std::uint64_t kRanks = 100;
    constexpr int kDraws = 400'000;
    const Zipf zipf{kRanks, alpha};
    Prng random{3, 1};
    std::vector<int> counts(kRanks);
    for (int i = 0; i < kDraws; ++i) counts[zipf.draw(random)] += 1;
    double norm = 0;
    for (std::uint64_t k = 1; k <= kRanks; ++k) norm += std::pow(k, -alpha);
    for (const std::uint64_t k : {1, 2, 3, 10, 50, 100}) {
      const double expected = kDraws * std::pow(k, -alpha) / norm;
      EXPECT_NEAR(counts[k - 1], expected, 5 * std::sqrt(expected) + 1) << alpha << " " << k;
    }
  }
}

TEST(Zipf, TakesOneRankAndTenMillion) {
  Prng random{3, 1};
  EXPECT_EQ((Zipf{1, 0.99}.draw(random)), 0u);
  const Zipf wide{10'000'000, 0.99};
  std::uint64_t largest = 0;
  for (int i = 0; i < 100'000; ++i) largest = std::max(largest, wide.draw(random));
  EXPECT_LT(largest, 10'000'000u);
  EXPECT_GT(largest, 5'000'000u);
}

TEST(Micro, EveryLockIsSafeWithAnySectionLength) {
  for (const std::string& lock : locks::lock_names()) {
    for (const std::uint32_t cs_ops : {0u, 1u, 2u, 5u}) {
      MicroConfig config = small();
      config.lock = lock;
      config.cs_ops = cs_ops;
      config.object_size = 24;
      const MicroResult result = run_micro(config);
      EXPECT_GT(result.ops, 1000u);
      EXPECT_EQ(result.violations, 0u);
      EXPECT_EQ(result.lost_updates, cs_ops == 0 ? std::nullopt : std::optional<std::int64_t>{0});
      EXPECT_TRUE(result.failures.empty());
      if (lock == "cql") {
        EXPECT_EQ(result.fifo_violations, 0u);
      }
    }
  }
}

// Lets everybody in.
class NoLock final : public LockClient {
 public:
  explicit NoLock(Endpoint& endpoint) : endpoint_(endpoint) {}
  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op*) override {
    co_return Hold{.lock = lock, .mode = mode};
  }
  Task<Result<void>> release(Hold, Op*) override { co_return Result<void>{}; }
  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  Endpoint& endpoint_;
};

template <class Lock>
class Family final : public locks::LockFamily {
 public:
  std::uint64_t stride() const override { return 80; }
  std::unique_ptr<LockClient> client(const locks::Seat& seat) override {
    return std::make_unique<Lock>(seat.endpoint);
  }
};

TEST(Micro, ItsCheckersSeeALockThatDoesNotExclude) {
  MicroConfig config = small();
  config.cs_ops = 2;
  const MicroResult result = run_micro(config, std::make_unique<Family<NoLock>>());
  EXPECT_GT(result.violations, 100u);
  EXPECT_GT(result.lost_updates.value_or(0), 100);
}

// Never lets anybody in a second time.
class OnceLock final : public LockClient {
 public:
  explicit OnceLock(Endpoint& endpoint) : endpoint_(endpoint) {}
  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op*) override {
    if (used_) co_await std::suspend_always{};
    used_ = true;
    co_return Hold{.lock = lock, .mode = mode};
  }
  Task<Result<void>> release(Hold, Op*) override { co_return Result<void>{}; }
  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  Endpoint& endpoint_;
  bool used_ = false;
};

TEST(Micro, ReportsClientsThatNeverFinish) {
  const MicroResult result = run_micro(small(), std::make_unique<Family<OnceLock>>());
  EXPECT_EQ(result.failures.size(), 32u);
}

TEST(Micro, TheSameSeedGivesTheSameResultAndAnotherSeedAnother) {
  MicroConfig config = small();
  MicroResult first = run_micro(config);
  MicroResult second = run_micro(config);
  first.wall_s = second.wall_s = 0;
  EXPECT_EQ(to_json(config, first, "x"), to_json(config, second, "x"));
  config.seed = 2;
  EXPECT_NE(run_micro(config).trace_hash, first.trace_hash);
}

// A grant from before it may reach a client afterwards; nothing that is done under such a hold takes effect.
TEST(Micro, HoldsFromBeforeARestartOfTheMemoryNodeAreVoidFromTheStart) {
  MicroConfig config;
  config.lock = "declock-pf";
  config.cns = 4;
  config.clients = 8;
  config.workers = 4;
  config.locks = 20;
  config.warmup = milliseconds(5);
  config.duration = milliseconds(130);
  config.seed = 7;
  config.kill = MicroConfig::Kill{true, 0, milliseconds(5)};
  const MicroResult result = run_micro(config);
  EXPECT_EQ(result.violations, 0u);
  EXPECT_TRUE(result.failures.empty());
  EXPECT_GT(result.timeline[12], 0u) << "it goes on";
}

// On every machine and in every build type. A change of the model or of a protocol changes these on
// purpose; anything else that does is a bug.
TEST(Micro, TheTraceIsTheSameEverywhere) {
  const std::pair<const char*, std::uint64_t> traces[] = {{"cql", 9643380763319890469u},
                                                          {"declock-slack", 7183416604173559236u},
                                                          {"dslr+", 15417432101830310918u},
                                                          {"shiftlock", 9223462157175779170u},
                                                          {"ideal", 13857512633961325711u}};
  for (const auto& [lock, hash] : traces) {
    MicroConfig config = small();
    config.lock = lock;
    EXPECT_EQ(run_micro(config).trace_hash, hash) << lock;
  }
}

// The latest client that got the lock by a local hand-over, behind the first remote one known to wait.
TEST(Micro, LocalHandOversKeepToTheOrderThatThePolicyPromises) {
  MicroConfig config;
  config.duration = milliseconds(20);
  config.warmup = milliseconds(5);
  const auto latest_us = [&](const char* lock, Duration slack) {
    config.lock = lock;
    config.slack = slack;
    const MicroResult result = run_micro(config);
    EXPECT_GT(result.local_hand_overs, 100u);
    return result.hand_over_late_us;
  };
  for (const char* lock : {"declock-tf", "declock-pf"}) EXPECT_EQ(latest_us(lock, {}), 0u) << lock;
  for (const std::uint64_t slack_us : {50, 200}) {
    const std::uint64_t latest =
        latest_us("declock-slack", microseconds(static_cast<std::int64_t>(slack_us)));
    EXPECT_LE(latest, slack_us);
    EXPECT_GT(latest, slack_us / 2) << "the slack was used, so the bound was checked";
  }
  EXPECT_GT(latest_us("declock-local-prefer", {}), 200u) << "no promise, and it shows";
}

TEST(Micro, SeveralMemoryNodesShareTheLocks) {
  MicroConfig config = small();
  config.mns = 3;
  const MicroResult result = run_micro(config);
  EXPECT_EQ(result.violations, 0u);
  EXPECT_EQ(result.lost_updates, 0);
  EXPECT_TRUE(result.failures.empty());
}

TEST(Micro, TheDefaultsMeetTheirBounds) {
  MicroConfig config;
  config.duration = milliseconds(20);
  const MicroResult result = run_micro(config);
  const auto json = nlohmann::json::parse(to_json(config, result, "x"));
  EXPECT_EQ(json["violations"], 0);
  EXPECT_EQ(json["lost_updates"], 0);
  EXPECT_LE(json["mn_ops_per_acquire"].get<double>(), 1.2);
  EXPECT_LT(json["refetches_per_release"].get<double>(), 0.05);
  EXPECT_EQ(json["fairness"]["fifo_violations"], 0);
}

TEST(Micro, SaysWhichOptionsDoNotGoTogether) {
  MicroConfig config;
  config.cns = 128;
  EXPECT_NE(validate(config).error().find("1024"), std::string::npos);
  config = small();
  config.slots = 31;
  EXPECT_NE(validate(config).error().find("--slots"), std::string::npos);
  config = small();
  config.workers = 9;
  EXPECT_NE(validate(config).error().find("--workers"), std::string::npos);
  EXPECT_TRUE(validate(small()));
}

}  // namespace
}  // namespace declock::bench
