// Opens a cluster to look at it: it must be there, and this process is not shown among those that use it.
#pragma once

#include <string>

#include "commands.h"
#include "declock/cluster.h"

namespace declock::cli {

// Throws CannotRun.
inline Cluster visit(const std::string& uri) {
  Options options;
  options.workers = 1;
  options.create = false;
  options.publish = false;
  Result<Cluster, Error> opened = Cluster::open(uri, options);
  if (!opened) throw CannotRun(opened.error().message);
  return std::move(*opened);
}

}  // namespace declock::cli
