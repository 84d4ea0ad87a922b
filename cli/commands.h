// The subcommands. Each adds its options to the program, and returns what to run once they are parsed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>

namespace declock::cli {

// Thrown by a command for input that is wrong as a whole; the text becomes the one line of the error.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Thrown when the work could not be done, or not to the end.
struct CannotRun : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Action = std::function<int()>;  // returns the exit status

Action add_bench_micro(CLI::App& bench);
Action add_bench_mutex(CLI::App& bench);
Action add_bench_paths(CLI::App& bench);
Action add_bench_peers(CLI::App& bench);
Action add_bench_reset(CLI::App& bench);
Action add_demo(CLI::App& program);
Action add_doctor(CLI::App& program);
Action add_explore(CLI::App& program);
Action add_figures(CLI::App& program);
Action add_inspect(CLI::App& program);
// `command`: what followed --, word for word.
Action add_lock(CLI::App& program, const std::vector<std::string>& command);
Action add_mn(CLI::App& program);
Action add_secret(CLI::App& program);
Action add_sensitivity(CLI::App& program);
// By the names of its commands.
std::vector<std::pair<std::string, Action>> add_shm(CLI::App& program);
Action add_top(CLI::App& program);
Action add_torture(CLI::App& program);
Action add_trace(CLI::App& program);
Action add_nic(CLI::App& program);

}  // namespace declock::cli
