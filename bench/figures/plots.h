// The figures as data (CSV) and as pictures (gnuplot: SVG and PNG).
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "figures/plan.h"
#include "figures/results.h"

namespace declock::bench::figures {

// What is drawn of a series.
std::vector<std::pair<double, double>> points(const Panel& panel, const Series& series,
                                              const Results& results);

std::string to_csv(const Panel& panel, const Results& results);
// Every run of the plan: its configuration and the values that matter, one line each.
std::string runs_csv(const Plan& plan, const Results& results);

// Throws std::runtime_error, with what to do, if there is no gnuplot.
void require_gnuplot();
// ID.svg and ID.png of every panel and of the grid, and the script that drew them, plots.gp. Throws
// std::runtime_error.
void draw(const Plan& plan, const Results& results, const std::filesystem::path& directory);

// A file with this text, complete or not at all. Throws std::runtime_error.
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace declock::bench::figures
