#include "figures/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>

namespace declock::bench::figures {
namespace {

MicroConfig config_of(const Contestant& contestant, const Setting& setting,
                      const Variation& variation) {
  MicroConfig config = contestant.with(setting.config);
  config.duration = setting.config.duration;  // the same for all
  config.nic = variation.nic;
  return config;
}

double ratio(const Conclusion& conclusion, const Setting& setting, const Variation& variation,
             const Results& results) {
  const auto value = [&](const Contestant& contestant) {
    return results.find(key_of(config_of(contestant, setting, variation)))
        ->at(Json::json_pointer(conclusion.value))
        .get<double>();
  };
  const double better = value(conclusion.better), worse = value(conclusion.worse);
  return conclusion.smaller_is_better ? worse / better : better / worse;
}

}  // namespace

const std::vector<Conclusion>& conclusions() {
  static const std::vector<Conclusion> all{
      {"TF/CASLock", published("declock-tf"), published("caslock"), "/throughput_mops"},
      {"TF/DSLR+", published("declock-tf"), published("dslr+"), "/throughput_mops"},
      {"PF/ShiftLock", published("declock-pf"), published("shiftlock"), "/throughput_mops"},
      {"slack/ShiftLock", at_full_strength("declock-slack"), at_full_strength("shiftlock"),
       "/throughput_mops"},
      {"slack/ShiftLock P99", at_full_strength("declock-slack"), at_full_strength("shiftlock"),
       "/latency_us/op/p99", true},
      {"token/ShiftLock", at_full_strength(kTokenLock), at_full_strength("shiftlock"),
       "/throughput_mops"},
      {"token/ShiftLock P99", at_full_strength(kTokenLock), at_full_strength("shiftlock"),
       "/latency_us/op/p99", true},
  };
  return all;
}

std::vector<Variation> variations() {
  const sim::NicModel nic;
  std::vector<Variation> all{{"none", "", nic}};
  for (const sim::NicField& field : sim::nic_fields()) {
    for (const bool doubled : {false, true}) {
      Variation v{field.name, doubled ? "doubled" : "halved", nic};
      v.nic.*field.member =
          std::clamp(doubled ? nic.*field.member * 2 : nic.*field.member / 2, field.low, field.high);
      all.push_back(v);
    }
  }
  return all;
}

Sweep sensitivity_settings(std::uint64_t seed) {
  MicroConfig base;
  base.seed = seed;
  base.duration = milliseconds(100);
  base.warmup = milliseconds(20);
  Sweep all(5, {0, "", base});
  all[0].label = "256 clients, 50 % reads";
  all[1].label = "0 % reads";
  all[1].config.read_ratio = 0;
  all[2].label = "90 % reads";
  all[2].config.read_ratio = 0.9;
  all[3].label = "section of 16";
  all[3].config.cs_ops = 16;
  all[4].label = "64 clients";
  all[4].config.cns = 2;
  return all;
}

std::vector<Job> sensitivity_jobs(std::uint64_t seed) {
  std::vector<Job> jobs;
  for (const Variation& variation : variations()) {
    for (const Setting& setting : sensitivity_settings(seed)) {
      for (const Conclusion& conclusion : conclusions()) {
        jobs.push_back(job_of(config_of(conclusion.better, setting, variation)));
        jobs.push_back(job_of(config_of(conclusion.worse, setting, variation)));
      }
    }
  }
  return jobs;
}

std::string sensitivity_table(std::uint64_t seed, const Results& results) {
  const std::vector<Variation> all = variations();
  const Sweep settings = sensitivity_settings(seed);
  std::string text = "Ratios with the model as it is; above 1 the first is better:\n";
  text += fmt::format("  {:<26}", "");
  for (const Conclusion& conclusion : conclusions()) text += fmt::format("{:>20}", conclusion.name);
  for (const Setting& setting : settings) {
    text += fmt::format("\n  {:<26}", setting.label);
    for (const Conclusion& conclusion : conclusions())
      text += fmt::format("{:>20.2f}", ratio(conclusion, setting, all[0], results));
  }
  text += "\n\nWhich of them turn around when a number is halved or doubled:\n";
  for (const Variation& variation : all) {
    if (variation.change.empty()) continue;
    std::string turned;
    for (const Setting& setting : settings) {
      for (const Conclusion& conclusion : conclusions()) {
        const double before = ratio(conclusion, setting, all[0], results);
        const double after = ratio(conclusion, setting, variation, results);
        if ((before > 1) == (after > 1)) continue;
        turned += fmt::format("{}{}, {}: {:.2f} to {:.2f}", turned.empty() ? "" : "; ", conclusion.name,
                              setting.label, before, after);
      }
    }
    text += fmt::format("  {:<22}{:<9}{}\n", variation.parameter, variation.change,
                        turned.empty() ? "none" : turned);
  }
  return text;
}

std::string sensitivity_json(std::uint64_t seed, const Results& results, std::string_view commit) {
  Json rows = Json::array();
  for (const Variation& variation : variations()) {
    Json of_settings = Json::object();
    for (const Setting& setting : sensitivity_settings(seed)) {
      for (const Conclusion& conclusion : conclusions())
        of_settings[setting.label][conclusion.name] = ratio(conclusion, setting, variation, results);
    }
    rows.push_back(
        {{"parameter", variation.parameter}, {"change", variation.change}, {"ratios", of_settings}});
  }
  return Json{{"commit", commit}, {"seed", seed}, {"variations", rows}}.dump(1) + "\n";
}

}  // namespace declock::bench::figures
