// declock torture
#include "torture/torture.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/units.h"
#include "commands.h"
#include "commit.h"
#include "exit_codes.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string seeds = "1..1000";
  std::string without;
  std::string policy;
  bool at_once = false;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  std::string json;
};

struct Seeds {
  std::uint64_t first;
  std::uint64_t last;
};

std::optional<std::uint64_t> number(std::string_view text) {
  if (text.empty() || text.size() > 18) return {};
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return {};
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

// "7" or "1..1000"
Seeds parse_seeds(const std::string& text) {
  const std::size_t dots = text.find("..");
  const auto first = number(std::string_view{text}.substr(0, dots));
  const auto last = dots == std::string::npos ? first : number(std::string_view{text}.substr(dots + 2));
  if (!first || !last || *first > *last) {
    throw BadInput(
        fmt::format("--seeds: '{}' is no range of seeds; accepted: one, as in 7, or a range, as in "
                    "1..1000",
                    text));
  }
  return {*first, *last};
}

void list_rules() {
  fmt::print("Rules that can be left out, and what happens then:\n");
  for (const torture::Switch& rule : torture::switches()) {
    fmt::print("  {:<22} {:<4} {}\n", rule.name, rule.hazard, rule.without);
  }
}

torture::Plan plan_of(std::uint64_t seed, const Options& options) {
  torture::Plan plan = torture::draw_plan(seed);
  for (const auto& [name, kind] : hier::kPolicyNames) {
    if (name == options.policy) plan.policy.kind = kind;
  }
  return options.at_once ? torture::in_shared_memory(plan) : plan;
}

struct Totals {
  std::uint64_t seeds = 0;
  std::uint64_t sections = 0;
  std::uint64_t resets = 0;
  std::uint64_t evictions = 0;
  std::uint64_t hash = 0;  // of all runs, in the order of their seeds
};

struct Failed {
  std::uint64_t seed;
  torture::Outcome outcome;
};

// The first seed that fails, if one does: the same whatever the number of threads.
std::optional<Failed> run_all(const Options& options, const Seeds& seeds, torture::LeftOut left_out,
                              Totals& totals) {
  const std::atomic<bool>& stop = interrupted();
  std::atomic<std::uint64_t> next{seeds.first};
  std::atomic<std::uint64_t> end{seeds.last + 1};  // seeds from here on do not count
  std::mutex mutex;
  std::optional<Failed> failed;
  ProgressLine line;
  const auto work = [&] {
    for (std::uint64_t seed = next++; seed < end && !stop; seed = next++) {
      torture::Outcome outcome = torture::run(plan_of(seed, options), left_out);
      const std::lock_guard guard{mutex};
      totals.seeds += 1;
      totals.sections += outcome.sections;
      totals.resets += outcome.resets;
      totals.evictions += outcome.evictions;
      totals.hash ^= outcome.trace_hash * (2 * seed + 1);
      line.show(fmt::format("{} of {} seeds", totals.seeds, seeds.last - seeds.first + 1));
      if (outcome.kind == torture::Outcome::Kind::clean || (failed && failed->seed < seed)) continue;
      failed = Failed{seed, std::move(outcome)};
      end = seed;
    }
  };
  {
    std::vector<std::jthread> crew;
    for (unsigned t = 1; t < options.jobs; ++t) crew.emplace_back(work);
    work();
  }
  if (stop) throw CannotRun(fmt::format("interrupted after {} seeds", totals.seeds));
  return failed;
}

int run(const Options& options) {
  if (options.without == "list") {
    list_rules();
    return kFine;
  }
  const Seeds seeds = parse_seeds(options.seeds);
  torture::LeftOut left_out;
  if (!options.without.empty()) {
    const auto found = torture::find_switch(options.without);
    if (!found) throw BadInput("--without: " + found.error());
    left_out = *found;
  }
  ResultFile json{options.json};
  const auto started = std::chrono::steady_clock::now();
  Totals totals;
  const std::optional<Failed> failed = run_all(options, seeds, left_out, totals);
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();

  const bool safety = failed && failed->outcome.kind == torture::Outcome::Kind::safety;
  const std::string verdict = !failed ? "clean" : safety ? "safety" : "liveness";
  Json result{{"commit", DECLOCK_COMMIT},
              {"seeds", options.seeds},
              {"without", options.without},
              {"at_once", options.at_once},
              {"verdict", verdict},
              {"runs", totals.seeds},
              {"sections", totals.sections},
              {"resets", totals.resets},
              {"evictions", totals.evictions},
              {"wall_s", wall_s}};
  if (failed) {
    result["seed"] = failed->seed;
    result["violation"] = failed->outcome.text;
    result["story"] = failed->outcome.story;
    result["trace_hash"] = fmt::format("{:016x}", failed->outcome.trace_hash);
  } else {
    result["trace_hash"] = fmt::format("{:016x}", totals.hash);
  }
  json.write(result.dump(2) + "\n");
  const int status = !failed ? kFine : safety ? kSafety : kLiveness;
  if (json.is_standard_output()) return status;

  if (!failed) {
    fmt::print(
        "clean: {} seeds, {} critical sections, {} resets, {} evictions, {:.1f} s, trace {:016x}\n",
        format_count(totals.seeds), format_count(totals.sections), format_count(totals.resets),
        format_count(totals.evictions), wall_s, totals.hash);
    return status;
  }
  fmt::print("seed {}: {}\n", failed->seed, torture::describe(plan_of(failed->seed, options)));
  for (const std::string& text : failed->outcome.story) fmt::print("  {}\n", text);
  fmt::print("  {} violation: {}\n", verdict, failed->outcome.text);
  fmt::print("commit {}, trace {:016x}; again: declock torture --seeds {}{}{}{}{}{}\n", DECLOCK_COMMIT,
             failed->outcome.trace_hash, failed->seed, options.without.empty() ? "" : " --without ",
             options.without, options.policy.empty() ? "" : " --policy ", options.policy,
             options.at_once ? " --at-once" : "");
  return status;
}

}  // namespace

Action add_torture(Command program) {
  Command app = program.add_command(
      "torture", "Random faults by seed on a simulated cluster: safety, then healing, then liveness");
  auto options = std::make_shared<Options>();
  app.add_option("--seeds", options->seeds,
                 "Which; each draws a cluster, a workload, its faults, and who comes and goes")
      .type_name("N|N..M");
  app.add_option("--without", options->without, "Leave out a rule; 'list' shows them")
      .type_name("RULE");
  std::vector<std::string> policies;
  for (const auto& [name, kind] : hier::kPolicyNames) policies.emplace_back(name);
  app.add_option("--policy", options->policy, "This one alone, and not the one that the seed draws")
      .check(one_of(policies));
  app.add_flag("--at-once", options->at_once,
               "As in shared memory: clients lock and unlock in one step where they can");
  app.add_option("--jobs", options->jobs, "Seeds to run at once").check(whole_number(1, 256));
  app.add_option("--json", options->json, "Write the result there; - is standard output")
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
