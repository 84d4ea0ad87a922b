// declock explore
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

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
  std::string release_read = "adaptive";
  bool piggyback = false;
  bool at_once = false;
  explore::Mishaps mishaps;
  unsigned joins = 0;
  unsigned heirs = 0;
  std::uint64_t max_states = explore::SearchLimits{}.max_states;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  std::string json;
};

void list_rules() {
  fmt::print("Rules that can be left out, and what happens then:\n");
  for (const mutants::RuleInfo& rule : mutants::kRuleInfos) {
    fmt::print("  {:<22} {:<4} {}\n", rule.name, rule.hazard, rule.without);
  }
  for (const explore::ExploredRule& rule : explore::kExploredRules) {
    fmt::print("  {:<22} {:<4} {}\n", rule.name, rule.hazard, rule.without);
  }
}

std::string verdict(const explore::Finding& finding) {
  if (finding.violation) return std::string{to_string(finding.violation->kind)};
  return finding.complete ? "clean" : "incomplete";
}

int exit_status(const explore::Finding& finding) {
  if (finding.violation) return finding.violation->is_safety() ? kSafety : kLiveness;
  return finding.complete ? kFine : kIncomplete;
}

explore::Scenario make_scenario(const Options& options, const explore::Program& program) {
  explore::Scenario scenario;
  scenario.program = program;
  scenario.lock = options.lock;
  scenario.layout = options.layout == "ring" ? QueueLayout::ring : QueueLayout::owner;
  scenario.slots = options.slots;
  scenario.piggyback = options.piggyback;
  scenario.at_once = options.at_once;
  scenario.mishaps = options.mishaps;
  scenario.joins = options.joins;
  scenario.heirs = options.heirs;
  if (scenario.failing() && (!scenario.has_queue() || options.layout == "ring" || options.piggyback)) {
    throw BadInput(
        "--faults, --resets, --breaks, --restarts, --losses, --repeats, --joins and --heirs are for "
        "--lock cql "
        "and the declock- locks, with --layout owner and without --piggyback");
  }
  const explore::Mishaps& mishaps = scenario.mishaps;
  if (scenario.at_once && (!scenario.hierarchical() || options.layout == "ring" || options.piggyback ||
                           mishaps.breaks + mishaps.restarts > 0)) {
    throw BadInput(
        "--at-once is for the declock- locks, with --layout owner; without --piggyback, --breaks and "
        "--restarts");
  }
  if (scenario.joins > 0 && scenario.heirs > 0) {
    throw BadInput("--joins and --heirs are not for one exploration; give one of them");
  }
  if (scenario.joins + scenario.heirs >= scenario.members()) {
    throw BadInput(fmt::format("--{} {} is too many: of {} {} one at least is there from the beginning",
                               scenario.joins > 0 ? "joins" : "heirs", scenario.joins + scenario.heirs,
                               scenario.members(),
                               scenario.hierarchical() ? "compute nodes" : "clients"));
  }
  scenario.release_read =
      options.release_read == "always" ? cql::ReleaseRead::always : cql::ReleaseRead::adaptive;
  if (scenario.has_queue() && scenario.layout == QueueLayout::owner &&
      scenario.slots < scenario.members()) {
    throw BadInput(fmt::format("--slots {} is too few: the owner layout needs one for each of {} {}",
                               scenario.slots, scenario.members(),
                               scenario.hierarchical() ? "compute nodes" : "clients"));
  }
  if (!scenario.hierarchical() && !is_patient(program)) {
    throw BadInput("--program: R, W, s and e are for the declock- locks; the others always wait");
  }
  if (options.lock != "cql" && options.layout == "ring") {
    throw BadInput("--layout ring is for --lock cql");
  }
  if (!options.without.empty()) {
    if (!scenario.has_queue()) throw BadInput("--without is for --lock cql and the declock- locks");
    const auto protocol = explore::leave_out(options.without);
    if (!protocol) throw BadInput("--without: " + protocol.error());
    scenario.protocol = *protocol;
  }
  return scenario;
}

// DSLR+ is DSLR with random pauses, and pauses make no difference here; of a lock that costs nothing there
// is nothing to explore.
std::vector<std::string> explorable_locks() {
  std::vector<std::string> names;
  for (const std::string& name : locks::lock_names()) {
    if (!locks::costs_nothing(name) && name != "dslr+") names.push_back(name);
  }
  return names;
}

Json as_json(const Options& options, const explore::Survey& survey, std::size_t programs,
             const explore::Program& last, double wall_s, const std::vector<std::string>& story) {
  return Json{{"commit", DECLOCK_COMMIT},
              {"lock", options.lock},
              {"layout", options.layout},
              {"slots", options.slots},
              {"program", options.program},
              {"without", options.without},
              {"release_read", options.release_read},
              {"piggyback", options.piggyback},
              {"at_once", options.at_once},
              {"faults", options.mishaps.faults},
              {"resets", options.mishaps.resets},
              {"breaks", options.mishaps.breaks},
              {"restarts", options.mishaps.restarts},
              {"losses", options.mishaps.losses},
              {"repeats", options.mishaps.repeats},
              {"joins", options.joins},
              {"heirs", options.heirs},
              {"verdict", verdict(survey.last)},
              {"states", survey.states},
              {"complete", survey.last.complete},
              {"programs", programs},
              {"programs_explored", survey.explored},
              {"last_program", explore::to_string(last)},
              {"wall_s", wall_s},
              {"story", story}};
}

int run(const Options& options) {
  if (options.without == "list") {
    list_rules();
    return kFine;
  }
  const auto programs = explore::parse_programs(options.program);
  if (!programs) throw BadInput("--program: " + programs.error());
  explore::Scenario scenario = make_scenario(options, programs->front());
  const std::atomic<bool>& stop = interrupted();
  ResultFile json{options.json};

  const auto started = std::chrono::steady_clock::now();
  explore::Survey survey;
  {
    ProgressLine line;
    survey = search_all(
        scenario, *programs, {options.max_states, &stop}, options.jobs, [&](std::uint64_t states) {
          line.show(fmt::format("{}: {} states", options.program, format_count(states)));
        });
  }
  const double wall_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();

  scenario.program = (*programs)[survey.explored - 1];
  std::vector<std::string> story;
  if (survey.last.violation) story = tell_story(scenario, survey.last);
  json.write(as_json(options, survey, programs->size(), scenario.program, wall_s, story).dump(2) +
             "\n");
  if (json.is_standard_output()) return exit_status(survey.last);

  fmt::print("{}{}, program {}: {}; {} distinct states in {} program{}, {:.1f} s\n", options.lock,
             scenario.has_queue() ? fmt::format(", {} layout", options.layout) : "",
             survey.last.violation ? explore::to_string(scenario.program) : options.program,
             verdict(survey.last), format_count(survey.states), survey.explored,
             survey.explored == 1 ? "" : "s", wall_s);
  for (const std::string& text : story) fmt::print("{}\n", text);
  if (!survey.last.violation && !survey.last.complete) {
    fmt::print(stderr, "declock: the search did not end; raise --max-states or let it run\n");
  }
  return exit_status(survey.last);
}

}  // namespace

Action add_explore(Command program) {
  Command app = program.add_command(
      "explore", "Run a small program of clients under every interleaving and check each");
  auto options = std::make_shared<Options>();
  app.add_option("--lock", options->lock, "The lock").check(one_of(explorable_locks()));
  app.add_option("--layout", options->layout, "How the queue lies in memory")
      .check(one_of({"owner", "ring"}));
  app.add_option("--slots", options->slots, "Slots of the queue").check(whole_number(1, 64));
  app.add_option(
         "--program", options->program,
         "Operations of each client: r shared, w exclusive, x both ways, R and W may give up, s and e "
         "try shared and exclusive; + instead of ; puts the next client on the same compute node")
      .type_name("\"w;r;rrrw\"");
  app.add_option("--without", options->without, "Leave out a rule of the protocol; 'list' shows them")
      .type_name("RULE");
  app.add_option("--release-read", options->release_read,
                 "When a release reads the queue with its first operation")
      .check(one_of({"adaptive", "always"}));
  app.add_flag("--piggyback", options->piggyback,
               "Sections use an object, in one doorbell with the lock; readers' releases not awaited");
  app.add_flag("--at-once", options->at_once,
               "As in shared memory: clients lock and unlock in one step where they can");
  explore::Mishaps& mishaps = options->mishaps;
  app.add_option("--faults", mishaps.faults,
                 "So many compute nodes may crash, or be taken for dead wrongly, at any moment")
      .check(whole_number(0, 4));
  app.add_option("--resets", mishaps.resets, "So many times somebody may reset the lock for nothing")
      .check(whole_number(0, 4));
  app.add_option("--breaks", mishaps.breaks,
                 "So many times a connection to the memory node may break: the outcome of what is "
                 "under way is unknown")
      .check(whole_number(0, 4));
  app.add_option("--restarts", mishaps.restarts,
                 "So many times the memory node may restart, with fresh memory")
      .check(whole_number(0, 4));
  app.add_option("--losses", mishaps.losses,
                 "So many messages between compute nodes may be lost, which no network here does")
      .check(whole_number(0, 4));
  app.add_option("--repeats", mishaps.repeats,
                 "So many messages between compute nodes may arrive twice, which no network here does")
      .check(whole_number(0, 4));
  app.add_option(
         "--joins", options->joins,
         "So many clients, or compute nodes of a declock- lock, the last ones, join at some moment")
      .check(whole_number(0, 4));
  app.add_option(
         "--heirs", options->heirs,
         "So many clients, or compute nodes, the last ones, join one after the other, each in the slot "
         "of the one before it once that has left")
      .check(whole_number(0, 4));
  app.add_option("--max-states", options->max_states, "Give up after so many states per program")
      .check(whole_number(1, 1'000'000'000));
  app.add_option("--jobs", options->jobs, "Programs to explore at once, where --program has an x")
      .check(whole_number(1, 256));
  app.add_option("--json", options->json, "Write the result there; - is standard output")
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
