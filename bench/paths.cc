#include "bench/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/script.h"

namespace declock::bench {
namespace {

constexpr std::array<std::string_view, kOpKinds> kShortNames{"READ", "WRITE", "FAA", "CAS",
                                                             "masked CAS"};

std::string_view short_name(OpKind kind) {
  return kShortNames[static_cast<std::size_t>(kind)];
}

std::string with_messages(std::string ops, std::uint64_t messages) {
  if (ops.empty()) ops = "0";
  if (messages == 0) return ops;
  return fmt::format("{}, {} message{}", ops, messages, messages == 1 ? "" : "s");
}

}  // namespace

std::string Cost::text() const {
  std::string all;
  for (const Ops& o : ops) {
    if (!all.empty()) all += " + ";
    const std::string polls = o.per_poll == 1 ? "n" : fmt::format("{}n", o.per_poll);
    if (o.per_poll == 0) all += fmt::to_string(o.always);
    if (o.per_poll > 0) all += o.always == 0 ? polls : fmt::format("{}+{}", o.always, polls);
    all += fmt::format(" {}", short_name(o.kind));
  }
  return with_messages(all, messages);
}

Cost::Ops Cost::of(OpKind kind) const {
  const auto found =
      std::find_if(ops.begin(), ops.end(), [kind](const Ops& o) { return o.kind == kind; });
  return found == ops.end() ? Ops{kind} : *found;
}

bool Cost::matches(const OpCounts& counts) const {
  std::optional<std::uint64_t> polls;
  for (std::size_t k = 0; k < kOpKinds; ++k) {
    const Ops expected = of(static_cast<OpKind>(k));
    const std::uint64_t seen = counts.of(expected.kind);
    if (expected.per_poll == 0 && seen != expected.always) return false;
    if (expected.per_poll == 0) continue;
    if (seen < expected.always + expected.per_poll * polls_at_least) return false;
    if ((seen - expected.always) % expected.per_poll != 0) return false;
    const std::uint64_t n = (seen - expected.always) / expected.per_poll;
    if (polls.value_or(n) != n) return false;
    polls = n;
  }
  return counts.messages == messages;
}

bool Cost::exceeded_by(const OpCounts& counts) const {
  for (std::size_t k = 0; k < kOpKinds; ++k) {
    const Ops expected = of(static_cast<OpKind>(k));
    if (expected.per_poll == 0 && counts.of(expected.kind) > expected.always) return true;
  }
  return counts.messages > messages;
}

bool exists_on(Fabric fabric, std::string_view lock, const Path& path) {
  if (fabric == Fabric::sim) return true;
  return exists_on(fabric, lock) && path.script.find_first_of("@PQ") == std::string_view::npos;
}

std::vector<OpCounts> simulate(std::string_view lock, std::string_view script) {
  std::vector<OpCounts> costs;
  for (const Simulated& step : walk_simulated(lock, parse(script))) costs.push_back(step.cost);
  return costs;
}

Costs walk(Fabric fabric, const LockPaths& of_lock) {
  std::set<std::string_view> scripts;
  for (const Path& path : of_lock.paths) {
    if (exists_on(fabric, of_lock.lock, path)) scripts.insert(path.script);
  }
  if (scripts.empty()) return {};
  if (fabric != Fabric::sim) return walk_real(fabric, of_lock, scripts);
  Costs costs;
  for (const std::string_view script : scripts) costs[script] = simulate(of_lock.lock, script);
  return costs;
}

bool WalkedPath::agrees() const {
  return std::all_of(seen.begin(), seen.end(),
                     [this](const auto& s) { return path->cost.matches(s.second); });
}

std::vector<WalkedPath> walk_all(const std::vector<Fabric>& fabrics,
                                 const std::function<void(double)>& progress,
                                 const std::vector<LockPaths>& documented) {
  std::vector<WalkedPath> walked;
  const double parts = static_cast<double>(documented.size() * fabrics.size());
  double part = 0;
  for (const LockPaths& of_lock : documented) {
    std::map<Fabric, Costs> costs;
    for (const Fabric fabric : fabrics) {
      if (progress) progress(part++ / parts);
      costs[fabric] = walk(fabric, of_lock);
    }
    for (const Path& path : of_lock.paths) {
      walked.push_back({of_lock.lock, &path, {}});
      for (const Fabric fabric : fabrics) {
        if (exists_on(fabric, of_lock.lock, path))
          walked.back().seen[fabric] = costs[fabric].at(path.script)[path.step];
      }
    }
  }
  return walked;
}

std::string text(const OpCounts& counts) {
  std::string all;
  for (const OpKind kind : {OpKind::fetch_add, OpKind::compare_swap, OpKind::masked_compare_swap,
                            OpKind::write, OpKind::read}) {
    if (counts.of(kind) == 0) continue;
    all += fmt::format("{}{} {}", all.empty() ? "" : " + ", counts.of(kind), short_name(kind));
  }
  return with_messages(all, counts.messages);
}

std::string WalkedPath::text(Fabric fabric) const {
  const auto counts = seen.find(fabric);
  if (counts == seen.end()) return "-";
  const bool is_plain = fabric == Fabric::sim || !path->cost.matches(counts->second);
  return is_plain ? bench::text(counts->second) : path->cost.text();
}

std::string paths_table(const std::vector<WalkedPath>& walked, const std::vector<Fabric>& fabrics) {
  std::string all = fmt::format("{:<17} {:<55} {:<35}", "lock", "path", "documented");
  for (const Fabric fabric : fabrics) all += fmt::format(" {:<35}", to_string(fabric));
  all += "\n";
  for (const WalkedPath& w : walked) {
    all += fmt::format("{:<17} {:<55} {:<35}", w.lock, w.path->name, w.path->cost.text());
    for (const Fabric fabric : fabrics) all += fmt::format(" {:<35}", w.text(fabric));
    all += w.agrees() ? "\n" : " DIFFERS\n";
  }
  return all;
}

std::string paths_json(const std::vector<WalkedPath>& walked, std::string_view commit) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const WalkedPath& w : walked) {
    nlohmann::ordered_json seen = nlohmann::ordered_json::object();
    for (const auto& [fabric, counts] : w.seen) seen[std::string{to_string(fabric)}] = w.text(fabric);
    rows.push_back({{"lock", w.lock},
                    {"path", w.path->name},
                    {"script", w.path->script},
                    {"step", w.path->step},
                    {"documented", w.path->cost.text()},
                    {"seen", seen},
                    {"agrees", w.agrees()}});
  }
  return nlohmann::ordered_json{{"commit", commit}, {"paths", rows}}.dump(2) + "\n";
}

}  // namespace declock::bench
