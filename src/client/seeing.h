// For `declock top` and `declock inspect`: what the processes of a cluster report, and locks as a person writes them.
#pragma once

#include <string>
#include <vector>

#include "client/report.h"
#include "declock/cluster.h"

namespace declock::client {

// Of all members that have written one lately.
Result<std::vector<Report>, Error> read_reports(Cluster& cluster);

// "orders/42", "orders[17]", "mn0+0x1000"; nothing is made.
Result<LockRef, Error> find_lock(Cluster& cluster, const std::string& lock);
// As Cluster::open(), for who takes no locks there: so they may be of any kind.
Result<Cluster, Error> open_to_look(std::string_view uri, const Options& options);

}  // namespace declock::client
