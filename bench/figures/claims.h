// The paper's claims, each beside what came out here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "figures/plan.h"
#include "figures/results.h"

namespace declock::bench::figures {

// A number or a shape that a claim consists of.
struct Part {
  std::string what;
  std::string paper;
  std::string ours;
  bool agrees;                     // in direction
  std::optional<bool> is_close{};  // within 30 %; nothing: there is no number to compare
};

struct Claim {
  int number;
  std::string figure;
  std::string text;
  bool calibrated = false;    // the NIC model was fitted to this one
  std::vector<Part> parts{};  // none: it was not run
  std::string note{};         // where it differs: why; otherwise whatever is worth knowing

  bool was_run() const { return !parts.empty(); }
  bool agrees() const;         // in all of its parts
  bool mostly_agrees() const;  // in more than half of them
  bool is_numeric() const;
  bool is_close() const;
};

struct ClaimCounts {
  int run = 0, agree = 0, mostly_agree = 0, numeric = 0, close = 0;
};
// Of those that the model was fitted to, of the others, or of all.
ClaimCounts count(const std::vector<Claim>& claims, std::optional<bool> calibrated = {});

// Why a claim comes out differently here; empty: it does not.
std::string_view reason_of(int number);

// All that are not about applications.
std::vector<Claim> check_claims(const Scale& scale, const Results& results);

}  // namespace declock::bench::figures
