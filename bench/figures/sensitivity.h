// Which conclusions depend on which number of the NIC model: each is halved and doubled.
#pragma once

#include <string>
#include <vector>

#include "figures/plan.h"
#include "figures/results.h"

namespace declock::bench::figures {

// One thing that the figures say, as a ratio: it holds if that is above 1.
struct Conclusion {
  std::string name;
  Contestant better, worse;
  std::string value;  // a JSON pointer
  bool smaller_is_better = false;
};
const std::vector<Conclusion>& conclusions();

// The model with one number changed; the first is the model itself.
struct Variation {
  std::string parameter;
  std::string change;  // "halved", "doubled"
  sim::NicModel nic;
};
std::vector<Variation> variations();

// Of the workload, 0.1 s of virtual time each.
Sweep sensitivity_settings(std::uint64_t seed);

std::vector<Job> sensitivity_jobs(std::uint64_t seed);

// For each variation and setting the conclusions that turn around.
std::string sensitivity_table(std::uint64_t seed, const Results& results);
std::string sensitivity_json(std::uint64_t seed, const Results& results, std::string_view commit);

}  // namespace declock::bench::figures
