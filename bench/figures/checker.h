// What the claims are checked with: values and ratios out of the runs, and what counts as agreement.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "figures/claims.h"

namespace declock::bench::figures {

inline constexpr double kClose = 0.30;
// A bound that is passed by no more than this still stands, and so does what is stable.
inline constexpr double kAlike = 0.10;
// Values that differ by no more than this are similar.
inline constexpr double kSimilar = 0.25;
// Less is no difference at all.
inline constexpr double kVisible = 0.02;

// Thrown where a run is missing that a claim is about.
struct NotRun {};

inline std::string rounded(double value, std::string_view unit) {
  if (std::abs(value) >= 100) return fmt::format("{:.0f}{}", value, unit);
  return unit == "x" ? fmt::format("{:.2f}x", value) : fmt::format("{:.3g}{}", value, unit);
}
inline Part number(std::string what, double paper, double ours, std::string_view unit, bool agrees) {
  const bool close = std::abs(ours - paper) <= kClose * std::abs(paper);
  return {std::move(what), fmt::format("{:g}{}", paper, unit), rounded(ours, unit), agrees, close};
}
inline Part at_most(std::string what, double paper, double ours, std::string_view unit) {
  return {std::move(what), fmt::format("at most {:g}{}", paper, unit), rounded(ours, unit),
          ours <= paper * (1 + kAlike), ours <= paper * (1 + kClose)};
}
inline Part at_least(std::string what, double paper, double ours, std::string_view unit) {
  return {std::move(what), fmt::format("at least {:g}{}", paper, unit), rounded(ours, unit),
          ours >= paper * (1 - kAlike), ours >= paper * (1 - kClose)};
}
inline Part shape(std::string what, std::string ours, bool agrees) {
  return {std::move(what), "yes", std::move(ours), agrees};
}
// How much better than another lock: a factor above 1.
inline Part gain(std::string what, double paper, double ours) {
  return number(std::move(what), paper, ours, "x", ours >= 1 + kVisible);
}
// By how many percent smaller.
inline Part cut(std::string what, double paper, double ours) {
  return number(std::move(what), -paper, -ours, " %", ours >= 100 * kVisible);
}

class Checker {
 public:
  Checker(const Scale& scale, const Results& results) : scale_(scale), results_(results) {}

  const Json& result(const std::string& key) const {
    const Json* found = results_.find(key);
    if (found == nullptr) throw NotRun{};
    return *found;
  }
  double value(const MicroConfig& config, const char* pointer) const {
    return result(key_of(config)).at(Json::json_pointer(pointer)).get<double>();
  }
  double of(const char* lock, const Setting& setting, const char* pointer) const {
    return value(published(lock).with(setting.config), pointer);
  }
  double throughput(const char* lock, const Setting& setting) const {
    return of(lock, setting, "/throughput_mops");
  }
  double best_declock(const Setting& setting) const {
    return std::max(throughput("declock-tf", setting), throughput("declock-pf", setting));
  }

  using Fn = std::function<double(const Setting&)>;
  static double most(const Sweep& sweep, const Fn& fn) {
    double best = fn(sweep[0]);
    for (const Setting& setting : sweep) best = std::max(best, fn(setting));
    return best;
  }
  static double least(const Sweep& sweep, const Fn& fn) {
    return -most(sweep, [&](const Setting& s) { return -fn(s); });
  }
  double peak(const char* lock) const {
    return most(clients, [&](const Setting& s) { return throughput(lock, s); });
  }
  // Throughput of one over the other's.
  Fn over(const char* lock, const char* other) const {
    return [=, this](const Setting& s) { return throughput(lock, s) / throughput(other, s); };
  }
  // By how many percent the better DecLock is below the other lock.
  Fn below(const char* other, const char* pointer) const {
    return [=, this](const Setting& s) {
      const double ours = std::min(of("declock-tf", s, pointer), of("declock-pf", s, pointer));
      return 100 * (1 - ours / of(other, s, pointer));
    };
  }
  // The throughput of the better DecLock over the other lock's.
  Fn best_over(const char* other) const {
    return [=, this](const Setting& s) { return best_declock(s) / throughput(other, s); };
  }
  // The largest in all of figure 12.
  double most_of_figure_12(const Fn& fn) const {
    double largest = 0;
    for (const Sweep* sweep : {&clients, &section, &reads, &locks, &skew})
      largest = std::max(largest, most(*sweep, fn));
    return largest;
  }
  // The same of TF and PF.
  double most_of_declock(const char* pointer) const {
    return most_of_figure_12([=, this](const Setting& s) {
      return std::max(of("declock-tf", s, pointer), of("declock-pf", s, pointer));
    });
  }
  double most_per_operation(const char* pointer) const {
    return most_of_figure_12([=, this](const Setting& s) {
      return std::max(of("declock-tf", s, pointer) / of("declock-tf", s, "/ops"),
                      of("declock-pf", s, pointer) / of("declock-pf", s, "/ops"));
    });
  }
  double reset_us(std::uint32_t clients_per_node) const {
    return result(reset_key(8, clients_per_node, scale_)).at("reset_us").at("p50").get<double>();
  }
  // Operations per bucket of a timeline, on average.
  double mean_of_timeline(const MicroConfig& config, std::size_t from_ms, std::size_t to_ms) const {
    const Json& timeline = result(key_of(config)).at("timeline");
    double sum = 0;
    for (std::size_t ms = from_ms; ms < to_ms; ms += 10) sum += timeline.at(ms / 10).get<double>();
    return sum / static_cast<double>(to_ms - from_ms) * 10;
  }
  double hottest(const char* policy, double read_ratio, const char* pointer) const {
    return value(published(policy).with(policy_config(scale_, read_ratio)), pointer);
  }

  const Setting& all_clients() const { return clients.back(); }
  const Setting& usual_section() const { return section[1]; }
  const Setting& longest_section() const { return section.back(); }

  const Scale scale_;
  const Results& results_;
  const Sweep clients = clients_sweep(scale_), section = section_sweep(scale_),
              reads = reads_sweep(scale_), locks = locks_sweep(scale_), skew = skew_sweep(scale_);
  // Without the last, which is all reads.
  const Sweep mixed{reads.begin(), reads.end() - 1};
};

}  // namespace declock::bench::figures
