// declock figures, sensitivity and bench paths as a user meets them.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/runner.h"
#include "process/programs.h"
#include "support/soon.h"

namespace declock {
namespace {

class FiguresCli : public CliTest {
 protected:
  std::string out() const { return folder_ / "figures"; }
};

TEST_F(FiguresCli, MakesDataPlotsAndAPageAndGoesOnAfterAnInterruption) {
  const std::string arguments = "figures --quick --only 3 --out ";
  const Outcome outcome = run(arguments + out());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* name : {"3-latency.csv", "3-latency.svg", "3-latency.png", "3-checks.svg",
                           "3-throughput.png", "runs.csv"})
    EXPECT_GT(fs::file_size(fs::path{out()} / name), 100u) << name;
  const std::string page = slurp(out() + "/index.html");
  EXPECT_EQ(page.find("http:"), std::string::npos) << "it needs nothing else";
  EXPECT_EQ(page.find("https:"), std::string::npos);
  EXPECT_NE(page.find("data:image/svg+xml;base64,PD94"), std::string::npos);
  const std::string whole = slurp(out() + "/figures.json");
  const auto json = nlohmann::json::parse(whole);
  EXPECT_EQ(json["claims"].size(), 36u);
  EXPECT_EQ(json["figures"].size(), 5u);
  const std::set<int> about_it{7, 8, 9, 16};
  for (const auto& claim : json["claims"])
    EXPECT_EQ(claim["agrees"].is_null(), !about_it.contains(claim["number"])) << claim["number"];
  // Again: nothing is left to run, and everything is the same.
  const std::string runs = slurp(out() + "/runs.jsonl");
  ASSERT_EQ(run(arguments + out()).status, 0);
  EXPECT_EQ(slurp(out() + "/runs.jsonl"), runs);
  EXPECT_EQ(slurp(out() + "/index.html"), page);

  const std::string parts = folder_ / "parts";
  process::Program interrupted{{DECLOCK_PROGRAM, "figures", "--quick", "--only", "3", "--out", parts}};
  ASSERT_TRUE(soon([&] { return !slurp(parts + "/runs.jsonl").empty(); })) << interrupted.output();
  interrupted.send(SIGINT);
  EXPECT_NE(interrupted.wait(), 0);
  EXPECT_NE(interrupted.output().find("goes on from here"), std::string::npos) << interrupted.output();
  EXPECT_FALSE(fs::exists(parts + "/index.html"));
  const std::string kept = slurp(parts + "/runs.jsonl");
  ASSERT_EQ(run(arguments + parts).status, 0);
  EXPECT_TRUE(slurp(parts + "/runs.jsonl").starts_with(kept));
  EXPECT_EQ(slurp(parts + "/figures.json"), whole);
}

TEST_F(FiguresCli, TheGridIsDataAPictureAndPartOfThePage) {
  const Outcome outcome = run("figures --quick --only grid --out " + out());
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* name : {"grid.csv", "grid.svg", "grid.png", "runs.csv"})
    EXPECT_GT(fs::file_size(fs::path{out()} / name), 1000u) << name;
  const std::string csv = slurp(out() + "/grid.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 3 * 6) << "three cells of six locks";
  const auto json = nlohmann::json::parse(slurp(out() + "/figures.json"));
  EXPECT_EQ(json["grid"].size(), 2u);
  EXPECT_EQ(json["figures"].size(), 0u);
  const std::string page = slurp(out() + "/index.html");
  EXPECT_NE(page.find("grid.csv"), std::string::npos);
  EXPECT_NE(page.find("data:image/svg+xml;base64,PD94"), std::string::npos);
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
