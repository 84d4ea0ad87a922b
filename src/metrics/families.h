// Stats as Prometheus families. docs/grafana has a dashboard and alerts that use these names.
#pragma once

#include <vector>

#include "declock/stats.h"
#include "metrics/family.h"

namespace declock::metrics {

std::vector<Family> families_of(const Stats& stats);

}  // namespace declock::metrics
