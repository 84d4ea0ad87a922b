// The grid has every cell that it is to have, and its data say which run is whose.
#include "figures/grid.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <tuple>

#include "figures/plots.h"

namespace declock::bench::figures {
namespace {

using Cell =
    std::tuple<std::uint32_t, std::uint32_t, std::uint64_t, double, double, std::uint32_t, double>;

Cell cell_of(const MicroConfig& c) {
  return {c.cns, c.cns * c.clients, c.locks, c.zipf, c.read_ratio, c.cs_ops, c.cn_latency};
}

std::set<Cell> cells_of(const std::vector<Group>& grid) {
  std::set<Cell> cells;
  for (const Group& group : grid) {
    for (const Setting& cell : group.cells) cells.insert(cell_of(cell.config));
  }
  return cells;
}

TEST(Grid, CoversReadsSectionsNodesClientsSkewASlowNetworkAndLocks) {
  std::set<Cell> wanted;
  for (const double reads : {0.0, 0.5, 0.9, 1.0}) {
    for (const std::uint32_t section : {0, 1, 2, 4, 8, 16, 32})
      wanted.insert({8, 256, 100'000, 0.99, reads, section, 1});
    for (const std::uint32_t clients : {16, 64, 256})
      wanted.insert({8, clients, 100'000, 0.99, reads, 1, 1});
    if (reads == 1) continue;
    for (const double zipf : {0.9, 0.99, 1.2}) wanted.insert({8, 256, 100'000, zipf, reads, 1, 1});
    wanted.insert({8, 256, 100'000, 0.99, reads, 1, 4});
  }
  for (const std::uint32_t cns : {8, 16, 32, 64, 128}) {
    for (const std::uint32_t section : {1, 4})
      wanted.insert({cns, cns * 32, 100'000, 0.99, 0.5, section, 1});
  }
  for (const std::uint64_t locks : {1'000, 100'000, 10'000'000})
    wanted.insert({8, 256, locks, 0.99, 0.5, 1, 1});

  const std::vector<Group> grid = grid_cells({});
  EXPECT_EQ(cells_of(grid), wanted);
  EXPECT_EQ(wanted.size(), 55u);
  std::size_t rows = 0;
  for (const Group& group : grid) rows += group.cells.size();
  EXPECT_EQ(rows, 65u) << "with those that belong to two groups";
  for (const Group& group : grid) {
    for (const Setting& cell : group.cells) {
      EXPECT_GE(cell.config.duration, milliseconds(cell.config.cns < 128 ? 60 : 200)) << cell.label;
      for (const Contestant& contestant : grid_contestants())
        EXPECT_TRUE(validate(contestant.with(cell.config))) << cell.label;
    }
  }
}

TEST(Grid, RunsEveryLockInEveryCellWithTheSameDoorbell) {
  const Plan plan = make_plan({}, {"grid"});
  EXPECT_TRUE(plan.panels.empty());
  std::set<std::string> keys;
  for (const Job& job : plan.jobs) {
    keys.insert(job.key);
    EXPECT_NE(job.key.find(R"("piggyback":true)"), std::string::npos) << job.key;
  }
  EXPECT_EQ(plan.jobs.size(), 65u * 6);
  EXPECT_EQ(keys.size(), 55u * 6);
  for (const char* lock : {"shiftlock", "declock-pf", "declock-slack", "ideal", "ideal-group"}) {
    EXPECT_TRUE(std::any_of(grid_contestants().begin(), grid_contestants().end(),
                            [&](const Contestant& c) { return c.lock == lock; }))
        << lock;
  }
  EXPECT_EQ(grid_contestants().front().lock, kTokenLock);
  EXPECT_TRUE(make_plan({}, {"12"}).grid.empty());
}

TEST(Grid, AQuickRunIsPartOfIt) {
  const std::set<Cell> all = cells_of(grid_cells({})), quick = cells_of(grid_cells({.quick = true}));
  EXPECT_EQ(quick.size(), 3u);
  EXPECT_TRUE(std::includes(all.begin(), all.end(), quick.begin(), quick.end()));
}

// One cell with invented runs: ours has 3 M/s and a P99 of 30 us, and so on.
class GridOfOne : public testing::Test {
 protected:
  GridOfOne() {
    std::string pattern = std::filesystem::temp_directory_path() / "declock-grid-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    results_ = std::make_unique<Results>(folder_ / "runs.jsonl", "x", false);
    grid_[0].cells.resize(1);
    grid_.resize(1);
    cell_ = grid_[0].cells[0];
    cell_.config.duration = milliseconds(2);
    cell_.config.warmup = milliseconds(1);
    cell_.config.locks = 1000;
    grid_[0].cells[0] = cell_;
    for (const Contestant& contestant : grid_contestants()) {
      const Job job = job_of(contestant.with(cell_.config));
      if (results_->find(job.key) != nullptr) continue;
      Json run = job.run([] {});
      run["throughput_mops"] = contestant.lock == kTokenLock ? 3.0 : 2.0;
      run["latency_us"]["op"]["p99"] = contestant.lock == kTokenLock ? 30.0 : 60.0;
      results_->add(job.key, run);
    }
  }
  ~GridOfOne() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  std::unique_ptr<Results> results_;
  std::vector<Group> grid_ = grid_cells({.quick = true});
  Setting cell_;
};

TEST_F(GridOfOne, RatiosAreOursOverTheOthers) {
  const Ratios found = ratios(cell_, grid_contestants()[1], *results_);
  EXPECT_DOUBLE_EQ(found.throughput, 1.5);
  EXPECT_DOUBLE_EQ(found.p99, 0.5);
  const Json json = grid_json(grid_, *results_);
  EXPECT_EQ(json[grid_[0].title][cell_.label]["ShiftLock"]["p99"], 0.5);
}

TEST_F(GridOfOne, TheCsvHasALineForEachLockAndAColumnForAllThatWasCounted) {
  const std::string csv = grid_csv(grid_, *results_);
  const std::string head = csv.substr(0, csv.find('\n'));
  for (const char* column : {"group",
                             "cell",
                             "lock",
                             "cns",
                             "clients_per_cn",
                             "locks",
                             "zipf",
                             "read_ratio",
                             "section",
                             "cn_latency",
                             "throughput_mops",
                             "p50_us",
                             "p99_us",
                             "mn_ops_per_op",
                             "mn_ops_per_acquire",
                             "messages_per_op",
                             "overtakes_per_acquire",
                             "hottest_acquire_p50_us",
                             "hottest_acquire_p99_us",
                             "lost_updates",
                             "violations"})
    EXPECT_NE(("," + head + ",").find(fmt::format(",{},", column)), std::string::npos) << column;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 6);
  EXPECT_NE(csv.find("\"50 % reads, section 1\",\"ShiftLock\",8,32,1000,"), std::string::npos) << csv;
}

TEST_F(GridOfOne, ThePictureIsGreenWhereOursIsBetter) {
  const std::string script = grid_script(grid_, *results_);
  EXPECT_NE(script.find("$throughput << END\n1 1 0.5850 1.50\n"), std::string::npos) << script;
  EXPECT_NE(script.find("$p99 << END\n1 1 1.0000 0.50\n"), std::string::npos) << script;
}

}  // namespace
}  // namespace declock::bench::figures
