// The evaluation on one page that needs nothing else, and as JSON.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "bench/paths.h"
#include "figures/claims.h"
#include "figures/plan.h"
#include "figures/results.h"

namespace declock::bench::figures {

// Everything that there is to show.
struct Evaluation {
  Scale scale;
  std::string commit;
  const Plan& plan;
  const Results& results;
  std::vector<Claim> claims;
  std::vector<WalkedPath> paths;
  std::vector<Fabric> fabrics;  // that the paths were walked on
};

// With the pictures that were drawn into this directory. Throws std::runtime_error if one is missing.
std::string to_html(const Evaluation& evaluation, const std::filesystem::path& pictures);
std::string to_json(const Evaluation& evaluation);
// For a terminal: how many claims agree, and which do not.
std::string summary(const std::vector<Claim>& claims);

}  // namespace declock::bench::figures
