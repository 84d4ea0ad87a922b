// Checks of single options, with errors that say what is accepted.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "networks/networks.h"

namespace declock::cli {

CLI::Validator whole_number(std::uint64_t low, std::uint64_t high);
CLI::Validator decimal(double low, double high);
// A factor: "4x", "1.5x".
std::optional<double> parse_factor(const std::string& text);
CLI::Validator factor(double low, double high);
CLI::Validator one_of(std::vector<std::string> names);

// An option that takes a duration ("100ms") of at least `low` and at most `high`.
CLI::Option* add_duration(CLI::App& app, const std::string& name, Duration& value,
                          const std::string& help, Duration low, Duration high);

// Which device, port, GID and MTU a program uses on --fabric verbs.
void add_verbs_options(CLI::App& app, net::NetworkOptions& options);

}  // namespace declock::cli
