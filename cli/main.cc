// The declock program: finds the subcommand, and turns what went wrong into one line.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string_view>

#include "commands.h"
#include "commit.h"
#include "exit_codes.h"
#include "output.h"

namespace declock::cli {
namespace {

int fail(ExitCode code, std::string_view what) {
  std::string line{what};
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  fmt::print(stderr, "declock: {}\n", line);
  return code;
}

// The command line up to the first option, for the hint at --help.
std::string command_path(const CLI::App& app) {
  std::string path = app.get_name();
  for (const CLI::App* chosen : app.get_subcommands()) path += " " + command_path(*chosen);
  return path;
}

// The innermost command that was named has subcommands and was given none of them. Empty: it has none.
std::string command_needed(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  std::string accepted;
  for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; })) {
    accepted += (accepted.empty() ? "" : ", ") + sub->get_name();
  }
  if (accepted.empty()) return {};
  const std::vector<std::string> rest = program.remaining(true);
  return fmt::format(
      "{}; commands of '{}' are {}",
      rest.empty() ? "a command is missing" : fmt::format("'{}' is no command", rest.front()),
      command_path(program), accepted);
}

// By command_path(), without the program's name.
std::map<std::string, Action> add_commands(Command program, const std::vector<std::string>& command) {
  Command bench = program.add_command("bench", "Benchmarks");
  bench.require_command();
  std::map<std::string, Action> actions{{"bench micro", add_bench_micro(bench)},
                                        {"bench mutex", add_bench_mutex(bench)},
                                        {"bench paths", add_bench_paths(bench)},
                                        {"bench peers", add_bench_peers(bench)},
                                        {"bench reset", add_bench_reset(bench)},
                                        {"explore", add_explore(program)},
                                        {"torture", add_torture(program)},
                                        {"nic", add_nic(program)},
                                        {"demo", add_demo(program)},
                                        {"doctor", add_doctor(program)},
                                        {"figures", add_figures(program)},
                                        {"inspect", add_inspect(program)},
                                        {"lock", add_lock(program, command)},
                                        {"mn", add_mn(program)},
                                        {"secret", add_secret(program)},
                                        {"sensitivity", add_sensitivity(program)},
                                        {"top", add_top(program)},
                                        {"trace", add_trace(program)}};
  for (const auto& [name, action] : add_shm(program)) actions.emplace("shm " + name, action);
  return actions;
}

// Takes away what follows the first --: CLI11 would make two words of '[1,2]'.
std::vector<std::string> take_command(int& argc, char** argv) {
  char** const end = argv + argc;
  char** const dashes = std::find(argv, end, std::string_view{"--"});
  if (dashes == end) return {};
  argc = static_cast<int>(dashes - argv);
  return {dashes + 1, end};
}

int main(int argc, char** argv) {
  open_standard_descriptors();
  CLI::App program{"DecLock: a reader-writer lock for disaggregated memory", "declock"};
  program.set_version_flag("--version", "declock " DECLOCK_VERSION ", commit " DECLOCK_COMMIT);
  program.require_subcommand(1);
  program.get_formatter()->column_width(34);
  program.option_defaults()->always_capture_default();
  const bool has_command = argc > 1 && std::string_view{argv[1]} == "lock";
  const std::map<std::string, Action> actions = add_commands(
      Command{program}, has_command ? take_command(argc, argv) : std::vector<std::string>{});
  try {
    program.parse(argc, argv);
    const int status = actions.at(command_path(*program.get_subcommands().front()))();
    flush_standard_output();
    return status;
  } catch (const CLI::Success& asked) {
    program.exit(asked);  // --help, --version
    return std::fflush(stdout) == 0 ? kFine : fail(kIncomplete, "standard output could not be written");
  } catch (const CLI::RequiredError& error) {
    const std::string needed = command_needed(program);
    return fail(kBadInput, needed.empty()
                               ? fmt::format("{}; see '{} --help'", error.what(), command_path(program))
                               : needed);
  } catch (const CLI::ParseError& error) {
    return fail(kBadInput, fmt::format("{}; see '{} --help'", error.what(), command_path(program)));
  } catch (const BadInput& error) {
    return fail(kBadInput, error.what());
  } catch (const CannotRun& error) {
    return fail(kIncomplete, error.what());
  } catch (const std::bad_alloc&) {
    return fail(kIncomplete, "out of memory; use fewer locks, clients or states");
  } catch (const std::exception& error) {
    return fail(kIncomplete, error.what());
  }
}

}  // namespace
}  // namespace declock::cli

int main(int argc, char** argv) {
  return declock::cli::main(argc, argv);
}
