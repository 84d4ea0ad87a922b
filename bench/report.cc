#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "bench/micro.h"

namespace declock::bench {
namespace {

using Json = nlohmann::ordered_json;

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double us(std::uint64_t ns) {
  return static_cast<double>(ns) / 1000;
}

Json latency(const Histogram& h) {
  return {{"p50", us(h.quantile(500))},
          {"p99", us(h.quantile(990))},
          {"p999", us(h.quantile(999))},
          {"max", us(h.max())},
          {"mean", h.mean() / 1000}};
}

// From 0 to 99, one by one.
Json percentiles(const Histogram& h) {
  Json all = Json::array();
  for (unsigned percent = 0; percent < 100; ++percent) all.push_back(us(h.quantile(percent * 10)));
  return all;
}

double seconds_of(Duration d) {
  return static_cast<double>(d.ns) / 1e9;
}

struct Figures {
  double throughput_mops, per_acquire, per_release, per_op, refetches;
};

Figures figures(const MicroConfig& config, const MicroResult& r) {
  const std::uint64_t releasing = r.counts.of(Purpose::release) + r.counts.of(Purpose::refetch);
  return {.throughput_mops = static_cast<double>(r.ops) / seconds_of(config.duration) / 1e6,
          .per_acquire = ratio(r.counts.of(Purpose::acquire), r.acquires),
          .per_release = ratio(releasing, r.releases),
          .per_op = ratio(r.lock_operations(), r.ops),
          .refetches = ratio(r.counts.of(Purpose::refetch), r.releases)};
}

Json config_json(const MicroConfig& c) {
  return {{"lock", c.lock},
          {"cns", c.cns},
          {"mns", c.mns},
          {"clients", c.clients},
          {"workers", c.workers},
          {"locks", c.locks},
          {"slots", c.slots},
          {"zipf", c.zipf},
          {"read_ratio", c.read_ratio},
          {"cs_ops", c.cs_ops},
          {"object_size", c.object_size},
          {"piggyback", c.piggyback},
          {"release_read", c.release_read == cql::ReleaseRead::always ? "always" : "adaptive"},
          {"slack", format_duration(c.slack)},
          {"bound", c.bound},
          {"gate", c.gate},
          {"cn_latency", c.cn_latency},
          {"duration", format_duration(c.duration)},
          {"warmup", format_duration(c.warmup)},
          {"kill", c.kill ? Json(fmt::format("{}:{}@{}", c.kill->memory ? "mn" : "cn", c.kill->node,
                                             format_duration(c.kill->at)))
                          : Json()},
          {"nic", Json::parse(sim::to_json(c.nic))}};
}

Json result_json(const MicroConfig& config, const MicroResult& r, std::string_view commit) {
  const Figures f = figures(config, r);
  Json mn_ops = Json::object();
  for (std::size_t k = 0; k < kOpKinds; ++k) {
    const auto kind = static_cast<OpKind>(k);
    mn_ops[std::string{to_string(kind)}] = r.counts.of(kind);
  }
  Json by_purpose = Json::object();
  for (std::size_t p = 0; p < kPurposes; ++p) {
    const auto purpose = static_cast<Purpose>(p);
    by_purpose[std::string{to_string(purpose)}] = r.counts.of(purpose);
  }
  return Json{
      {"commit", commit},
      {"fabric", to_string(config.fabric)},
      {"lock", config.lock},
      {"seed", config.seed},
      {"config", config_json(config)},
      {"duration_s", seconds_of(config.duration)},
      {"wall_s", r.wall_s},
      {"events", config.fabric == Fabric::sim ? Json(r.events) : Json()},
      {"trace_hash",
       config.fabric == Fabric::sim ? Json(fmt::format("{:016x}", r.trace_hash)) : Json()},
      {"ops", r.ops},
      {"throughput_mops", f.throughput_mops},
      {"latency_us",
       {{"op", latency(r.op_ns)},
        {"acquire", latency(r.acquire_ns)},
        {"release", latency(r.release_ns)},
        {"data", latency(r.data_ns)},
        {"hand_over", r.hand_over_ns.count() > 0 ? latency(r.hand_over_ns) : Json()}}},
      {"mn_ops", mn_ops},
      {"mn_ops_by_purpose", by_purpose},
      {"mn_ops_per_acquire", f.per_acquire},
      {"mn_ops_per_acquire_max", r.acquire_ops_max > 0 ? Json(r.acquire_ops_max) : Json()},
      {"mn_ops_per_release", f.per_release},
      {"mn_ops_per_op", f.per_op},
      {"refetches_per_release", f.refetches},
      {"messages", r.counts.messages.get()},
      {"resets", r.resets_done},
      {"reset_us", latency(r.reset_ns)},
      {"aborted_acquires", r.acquires_aborted},
      {"time_sync_error_us",
       r.time_sync_error ? Json(us(static_cast<std::uint64_t>(r.time_sync_error->ns))) : Json()},
      {"fairness",
       {{"overtakes_per_acquire", ratio(r.overtakes_sum, r.overtakes_counted_at)},
        {"overtakes",
         {{"p50", r.overtakes.quantile(500)},
          {"p99", r.overtakes.quantile(990)},
          {"max", r.overtakes.max()}}},
        {"fifo_violations", r.fifo_violations ? Json(*r.fifo_violations) : Json()},
        {"local_hand_overs", r.local_hand_overs},
        {"hand_over_late_us", r.hand_over_late_us},
        {"hottest_lock_acquire_us",
         {{"p50", us(r.hottest_acquire_ns.quantile(500))},
          {"p99", us(r.hottest_acquire_ns.quantile(990))},
          {"percentiles", percentiles(r.hottest_acquire_ns)}}}}},
      {"timeline", r.timeline},
      {"local_table_bytes_max", r.local_table_bytes_max},
      {"lost_updates", r.lost_updates ? Json(*r.lost_updates) : Json()},
      {"violations", r.violations},
      {"unfinished_clients", r.failures.size()}};
}

// Throughput before and after, without the buckets around the event itself.
std::string kill_summary(const MicroConfig& c, const MicroResult& r) {
  const auto at = static_cast<std::size_t>(c.kill->at.ns / 10'000'000);
  const auto mean = [&](std::size_t begin, std::size_t end) {
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += static_cast<double>(r.timeline[i]);
    return end > begin ? sum / static_cast<double>(end - begin) / 1e4 : 0;
  };
  const std::size_t end = r.timeline.size() - 1;
  const double before = mean(0, at);
  const double after = mean(at + (end - at) / 2, end);
  return fmt::format(
      "  killed             {}:{} at {}: {:.3f} M ops/s before, {:.3f} at the end ({:.1f} %); {} "
      "resets, "
      "{} acquisitions tried again\n",
      c.kill->memory ? "mn" : "cn", c.kill->node, format_duration(c.kill->at), before, after,
      before > 0 ? 100 * after / before : 0, r.resets_done, r.acquires_aborted);
}

// A column of the table: smaller is better, but for throughput.
struct Column {
  std::string_view name;
  int decimals;
  bool larger_is_better;
  double (*value)(const MicroRun& run);
  bool is_real = false;  // between processes only
};

constexpr std::array<Column, 11> kColumns{{
    {"M ops/s", 3, true, [](const MicroRun& r) { return figures(r.config, r.result).throughput_mops; }},
    {"p50 us", 1, false, [](const MicroRun& r) { return us(r.result.op_ns.quantile(500)); }},
    {"p99 us", 1, false, [](const MicroRun& r) { return us(r.result.op_ns.quantile(990)); }},
    {"p99.9 us", 1, false, [](const MicroRun& r) { return us(r.result.op_ns.quantile(999)); }},
    {"acq p50", 1, false, [](const MicroRun& r) { return us(r.result.acquire_ns.quantile(500)); },
     true},
    {"hand-over", 1, false, [](const MicroRun& r) { return us(r.result.hand_over_ns.quantile(500)); },
     true},
    {"MN/acq", 2, false, [](const MicroRun& r) { return figures(r.config, r.result).per_acquire; }},
    {"MN/op", 2, false, [](const MicroRun& r) { return figures(r.config, r.result).per_op; }},
    {"overtakes", 2, false,
     [](const MicroRun& r) { return ratio(r.result.overtakes_sum, r.result.overtakes_counted_at); }},
    {"their p99", 0, false,
     [](const MicroRun& r) { return static_cast<double>(r.result.overtakes.quantile(990)); }},
    {"their max", 0, false,
     [](const MicroRun& r) { return static_cast<double>(r.result.overtakes.max()); }},
}};

// The best of a column among the locks that could exist.
double best_of(const Column& column, const std::vector<MicroRun>& runs) {
  std::optional<double> best;
  for (const MicroRun& run : runs) {
    if (locks::costs_nothing(run.config.lock)) continue;
    const double value = column.value(run);
    if (!best || (column.larger_is_better ? value > *best : value < *best)) best = value;
  }
  return best.value_or(0);
}

}  // namespace

std::string config_text(const MicroConfig& config) {
  return config_json(config).dump();
}

std::string to_json(const MicroConfig& config, const MicroResult& r, std::string_view commit) {
  return result_json(config, r, commit).dump(2) + "\n";
}

std::string to_json(const std::vector<MicroRun>& runs, std::string_view commit) {
  Json all = Json::array();
  for (const MicroRun& run : runs) all.push_back(result_json(run.config, run.result, commit));
  return all.dump(2) + "\n";
}

std::string table(const std::vector<MicroRun>& runs) {
  std::string text = fmt::format("{:<24}", "lock");
  const bool real = runs.front().config.fabric != Fabric::sim;
  for (const Column& column : kColumns) {
    if (real || !column.is_real) text += fmt::format("{:>10} ", column.name);
  }
  text += "  violations  lost updates\n";
  for (const MicroRun& run : runs) {
    text += fmt::format("{:<24}", run.config.lock);
    for (const Column& column : kColumns) {
      if (column.is_real && !real) continue;
      const double value = column.value(run);
      const bool competes = !locks::costs_nothing(run.config.lock);
      const bool best = competes && value == best_of(column, runs);
      text += fmt::format("{:>10.{}f}{}", value, column.decimals, best ? '*' : ' ');
    }
    text += fmt::format("{:>12}  {:>12}\n", run.result.violations,
                        run.result.lost_updates ? fmt::to_string(*run.result.lost_updates) : "unknown");
  }
  return text +
         "* the best of its column; the ideal locks, which cost nothing and cannot exist, do not "
         "compete\n";
}

std::string summary(const MicroConfig& c, const MicroResult& r) {
  const Figures f = figures(c, r);
  std::string text = fmt::format(
      "{}: {} CNs x {} clients, {} locks, zipf {}, {:.0f} % reads, {} {}, seed {}\n", c.lock, c.cns,
      c.clients, format_count(c.locks), c.zipf, c.read_ratio * 100, format_duration(c.duration),
      c.fabric == Fabric::sim ? "virtual" : fmt::format("on {}", to_string(c.fabric)), c.seed);
  text += fmt::format("  throughput         {:.3f} M ops/s ({} operations)\n", f.throughput_mops,
                      format_count(r.ops));
  const auto line = [&](std::string_view name, const Histogram& h) {
    text += fmt::format("  {:<18} p50 {:.1f}  p99 {:.1f}  p99.9 {:.1f}  max {:.1f} us\n", name,
                        us(h.quantile(500)), us(h.quantile(990)), us(h.quantile(999)), us(h.max()));
  };
  line("operation", r.op_ns);
  line("acquire", r.acquire_ns);
  line("release", r.release_ns);
  if (r.hand_over_ns.count() > 0) line("hand-over", r.hand_over_ns);
  text +=
      fmt::format("  MN operations      {:.3f} per acquire, {:.3f} per release, {:.3f} per operation\n",
                  f.per_acquire, f.per_release, f.per_op);
  if (r.acquire_ops_max > 0) {
    text += fmt::format("  the dearest        acquisition took {} MN operations\n", r.acquire_ops_max);
  }
  text += fmt::format("  refetches          {:.4f} per release\n", f.refetches);
  text += fmt::format("  overtakes          {:.3f} per acquire, {} out of queue order\n",
                      ratio(r.overtakes_sum, r.overtakes_counted_at),
                      r.fifo_violations ? fmt::to_string(*r.fifo_violations) : "unknown");
  if (c.kill) text += kill_summary(c, r);
  if (r.local_hand_overs > 0) {
    text += fmt::format(
        "  local hand-overs   {}, to clients at most {} us later than the first remote one known\n",
        format_count(r.local_hand_overs), r.hand_over_late_us);
  }
  text += fmt::format("  safety             {} violations, {} lost updates\n", r.violations,
                      r.lost_updates ? fmt::to_string(*r.lost_updates) : "unknown");
  if (c.fabric == Fabric::sim) {
    text += fmt::format(
        "  simulator          {} events in {:.2f} s: {:.2f} M events/s, trace {:016x}\n",
        format_count(r.events), r.wall_s, static_cast<double>(r.events) / r.wall_s / 1e6, r.trace_hash);
  }
  return text;
}

}  // namespace declock::bench
