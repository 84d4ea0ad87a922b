// Runs that are kept, and gone on with.
#include "figures/results.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>

#include "figures/plan.h"

namespace declock::bench::figures {
namespace {

class RunsTest : public testing::Test {
 protected:
  RunsTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "declock-runs-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~RunsTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file() const { return folder_ / "runs.jsonl"; }
  // Jobs "0", "1", .. that count how often they run.
  std::vector<Job> jobs(int n) {
    std::vector<Job> all;
    for (int i = 0; i < n; ++i) {
      all.push_back({std::to_string(i), 1.0, [this, i](const std::function<void()>&) {
                       runs_ += 1;
                       return Json{{"value", i}};
                     }});
    }
    return all;
  }

  std::filesystem::path folder_;
  std::atomic<int> runs_ = 0;
};

TEST_F(RunsTest, EachIsRunOnceAndKept) {
  {
    Results results{file(), "a", false};
    run_jobs(jobs(10), results, 2, {});
    run_jobs(jobs(10), results, 2, {});
  }
  EXPECT_EQ(runs_, 10);
  Results again{file(), "a", false};
  run_jobs(jobs(12), again, 2, {});
  EXPECT_EQ(runs_, 12);
  EXPECT_EQ((*again.find("7"))["value"], 7);
  EXPECT_EQ(again.find("12"), nullptr);
}

TEST_F(RunsTest, WhatWasInterruptedInTheMiddleOfALineIsRunAgain) {
  {
    Results results{file(), "a", false};
    run_jobs(jobs(3), results, 1, {});
  }
  std::filesystem::resize_file(file(), std::filesystem::file_size(file()) - 5);
  {
    Results results{file(), "a", false};
    EXPECT_EQ(results.all().size(), 2u);
    run_jobs(jobs(3), results, 1, {});
  }
  EXPECT_EQ(runs_, 4);
  const Results whole{file(), "a", false};
  EXPECT_EQ(whole.all().size(), 3u);
}

TEST_F(RunsTest, OfAnotherCommitAreRefusedUnlessAskedFor) {
  {
    Results results{file(), "a", false};
    run_jobs(jobs(1), results, 1, {});
  }
  try {
    const Results refused{file(), "b", false};
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string{error.what()}.find("commit a, and this is b"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string{error.what()}.find("--keep"), std::string::npos) << error.what();
  }
  const Results kept{file(), "b", true};
  EXPECT_EQ(kept.other_commits(), std::vector<std::string>{"a"});
}

TEST_F(RunsTest, AFileOfSomethingElseIsRefusedAndStaysAsItIs) {
  for (const std::string text : {"my notes\n", "my notes"}) {
    std::ofstream{file()} << text;
    EXPECT_THROW((Results{file(), "a", true}), std::runtime_error);
    EXPECT_EQ(std::filesystem::file_size(file()), text.size());
  }
}

TEST_F(RunsTest, AreWorkedOnByOneProcessAtATime) {
  const Results first{file(), "a", false};
  EXPECT_THROW((Results{file(), "a", false}), std::runtime_error);
}

TEST_F(RunsTest, AFailureEndsAllAndKeepsWhatWasDone) {
  std::vector<Job> all = jobs(4);
  all[2].run = [](const std::function<void()>&) -> Json { throw std::runtime_error("no memory left"); };
  Results results{file(), "a", false};
  EXPECT_THROW(run_jobs(all, results, 1, {}), std::runtime_error);
  EXPECT_EQ(results.all().size(), 2u);
}

TEST_F(RunsTest, AnInterruptionEndsRunsInTheMiddle) {
  std::vector<Job> endless{{"endless", 1.0, [](const std::function<void()>& alive) -> Json {
                              for (;;) alive();
                            }}};
  struct Interrupted {};
  Results results{file(), "a", false};
  EXPECT_THROW(run_jobs(endless, results, 2, [](double, double) { throw Interrupted{}; }), Interrupted);
  EXPECT_TRUE(results.all().empty());
}

TEST_F(RunsTest, BesideEachOtherGiveTheSameNumbersAsAlone) {
  std::vector<Job> all;
  for (const char* lock : {"declock-pf", "declock-slack", "shiftlock", "dslr+"}) {
    MicroConfig config = published(lock).with(defaults({.quick = true}));
    config.duration = config.warmup = milliseconds(2);
    all.push_back(job_of(config));
  }
  Results alone{file(), "a", false}, beside{folder_ / "beside.jsonl", "a", false};
  run_jobs(all, alone, 1, {});
  run_jobs(all, beside, 4, {});
  for (const Job& job : all) {
    Json one = *alone.find(job.key), other = *beside.find(job.key);
    one.erase("wall_s");
    other.erase("wall_s");
    EXPECT_EQ(one, other);
  }
}

}  // namespace
}  // namespace declock::bench::figures
