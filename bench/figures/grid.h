// The grid: our lock beside the others over the whole range of settings, as data and as one picture of ratios.
#pragma once

#include <string>
#include <vector>

#include "figures/plan.h"
#include "figures/results.h"

namespace declock::bench::figures {

// The cells, in groups that vary the same. A setting that belongs to several is in each of them, and run once.
std::vector<Group> grid_cells(const Scale& scale);

// Ours, and then those that it is compared with: all of them with lock and data in one doorbell.
const std::vector<Contestant>& grid_contestants();

// Of one cell: ours over the other's.
struct Ratios {
  double throughput;  // above 1 ours is better
  double p99;         // of an operation's latency; below 1 ours is better
};
Ratios ratios(const Setting& cell, const Contestant& other, const Results& results);

// Every cell and lock, one line each, with all that was counted.
std::string grid_csv(const std::vector<Group>& grid, const Results& results);
Json grid_json(const std::vector<Group>& grid, const Results& results);

// What gnuplot draws kGridPicture.svg and .png with: a row for each cell, a column for each comparison, a panel for
// throughput and one for P99.
inline constexpr const char* kGridPicture = "grid";
std::string grid_script(const std::vector<Group>& grid, const Results& results);

}  // namespace declock::bench::figures
