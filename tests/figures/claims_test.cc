// The claims' checks can fail, and the page shows it.
#include "figures/claims.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "figures/page.h"

namespace declock::bench::figures {
namespace {

const Scale kQuick{.quick = true};

// Invented results for every run, by lock.
class ClaimsTest : public testing::Test {
 protected:
  ClaimsTest() : plan_(make_plan(kQuick, figure_names())) {
    std::string pattern = std::filesystem::temp_directory_path() / "declock-claims-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    results_ = std::make_unique<Results>(folder_ / "runs.jsonl", "x", false);
  }
  ~ClaimsTest() override { std::filesystem::remove_all(folder_); }

  using Invent = std::function<double(const std::string& lock, std::string_view field)>;
  void invent(const Invent& value) {
    for (const Job& job : plan_.jobs) {
      const bool is_reset = job.key.find(" resets ") != std::string::npos;
      const std::string lock =
          is_reset ? "" : Json::parse(job.key.substr(job.key.find('{')))["lock"].get<std::string>();
      const auto latency = [&](std::string_view what) {
        return Json{{"p50", value(lock, std::string{what} + "/p50")},
                    {"p99", value(lock, std::string{what} + "/p99")}};
      };
      results_->add(job.key, {{"lock", lock},
                              {"ops", 1000},
                              {"resets", value(lock, "resets")},
                              {"aborted_acquires", value(lock, "aborted")},
                              {"throughput_mops", value(lock, "throughput")},
                              {"mn_ops_per_acquire", value(lock, "acquire_ops")},
                              {"refetches_per_release", 0.001},
                              {"local_table_bytes_max", 1000},
                              {"time_sync_error_us", value(lock, "sync")},
                              {"latency_us",
                               {{"op", latency("op")},
                                {"acquire", latency("acquire")},
                                {"release", latency("release")},
                                {"data", latency("data")}}},
                              {"fairness", {{"hottest_lock_acquire_us", latency("hottest")}}},
                              {"reset_us", latency("reset")},
                              {"timeline", Json::array_t(61, 1)}});
    }
  }
  Claim claim(int number) {
    for (const Claim& c : check_claims(kQuick, *results_)) {
      if (c.number == number) return c;
    }
    ADD_FAILURE() << number;
    return {};
  }

  std::filesystem::path folder_;
  Plan plan_;
  std::unique_ptr<Results> results_;
};

TEST_F(ClaimsTest, AreAllButThoseAboutApplications) {
  std::vector<int> numbers;
  for (const Claim& c : check_claims(kQuick, *results_)) numbers.push_back(c.number);
  std::vector<int> expected;
  for (int i = 1; i <= 44; ++i) {
    const bool about_applications = i == 2 || i == 4 || i == 5 || (i >= 39 && i <= 42);
    if (!about_applications && i != 13) expected.push_back(i);
  }
  EXPECT_EQ(numbers, expected);
  EXPECT_EQ(numbers.size(), 36u);
}

TEST_F(ClaimsTest, WithoutRunsSayThatTheyWereNotRun) {
  EXPECT_FALSE(claim(22).was_run());
  EXPECT_FALSE(claim(22).agrees());
}

TEST_F(ClaimsTest, DisagreeWhereDecLockIsSlower) {
  invent([](const std::string& lock, std::string_view field) {
    const bool ours = lock.starts_with("declock");
    if (field == "throughput") return ours ? 1.0 : 2.0;
    if (field.ends_with("p50")) return ours ? 20.0 : 10.0;
    if (field.ends_with("p99")) return ours ? 200.0 : 100.0;
    return field == "sync" ? 50.0 : 5.0;
  });
  for (const int number : {1, 3, 11, 14, 18, 20, 21, 22, 23, 24, 25, 28, 29, 34, 36, 37, 38, 44})
    EXPECT_FALSE(claim(number).agrees()) << number;
  EXPECT_FALSE(claim(8).agrees()) << "no collapse";
}

TEST_F(ClaimsTest, AgreeAndAreCloseWhereTheNumbersAreThePapers) {
  invent([](const std::string& lock, std::string_view field) {
    const bool ours = lock.starts_with("declock");
    if (field == "throughput") return lock == "caslock" ? 1 / 18.0 : lock == "dslr+" ? 0.6 : 1.0;
    if (field == "acquire_ops") return ours ? 1.05 : 300.0;
    if (field == "resets" || field == "aborted") return 0.0;
    if (field == "sync") return 1.5;
    if (field == "op/p99") return ours ? 1.0 : lock == "caslock" ? 50.0 : lock == "dslr+" ? 3.0 : 1.8;
    return 5.0;
  });
  for (const int number : {3, 11, 12, 14, 20, 22, 29, 36}) {
    const Claim c = claim(number);
    EXPECT_TRUE(c.agrees()) << number;
  }
  for (const int number : {3, 14, 20, 29, 36}) EXPECT_TRUE(claim(number).is_close()) << number;
  EXPECT_FALSE(claim(44).is_close()) << "18x is not 27x";
}

TEST_F(ClaimsTest, AreCountedApartWhereTheModelWasFittedToThem) {
  invent([](const std::string&, std::string_view) { return 1.0; });
  const std::vector<Claim> claims = check_claims(kQuick, *results_);
  std::vector<int> calibrated;
  for (const Claim& c : claims) {
    if (c.calibrated) calibrated.push_back(c.number);
  }
  EXPECT_EQ(calibrated, (std::vector{7, 8, 10, 16, 19, 34}));
  EXPECT_EQ(count(claims, true).run, 6);
  EXPECT_EQ(count(claims, false).run, 30);
}

// Of the run that is kept in the repository.
TEST(PublishedRun, EveryClaimThatDiffersHasItsReason) {
  std::ifstream file{DECLOCK_SOURCE "/docs/evaluation/figures.json"};
  const Json run = Json::parse(file);
  EXPECT_FALSE(run["quick"].get<bool>());
  EXPECT_EQ(run["commit"].get<std::string>().find("dirty"), std::string::npos)
      << "anybody can repeat it";
  ASSERT_EQ(run["claims"].size(), 36u);
  for (const Json& claim : run["claims"]) {
    const bool differs = !claim["agrees"].get<bool>() || claim["within_30_percent"] == false;
    EXPECT_TRUE(!differs || claim["note"] != "") << claim["number"];
  }
  for (const Json& path : run["paths"]) EXPECT_TRUE(path["agrees"].get<bool>()) << path;
}

}  // namespace
}  // namespace declock::bench::figures
