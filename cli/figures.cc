// declock figures, declock sensitivity
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "commands.h"
#include "commit.h"
#include "exit_codes.h"
#include "figures/grid.h"
#include "figures/page.h"
#include "figures/plots.h"
#include "figures/sensitivity.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

namespace figures = bench::figures;

struct Options {
  std::string out;
  std::vector<std::string> only;
  figures::Scale scale;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  bool keep = false;
};

std::string time_left(double seconds) {
  if (seconds < 0) return "";
  const auto whole = static_cast<int>(seconds);
  return whole >= 60 ? fmt::format(", {} min {:02} s left", whole / 60, whole % 60)
                     : fmt::format(", {} s left", whole);
}

void run_jobs(const std::vector<figures::Job>& jobs, figures::Results& results,
              const Options& options) {
  const std::atomic<bool>& stop = interrupted();
  ProgressLine line;
  figures::run_jobs(jobs, results, options.jobs, [&](double part, double left) {
    if (stop)
      throw CannotRun(fmt::format("interrupted; the same command goes on from here ({})", options.out));
    const auto filled = static_cast<std::size_t>(part * 30);
    line.show(fmt::format("[{}{}] {:3.0f} % of the runs{}", std::string(filled, '#'),
                          std::string(30 - filled, '.'), part * 100, time_left(left)));
  });
}

// Where a command keeps its runs.
std::filesystem::path file_in(const Options& options, const char* name) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) throw BadInput(fmt::format("--out {}: {}", options.out, error.message()));
  return std::filesystem::path{options.out} / name;
}

int run(const Options& options) {
  figures::require_gnuplot();
  const std::atomic<bool>& stop = interrupted();
  const std::filesystem::path out{options.out};
  figures::Results results{file_in(options, "runs.jsonl"), DECLOCK_COMMIT, options.keep};
  const std::vector<Fabric> fabrics{Fabric::sim, Fabric::shm, Fabric::tcp};
  std::vector<bench::WalkedPath> paths;  // before there are threads: some of it forks
  if (std::find(options.only.begin(), options.only.end(), "paths") != options.only.end()) {
    ProgressLine line;
    paths = bench::walk_all(fabrics, [&](double part) {
      if (stop) throw CannotRun("interrupted");
      line.show(fmt::format("{:3.0f} % of the paths", part * 100));
    });
  }
  const figures::Plan plan = figures::make_plan(options.scale, options.only);
  run_jobs(plan.jobs, results, options);
  const figures::Evaluation evaluation{
      options.scale,    DECLOCK_COMMIT, plan, results, figures::check_claims(options.scale, results),
      std::move(paths), fabrics};
  for (const figures::Panel& panel : plan.panels)
    figures::write_file(out / (panel.id + ".csv"), figures::to_csv(panel, results));
  if (!plan.grid.empty()) figures::write_file(out / "grid.csv", figures::grid_csv(plan.grid, results));
  figures::write_file(out / "runs.csv", figures::runs_csv(plan, results));
  figures::draw(plan, results, out);
  figures::write_file(out / "figures.json", figures::to_json(evaluation));
  figures::write_file(out / "index.html", figures::to_html(evaluation, out));
  fmt::print("{}{} has the page, the data and the plots\n", figures::summary(evaluation.claims),
             (out / "index.html").string());
  const bool paths_agree = std::all_of(evaluation.paths.begin(), evaluation.paths.end(),
                                       [](const bench::WalkedPath& path) { return path.agrees(); });
  if (!paths_agree)
    throw CannotRun("a path does not cost what is documented of it; see the end of the page");
  return kFine;
}

int run_sensitivity(const Options& options) {
  figures::Results results{file_in(options, "sensitivity.jsonl"), DECLOCK_COMMIT, options.keep};
  run_jobs(figures::sensitivity_jobs(options.scale.seed), results, options);
  const std::string table = figures::sensitivity_table(options.scale.seed, results);
  const std::filesystem::path out{options.out};
  figures::write_file(out / "sensitivity.txt", table);
  figures::write_file(out / "sensitivity.json",
                      figures::sensitivity_json(options.scale.seed, results, DECLOCK_COMMIT));
  fmt::print("{}", table);
  return kFine;
}

void add_common(Command app, Options& options) {
  app.add_option("--out", options.out,
                 "Directory for all of it; work that was interrupted goes on there")
      .required()
      .type_name("DIR");
  app.add_option("--jobs", options.jobs, "Runs at the same time").check(whole_number(1, 1024));
  app.add_option("--seed", options.scale.seed, "The same seed gives the same numbers")
      .check(whole_number(0, ~std::uint64_t{0}));
  app.add_flag("--keep", options.keep, "Go on with the runs of another commit in DIR");
}

}  // namespace

Action add_figures(Command program) {
  Command app = program.add_command(
      "figures",
      "The paper's figures and ours from the simulator: data, plots, and one page with every claim");
  auto options = std::make_shared<Options>();
  options->only = figures::figure_names();
  add_common(app, *options);
  app.add_option("--only", options->only, "These figures alone")
      .delimiter(',')
      .check(one_of(figures::figure_names()))
      .type_name("NAME,NAME,..");
  app.add_flag("--quick", options->scale.quick,
               "Short runs and few points, to see that all of it works");
  return [options] { return run(*options); };
}

Action add_sensitivity(Command program) {
  Command app = program.add_command(
      "sensitivity",
      "Which conclusions turn around when a number of the NIC model is halved or doubled");
  auto options = std::make_shared<Options>();
  add_common(app, *options);
  return [options] { return run_sensitivity(*options); };
}

}  // namespace declock::cli
