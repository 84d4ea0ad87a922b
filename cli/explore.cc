// declock explore
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "commands.h"
#include "commit.h"
#include "exit_codes.h"
#include "explore/search.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string lock = "cql";
  std::string layout = "owner";
  unsigned slots = 4;
  std::string program = "w;r;rrrw";
  std::string without;
  std::uint64_t max_states = explore::SearchLimits{}.max_states;
  std::string json;
};

void list_rules() {
  fmt::print("Rules that can be left out, and what happens then:\n");
  for (const cql::RuleInfo& rule : cql::kRuleInfos) {
    fmt::print("  {:<16} {:<4} {}\n", rule.name, rule.hazard, rule.without);
  }
}

// The outcome of all programs that the --program stands for: of the first that has a violation, or clean.
struct Outcome {
  explore::Setup setup;  // of the violation
  explore::Finding finding;
  std::uint64_t states = 0;
  std::size_t explored = 0;
  bool complete = true;
};

std::string verdict(const Outcome& outcome) {
  if (outcome.finding.violation) return std::string{to_string(outcome.finding.violation->kind)};
  return outcome.complete ? "clean" : "nothing found, not all states seen";
}

int exit_status(const Outcome& outcome) {
  if (outcome.finding.violation) {
    return outcome.finding.violation->is_safety() ? kSafety : kLiveness;
  }
  return outcome.complete ? kFine : kIncomplete;
}

Json to_json(const Options& options, const Outcome& outcome, const std::vector<std::string>& story,
             std::size_t programs, double wall_s) {
  Json json{{"commit", DECLOCK_COMMIT},
            {"lock", options.lock},
            {"layout", options.layout},
            {"slots", options.slots},
            {"program", options.program},
            {"without", options.without},
            {"verdict", verdict(outcome)},
            {"states", outcome.states},
            {"complete", outcome.complete},
            {"programs", programs},
            {"programs_explored", outcome.explored},
            {"wall_s", wall_s}};
  if (outcome.finding.violation) json["violating_program"] = explore::to_string(outcome.setup.program);
  json["story"] = story;
  return json;
}

Outcome explore_all(const Options& options, const std::vector<explore::Program>& programs,
                    explore::LeftOut left_out) {
  Outcome outcome;
  ProgressLine line;
  for (const explore::Program& program : programs) {
    const explore::Setup setup{
        .program = program,
        .layout = options.layout == "ring" ? QueueLayout::ring : QueueLayout::owner,
        .slots = options.slots,
        .left_out = left_out};
    const explore::SearchLimits limits{options.max_states, &interrupted()};
    explore::Finding finding =
        search(setup, limits, [&](std::uint64_t states, std::uint64_t waiting) {
          line.show(fmt::format("{} ({} of {}): {} states, {} of them to expand",
                                explore::to_string(program),
                                outcome.explored + 1, programs.size(), format_count(states),
                                format_count(waiting)));
        });
    outcome.states += finding.states;
    outcome.explored += 1;
    outcome.complete = outcome.complete && finding.complete;
    if (finding.violation || !finding.complete) {
      outcome.setup = setup;
      outcome.finding = std::move(finding);
      break;
    }
  }
  return outcome;
}

int run(const Options& options) {
  if (options.without == "list") {
    list_rules();
    return kFine;
  }
  const auto programs = explore::parse_programs(options.program);
  if (!programs) throw BadInput("--program: " + programs.error());
  explore::LeftOut left_out;
  if (!options.without.empty()) {
    const auto rule = explore::find_rule(options.without);
    if (!rule) throw BadInput("--without: " + rule.error());
    left_out = *rule;
  }
  const std::size_t clients = (*programs)[0].size();
  if (options.layout == "owner" && options.slots < clients) {
    throw BadInput(fmt::format("--slots {} is too few for {} clients; the owner layout has a slot for each",
                               options.slots, clients));
  }
  ResultFile json{options.json};

  const auto started = std::chrono::steady_clock::now();
  const Outcome outcome = explore_all(options, *programs, left_out);
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  std::vector<std::string> story;
  if (outcome.finding.violation) story = tell_story(outcome.setup, outcome.finding);

  json.write(to_json(options, outcome, story, programs->size(), wall_s).dump(2) + "\n");
  if (json.is_standard_output()) return exit_status(outcome);
  if (outcome.finding.violation) {
    fmt::print("{} layout, program {}: a violation, after {} states\n", options.layout,
               explore::to_string(outcome.setup.program), format_count(outcome.states));
    for (const std::string& text : story) fmt::print("{}\n", text);
  } else {
    fmt::print("{} layout, program {}: {}; {} distinct states in {} program{}, {:.1f} s\n",
               options.layout, options.program, verdict(outcome), format_count(outcome.states),
               outcome.explored, outcome.explored == 1 ? "" : "s", wall_s);
  }
  return exit_status(outcome);
}

}  // namespace

Action add_explore(CLI::App& program) {
  CLI::App& app = *program.add_subcommand(
      "explore", "Run a small program of clients under every interleaving and check each");
  auto options = std::make_shared<Options>();
  app.add_option("--lock", options->lock, "The lock")->check(one_of({"cql"}));
  app.add_option("--layout", options->layout, "How the queue lies in memory")
      ->check(one_of({"owner", "ring"}));
  app.add_option("--slots", options->slots, "Slots of the queue")->check(whole_number(1, 64));
  app.add_option("--program", options->program,
                 "Operations of each client: r shared, w exclusive, x both ways")
      ->type_name("\"w;r;rrrw\"");
  app.add_option("--without", options->without, "Leave out a rule of the protocol; 'list' shows them")
      ->type_name("RULE");
  app.add_option("--max-states", options->max_states, "Give up after so many states per program")
      ->check(whole_number(1, 1'000'000'000));
  app.add_option("--json", options->json, "Write the result there; - is standard output")
      ->type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
