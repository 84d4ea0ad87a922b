// declock bench reset
#include <fmt/format.h>

#include <memory>

#include "bench/recovery.h"
#include "bench/reset.h"
#include "commands.h"
#include "commit.h"
#include "exit_codes.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

struct Options {
  std::string fabric = "sim";
  bench::RecoveryConfig recovery{};
  std::uint32_t resets = 100;
  std::uint64_t seed = 1;
  std::string json;
};

int run_real(const Options& options) {
  const std::atomic<bool>& stop = interrupted();
  ResultFile json{options.json};
  bench::RecoveryResult result;
  {
    ProgressLine line;
    bench::RecoveryConfig config = options.recovery;
    config.fabric = *fabric_of(options.fabric);
    config.kills = options.resets;
    config.seed = options.seed;
    result = bench::run_recovery(config, [&](std::uint32_t kills) {
      if (stop) throw CannotRun("interrupted; no result was written");
      line.show(fmt::format("{} of {} kills", kills, config.kills));
    });
  }
  json.write(bench::recovery_json(result, DECLOCK_COMMIT));
  if (!json.is_standard_output()) fmt::print("{}", bench::recovery_summary(result));
  return kFine;
}

int run(const Options& options) {
  if (options.fabric != "sim") return run_real(options);
  const std::atomic<bool>& stop = interrupted();
  ResultFile json{options.json};
  std::vector<bench::ResetResult> results;
  const std::vector<bench::ResetConfig> series = bench::reset_series(options.seed, options.resets);
  {
    ProgressLine line;
    for (const bench::ResetConfig& config : series) {
      if (stop) throw CannotRun("interrupted; no result was written");
      line.show(fmt::format("{} of {}: {} compute nodes x {} clients", results.size() + 1,
                            series.size(), config.cns, config.clients));
      results.push_back(bench::run_reset(config));
    }
  }
  json.write(bench::reset_json(results, DECLOCK_COMMIT));
  if (!json.is_standard_output()) fmt::print("{}", bench::reset_table(results));
  return kFine;
}

}  // namespace

Action add_bench_reset(Command bench) {
  Command app =
      bench.add_command("reset",
                        "How long a reset takes; between processes, how long it takes from the "
                        "death of a lock's holder to the next holder");
  auto options = std::make_shared<Options>();
  app.add_option("--fabric", options->fabric, "Where to run: simulated, or processes on this machine")
      .check(one_of({"sim", "shm", "tcp", "verbs"}));
  app.add_option("--resets", options->resets,
                 "sim: resets, by clients and compute nodes; otherwise: holders that are killed")
      .check(whole_number(1, 100'000));
  app.add_option("--processes", options->recovery.processes, "Not on sim: processes that want the lock")
      .check(whole_number(2, 64));
  app.add_duration("--lease", options->recovery.lease,
                   "tcp, verbs: who is silent for so long is taken for dead", milliseconds(10),
                   seconds(60));
  add_verbs_options(app, options->recovery.network);
  app.add_option("--seed", options->seed, "The same seed gives the same run")
      .check(whole_number(0, ~std::uint64_t{0}));
  app.add_option("--json", options->json, "Write the result there; - is standard output")
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
