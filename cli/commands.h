// The subcommands. Each adds its options to the program, and returns what to run once they are parsed.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "options.h"

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

Action add_bench_micro(Command bench);
Action add_bench_mutex(Command bench);
Action add_bench_paths(Command bench);
Action add_bench_peers(Command bench);
Action add_bench_reset(Command bench);
Action add_demo(Command program);
Action add_doctor(Command program);
Action add_explore(Command program);
Action add_figures(Command program);
Action add_inspect(Command program);
// `command`: what followed --, word for word.
Action add_lock(Command program, const std::vector<std::string>& command);
Action add_mn(Command program);
Action add_secret(Command program);
Action add_sensitivity(Command program);
// By the names of its commands.
std::vector<std::pair<std::string, Action>> add_shm(Command program);
Action add_top(Command program);
Action add_torture(Command program);
Action add_trace(Command program);
Action add_nic(Command program);

}  // namespace declock::cli
