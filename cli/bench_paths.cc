// declock bench paths
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/paths.h"
#include "commands.h"
#include "commit.h"
#include "exit_codes.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

struct Options {
  std::vector<std::string> fabrics{"sim", "shm", "tcp"};
  std::string json;
};

int run(const Options& options) {
  const std::atomic<bool>& stop = interrupted();
  ResultFile json{options.json};
  std::vector<Fabric> fabrics;
  for (const std::string& name : options.fabrics) fabrics.push_back(*fabric_of(name));
  std::vector<bench::WalkedPath> walked;
  {
    ProgressLine line;
    walked = bench::walk_all(fabrics, [&](double part) {
      if (stop) throw CannotRun("interrupted; no result was written");
      line.show(fmt::format("{:3.0f} % of the paths", part * 100));
    });
  }
  if (!json.is_standard_output()) fmt::print("{}", bench::paths_table(walked, fabrics));
  json.write(bench::paths_json(walked, DECLOCK_COMMIT));
  const bool agree = std::all_of(walked.begin(), walked.end(),
                                 [](const bench::WalkedPath& path) { return path.agrees(); });
  if (!agree) throw CannotRun("a path does not cost what is documented of it");
  return kFine;
}

}  // namespace

Action add_bench_paths(Command bench) {
  Command app = bench.add_command(
      "paths", "MN operations and messages of each path through each lock, simulated and real");
  auto options = std::make_shared<Options>();
  app.add_option("--fabric", options->fabrics, "Where to count")
      .delimiter(',')
      .check(one_of({"sim", "shm", "tcp", "verbs"}))
      .type_name("NAME,NAME,..");
  app.add_option("--json", options->json, "Write the result there; - is standard output")
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
