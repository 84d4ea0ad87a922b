// declock demo: a simulated cluster, then real processes on this machine, all locks on the same workload, and one process killed.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/units.h"
#include "bench/micro.h"
#include "commands.h"
#include "exit_codes.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

struct Options {
  bench::MicroConfig config;
  Duration killed_at = seconds(1);
};

bench::MicroResult run_one(const bench::MicroConfig& config, std::string_view doing) {
  const std::atomic<bool>& stop = interrupted();
  ProgressLine line;
  return bench::run_micro(config, [&](double part) {
    if (stop) throw CannotRun("interrupted");
    const auto blocks = static_cast<std::size_t>(part * 30);
    line.show(fmt::format("{:<24} [{:<30}] {:3.0f} %", doing, std::string(blocks, '#'), part * 100));
  });
}

bool is_safe(const bench::MicroResult& result) {
  return result.violations == 0 && result.lost_updates.value_or(0) <= 0 && result.failures.empty();
}

// Operations in each tenth of a second, as bars.
std::string bars(const bench::MicroConfig& config, const bench::MicroResult& result) {
  constexpr std::size_t kBuckets = 10;  // of the timeline, in one bar
  std::vector<std::uint64_t> tenths;
  for (std::size_t i = 0; i + 1 < result.timeline.size(); ++i) {
    if (i % kBuckets == 0) tenths.push_back(0);
    tenths.back() += result.timeline[i];
  }
  const std::uint64_t most =
      std::max<std::uint64_t>(1, *std::max_element(tenths.begin(), tenths.end()));
  const auto killed = static_cast<std::size_t>(config.kill->at.ns / bench::kTimelineBucket.ns / 10);
  std::string text;
  for (std::size_t i = 0; i < tenths.size(); ++i) {
    const auto length = static_cast<std::size_t>(tenths[i] * 50 / most);
    text +=
        fmt::format("  {:>4.1f} s {:>9} {}{}\n", static_cast<double>(i) / 10, format_count(tenths[i]),
                    std::string(length, '#'), i == killed ? "  <- kill -9" : "");
  }
  return text;
}

// What the lock is for: many compute nodes, and a memory node whose adapter all of them share. False: a lock failed.
bool show_cluster() {
  bench::MicroConfig base;
  base.warmup = milliseconds(20);
  base.duration = milliseconds(20);
  fmt::print(
      "1. A simulated cluster: {} compute nodes x {} clients, {} locks on one memory node (Zipf {}), "
      "{:.0f} % "
      "reads\n\n",
      base.cns, base.clients, format_count(base.locks), base.zipf, base.read_ratio * 100);
  std::fflush(stdout);
  std::vector<bench::MicroRun> runs;
  for (const std::string& name : locks::lock_names()) {
    if (locks::costs_nothing(name)) continue;  // it cannot exist
    bench::MicroConfig config = base;
    config.lock = name;
    runs.push_back({config, run_one(config, name)});
  }
  std::stable_sort(runs.begin(), runs.end(), [](const bench::MicroRun& a, const bench::MicroRun& b) {
    return a.result.ops > b.result.ops;
  });
  const auto most = static_cast<double>(std::max<std::uint64_t>(1, runs.front().result.ops));
  fmt::print("  {:<24}{:>8}  {:<32}{:>15}{:>10}\n", "", "M ops/s", "", "memory ops each", "p99 us");
  bool safe = true;
  for (const bench::MicroRun& run : runs) {
    const auto operations = static_cast<double>(run.result.ops);
    fmt::print("  {:<24}{:>8.2f}  {:<32}{:>15.1f}{:>10.0f}\n", run.config.lock,
               operations / static_cast<double>(base.duration.ns) * 1e3,
               std::string(static_cast<std::size_t>(30 * operations / most), '#'),
               static_cast<double>(run.result.lock_operations()) / std::max(1.0, operations),
               static_cast<double>(run.result.op_ns.quantile(990)) / 1e3);
    safe = safe && is_safe(run.result);
  }
  fmt::print("\n");
  return safe;
}

int run(const Options& options) {
  const bench::MicroConfig& base = options.config;
  bool safe = show_cluster();
  fmt::print(
      "2. This machine: {} processes x {} clients, {} locks (Zipf {}), {:.0f} % reads, over {}, {} for "
      "each "
      "lock\n\n",
      base.cns, base.clients, base.locks, base.zipf, base.read_ratio * 100,
      base.fabric == Fabric::shm ? "shared memory" : to_string(base.fabric),
      format_duration(base.duration));
  std::fflush(stdout);
  std::vector<bench::MicroRun> runs;
  for (const std::string& name : locks::lock_names()) {
    if (!bench::exists_on(base.fabric, name)) continue;
    bench::MicroConfig config = base;
    config.lock = name;
    runs.push_back({config, run_one(config, name)});
    safe = safe && is_safe(runs.back().result);
  }
  fmt::print("{}\n", bench::table(runs));

  bench::MicroConfig config = base;
  config.lock = "declock-slack";
  config.kill = bench::MicroConfig::Kill{false, 1, options.killed_at};
  config.duration = options.killed_at * 2;
  fmt::print(
      "3. declock-slack again; process 1 is killed after {}, most likely with locks in its hands\n\n",
      format_duration(options.killed_at));
  std::fflush(stdout);
  const bench::MicroResult killed = run_one(config, "killing a process");
  safe = safe && is_safe(killed);
  fmt::print("{}\n", bars(config, killed));
  fmt::print(
      "  The others noticed, and mended {} locks by resets; {} waits were tried again. Violations {}, "
      "lost updates {}.\n\n",
      killed.resets_done, killed.acquires_aborted, killed.violations,
      std::max<std::int64_t>(0, killed.lost_updates.value_or(0)));

  const auto find = [&](std::string_view name) -> const bench::MicroRun& {
    return *std::find_if(runs.begin(), runs.end(),
                         [&](const bench::MicroRun& r) { return r.config.lock == name; });
  };
  const auto per_acquire = [](const bench::MicroRun& r) {
    return static_cast<double>(r.result.counts.of(Purpose::acquire)) /
           static_cast<double>(std::max<std::uint64_t>(1, r.result.acquires));
  };
  fmt::print(
      "DecLock asked the memory {:.2f} times per acquisition where a spinlock (caslock) asked {:.1f} "
      "times: on a network\n"
      "that is the difference between an idle and a drowned memory node. And a process that dies with "
      "locks in its\n"
      "hands costs the others a moment, not the locks.\n",
      per_acquire(find("declock-slack")), per_acquire(find("caslock")));
  if (!safe) fmt::print(stderr, "declock: a lock failed its checks; see the table\n");
  return safe ? kFine : kSafety;
}

}  // namespace

Action add_demo(Command program) {
  Command app = program.add_command(
      "demo", "Processes on this machine: all locks compared, and one process killed; half a minute");
  auto options = std::make_shared<Options>();
  bench::MicroConfig& c = options->config;
  c.fabric = Fabric::shm;
  c.cns = 4;
  c.clients = 4;
  c.workers = 1;
  c.locks = 50;
  c.zipf = 0.9;
  c.duration = seconds(1);
  app.add_option(
         "--fabric", [&c](const std::string& name) { c.fabric = *fabric_of(name); },
         "What connects them: shared memory, TCP or RDMA verbs")
      .check(one_of({"shm", "tcp", "verbs"}))
      .default_text("shm");
  app.add_option("--cns", c.cns, "Processes").check(whole_number(2, 64));
  app.add_option("--clients", c.clients, "Clients in each").check(whole_number(1, 1024));
  app.add_option("--locks", c.locks, "Locks, each with an object").check(whole_number(1, 1'000'000));
  app.add_option("--read-ratio", c.read_ratio, "Part of the operations that are shared")
      .check(decimal(0, 1));
  app.add_duration("--duration", c.duration, "Of each measurement", milliseconds(10), seconds(60));
  return [options] {
    options->killed_at = options->config.duration;
    const auto valid = bench::validate(options->config);
    if (!valid) throw BadInput(valid.error());
    return run(*options);
  };
}

}  // namespace declock::cli
