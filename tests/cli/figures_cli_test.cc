// declock figures, sensitivity and bench paths as a user meets them.
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "cli/runner.h"

namespace declock {
namespace {

class FiguresCli : public CliTest {
 protected:
  std::string out() const { return folder_ / "figures"; }
};

TEST_F(FiguresCli, MakesDataPlotsAndAPageThatNeedsNothingElse) {
  const Outcome outcome = run("figures --quick --only 16 --out " + out());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* name :
       {"16-resets.csv", "16-resets.svg", "16-resets.png", "16-low.svg", "16-high.png", "runs.csv"})
    EXPECT_GT(fs::file_size(fs::path{out()} / name), 100u) << name;
  const std::string page = slurp(out() + "/index.html");
  EXPECT_EQ(page.find("http:"), std::string::npos);
  EXPECT_EQ(page.find("https:"), std::string::npos);
  EXPECT_NE(page.find("data:image/svg+xml;base64,PD94"), std::string::npos);
  const auto json = nlohmann::json::parse(slurp(out() + "/figures.json"));
  EXPECT_EQ(json["claims"].size(), 36u);
  EXPECT_EQ(json["figures"].size(), 3u);
  for (const auto& claim : json["claims"]) {
    const int number = claim["number"];
    const bool was_run = number == 35 || number == 37 || number == 38;
    EXPECT_EQ(claim["agrees"].is_null(), !was_run) << number;
  }
  // Again: nothing is left to run, and everything is the same.
  const std::string runs = slurp(out() + "/runs.jsonl");
  ASSERT_EQ(run("figures --quick --only 16 --out " + out()).status, 0);
  EXPECT_EQ(slurp(out() + "/runs.jsonl"), runs);
  EXPECT_EQ(slurp(out() + "/index.html"), page);
}

TEST_F(FiguresCli, GoesOnAfterAnInterruption) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "takes minutes; RunsTest has the same with small runs";
#endif
  const std::string arguments = "figures --quick --only 15 --jobs 1 --out ";
  const std::string command =
      fmt::format("timeout --foreground --signal=INT 2 {} {}{} 2>{}", DECLOCK_PROGRAM, arguments, out(),
                  (folder_ / "err").string());
  EXPECT_NE(WEXITSTATUS(std::system(command.c_str())), 0);
  EXPECT_NE(slurp(folder_ / "err").find("goes on from here"), std::string::npos)
      << slurp(folder_ / "err");
  EXPECT_FALSE(fs::exists(out() + "/index.html"));
  const std::string kept = slurp(out() + "/runs.jsonl");
  ASSERT_EQ(run(arguments + out()).status, 0);
  EXPECT_TRUE(slurp(out() + "/runs.jsonl").starts_with(kept));
  ASSERT_EQ(run(arguments + out() + "-whole").status, 0);
  EXPECT_EQ(slurp(out() + "/figures.json"), slurp(out() + "-whole/figures.json"));
}

TEST_F(FiguresCli, RefusesWhatItCannotDo) {
  expect_refused("figures", "--out is required");
  expect_refused("figures --out " + out() + " --only 12,17", "12");
  expect_refused("figures --out " + out() + " --jobs 0", "1");
  expect_refused("figures --out /proc/none", "/proc/none");
  expect_refused("sensitivity --out /proc/none", "/proc/none");
  expect_refused("bench paths --fabric sim,wifi", "wifi");
}

TEST_F(FiguresCli, SaysWhatToInstallWithoutGnuplot) {
  const std::string command = fmt::format("PATH=/nowhere {} figures --quick --out {} 2>{}",
                                          DECLOCK_PROGRAM, out(), (folder_ / "err").string());
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
  EXPECT_NE(slurp(folder_ / "err").find("gnuplot-nox"), std::string::npos);
}

}  // namespace
}  // namespace declock
