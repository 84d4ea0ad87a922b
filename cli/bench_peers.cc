// declock bench peers
#include <fmt/format.h>

#include <memory>

#include "bench/peers.h"
#include "commands.h"
#include "commit.h"
#include "exit_codes.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

struct Options {
  bench::PeersConfig config;
  std::string fabric = "shm";
  std::string json;
};

int run(const Options& options) {
  const std::atomic<bool>& stop = interrupted();
  ResultFile json{options.json};
  ProgressLine line;
  const std::vector<bench::PeerResult> results =
      bench::run_peers(options.config, [&](std::string_view lock) {
        if (stop) throw CannotRun("interrupted; no result was written");
        line.show(fmt::format("{} ...", lock));
      });
  line.show("");
  if (!json.is_standard_output()) {
    fmt::print(
        "Lock + unlock alone, and {} processes that contend for one lock ({:.0f} % reads, seed {}, "
        "commit {})\n\n{}",
        options.config.processes, options.config.read_ratio * 100, options.config.seed, DECLOCK_COMMIT,
        bench::table(options.config, results));
  }
  json.write(bench::to_json(options.config, results, DECLOCK_COMMIT));
  for (const bench::PeerResult& result : results) {
    if (result.lost_updates > 0) return kSafety;
  }
  return kFine;
}

}  // namespace

Action add_bench_peers(Command bench) {
  Command app = bench.add_command(
      "peers",
      "DecLock beside pthread_rwlock_t and Boost's sharable mutex, between processes of this machine");
  auto options = std::make_shared<Options>();
  bench::PeersConfig& c = options->config;
  app.add_option("--fabric", options->fabric, "Where to run").check(one_of({"shm"}));
  std::vector<std::string> locks = bench::peer_names();
  locks.emplace_back("all");
  app.add_option("--lock", c.lock, "One of them alone").check(one_of(locks));
  app.add_option("--processes", c.processes, "Processes that contend").check(whole_number(1, 64));
  app.add_option("--read-ratio", c.read_ratio,
                 "Part of the operations that are shared, where they contend")
      .check(decimal(0, 1));
  app.add_duration("--duration", c.duration, "Time of each measurement", milliseconds(1),
                   seconds(3600));
  app.add_option("--rounds", c.rounds, "Measurements of each kind, of which the best counts")
      .check(whole_number(1, 1000));
  app.add_option("--seed", c.seed, "Of the choice of modes").check(whole_number(0, ~std::uint64_t{0}));
  app.add_option("--json", options->json, "Write the result there; - is standard output")
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
