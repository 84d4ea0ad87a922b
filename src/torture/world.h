// One run of a plan: a simulated cluster of production code, its clients, its faults and its checkers.
#pragma once

#include "cql/rules.h"
#include "torture/torture.h"

namespace declock::torture {

// Rules of the cluster, rather than of the protocol.
struct ClusterRules {
  bool fence = true;
  bool view_before_access = true;
  bool initialise = true;
  bool pardon_lateness = true;
};

Outcome run_world(const Plan& plan, const ClusterRules& rules, const cql::Rules& protocol);

}  // namespace declock::torture
