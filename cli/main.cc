// The declock program: finds the subcommand, and turns what went wrong into one line.
#include <fmt/format.h>

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

// By their names.
std::map<std::string, Action> add_commands(Command program, const std::vector<std::string>& command) {
  std::map<std::string, Action> actions{
      {"doctor", add_doctor(program)},      {"inspect", add_inspect(program)},
      {"lock", add_lock(program, command)}, {"mn", add_mn(program)},
      {"secret", add_secret(program)},      {"top", add_top(program)},
      {"trace", add_trace(program)}};
  for (const auto& [name, action] : add_shm(program)) actions.emplace("shm " + name, action);
#if DECLOCK_EVALUATION
  Command bench = program.add_command("bench", "Benchmarks");
  bench.require_command();
  actions.merge(std::map<std::string, Action>{{"bench micro", add_bench_micro(bench)},
                                              {"bench mutex", add_bench_mutex(bench)},
                                              {"bench paths", add_bench_paths(bench)},
                                              {"bench peers", add_bench_peers(bench)},
                                              {"bench reset", add_bench_reset(bench)},
                                              {"demo", add_demo(program)},
                                              {"explore", add_explore(program)},
                                              {"figures", add_figures(program)},
                                              {"nic", add_nic(program)},
                                              {"sensitivity", add_sensitivity(program)},
                                              {"torture", add_torture(program)}});
#endif
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
  Program program{"declock", "DecLock: a reader-writer lock for disaggregated memory",
                  "declock " DECLOCK_VERSION ", commit " DECLOCK_COMMIT};
  const bool has_command = argc > 1 && std::string_view{argv[1]} == "lock";
  const std::map<std::string, Action> actions =
      add_commands(program.root(), has_command ? take_command(argc, argv) : std::vector<std::string>{});
  try {
    const std::optional<std::string> command = program.parse(argc, argv);
    const int status = command ? actions.at(*command)() : kFine;
    flush_standard_output();
    return status;
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
