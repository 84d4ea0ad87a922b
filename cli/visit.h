// Opens a cluster to look at it: it must be there, and this process is not shown among those that use it.
#pragma once

#include <string>

#include "declock/cluster.h"

namespace declock::cli {

// Throws CannotRun.
Cluster visit(const std::string& uri);

// What alarm() does from now on: it ends the program with this line, which stays where it is. A call to a memory node
// that is away takes until it is back.
void end_on_alarm(const char* line);

}  // namespace declock::cli
