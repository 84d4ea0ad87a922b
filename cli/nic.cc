// declock nic
#include "sim/nic.h"

#include <fmt/format.h>

#include "commands.h"
#include "exit_codes.h"

namespace declock::cli {

Action add_nic(Command program) {
  program.add_command("nic", "Print the built-in model of the network as a file for --nic");
  return [] {
    fmt::print("{}", sim::to_json(sim::NicModel{}));
    return static_cast<int>(kFine);
  };
}

}  // namespace declock::cli
