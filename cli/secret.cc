// declock secret: makes the file that the nodes of a cluster share.
#include "wire/secret.h"

#include <fmt/format.h>

#include <memory>

#include "commands.h"
#include "exit_codes.h"

namespace declock::cli {

Action add_secret(Command program) {
  Command app = program.add_command("secret", "Makes a new secret, which all nodes of a cluster need");
  auto path = std::make_shared<std::string>();
  app.add_option("FILE", *path, "Where; must not be there yet").required();
  return [path]() -> int {
    const auto made = wire::create_secret(*path);
    if (!made) throw BadInput(made.error());
    fmt::print("{}: a new secret; copy it to every node of the cluster, readable for its user alone\n",
               *path);
    return kFine;
  };
}

}  // namespace declock::cli
