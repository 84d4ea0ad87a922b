// declock bench mutex
#include <fmt/format.h>

#include <memory>
#include <thread>

#include "base/units.h"
#include "bench/mutex.h"
#include "commands.h"
#include "commit.h"
#include "exit_codes.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

struct Options {
  bench::MutexConfig config;
  std::string json;
};

int run(const Options& options) {
  const std::atomic<bool>& stop = interrupted();
  ResultFile json{options.json};
  ProgressLine line;
  const bench::MutexResult result = bench::run_mutex(options.config, [&](std::string_view part) {
    if (stop) throw CannotRun("interrupted; no result was written");
    line.show(fmt::format("{} ...", part));
  });
  line.show("");
  if (!json.is_standard_output()) {
    fmt::print("The library's lock beside others on {} cores (median of {} x {}, commit {})\n\n{}",
               std::thread::hardware_concurrency(), options.config.rounds,
               format_duration(options.config.duration), DECLOCK_COMMIT, bench::table(result));
  }
  json.write(bench::to_json(options.config, result, DECLOCK_COMMIT));
  if (result.lost_updates > 0) return kSafety;
  for (const bench::MutexResult::Lateness& lateness : result.lateness) {
    if (lateness.early > 0) return kSafety;
  }
  return kFine;
}

}  // namespace

Action add_bench_mutex(Command bench) {
  Command app = bench.add_command(
      "mutex",
      "The library's SharedMutex beside other locks, alone, between threads and between processes; how "
      "late time-outs are");
  auto options = std::make_shared<Options>();
  bench::MutexConfig& c = options->config;
  app.add_option("URI", c.uri, "Of a cluster; not given: one of its own in shared memory");
  app.add_duration("--duration", c.duration, "Time of each measurement", milliseconds(1), seconds(60));
  app.add_option("--rounds", c.rounds, "Measurements of each kind, of which the median counts")
      .check(whole_number(1, 1000));
  app.add_option("--operations", c.operations, "Of a client in a coroutine")
      .check(whole_number(10, 100'000'000));
  app.add_option("--timeouts", c.timeouts, "Of each kind").check(whole_number(1, 100'000));
  app.add_duration("--timeout", c.timeout, "How long each is", microseconds(1), seconds(10));
  app.add_option("--json", options->json, "Write the result there; - for standard output")
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
