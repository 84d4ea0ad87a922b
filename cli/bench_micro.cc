// declock bench micro
#include <fmt/format.h>

#include <memory>

#include "base/units.h"
#include "bench/micro.h"
#include "commands.h"
#include "commit.h"
#include "exit_codes.h"
#include "options.h"
#include "output.h"

namespace declock::cli {
namespace {

struct Options {
  bench::MicroConfig config;
  std::string nic = bench::MicroConfig{}.nic.name;
  std::string json;
  bool workers_given = false;
};

int exit_status(const std::vector<bench::MicroRun>& runs) {
  int status = kFine;
  for (const bench::MicroRun& run : runs) {
    if (!run.result.failures.empty()) {
      fmt::print(stderr, "declock: {}: {} of {} clients did not finish; the first: {}\n",
                 run.config.lock, run.result.failures.size(), run.config.cns * run.config.clients,
                 run.result.failures.front());
      if (status == kFine) status = kLiveness;
    }
    if (run.result.violations > 0 || run.result.lost_updates.value_or(0) > 0) {
      fmt::print(stderr, "declock: {}: mutual exclusion was violated\n", run.config.lock);
      status = kSafety;
    }
  }
  return status;
}

// One configuration per lock that was asked for.
std::vector<bench::MicroConfig> configurations(Options& options) {
  bench::MicroConfig& config = options.config;
  const bool real = config.fabric != Fabric::sim;
  if (!options.workers_given) config.workers = real ? 1 : std::min(config.workers, config.clients);
  const auto nic = sim::load_nic(options.nic);
  if (!nic) throw BadInput("--nic: " + nic.error());
  config.nic = *nic;
  std::vector<bench::MicroConfig> configs;
  for (const std::string& name : locks::lock_names()) {
    if (config.lock != "all" && config.lock != name) continue;
    if (config.lock == "all" && !bench::exists_on(config.fabric, name)) continue;
    configs.push_back(config);
    configs.back().lock = name;
    const auto valid = bench::validate(configs.back());
    if (!valid) throw BadInput(valid.error());
  }
  return configs;
}

int run(Options& options) {
  const std::vector<bench::MicroConfig> configs = configurations(options);
  const std::atomic<bool>& stop = interrupted();
  ResultFile json{options.json};

  std::vector<bench::MicroRun> runs;
  for (const bench::MicroConfig& config : configs) {
    ProgressLine line;
    runs.push_back({config, bench::run_micro(config, [&](double part) {
                      if (stop) throw CannotRun("interrupted; no result was written");
                      line.show(fmt::format("{}: {:3.0f} % of {}{}", config.lock, part * 100,
                                            format_duration(config.warmup + config.duration),
                                            config.fabric == Fabric::sim ? " of virtual time" : ""));
                    })});
  }
  const bool one = options.config.lock != "all";
  const bench::MicroRun& first = runs.front();
  if (!json.is_standard_output()) {
    fmt::print("{}", one ? bench::summary(first.config, first.result) : bench::table(runs));
  }
  json.write(one ? bench::to_json(first.config, first.result, DECLOCK_COMMIT)
                 : bench::to_json(runs, DECLOCK_COMMIT));
  return exit_status(runs);
}

// "cn:1@1s"
std::optional<bench::MicroConfig::Kill> parse_kill(const std::string& text) {
  const std::size_t at = text.find('@');
  if (at == std::string::npos || at < 4 || at > 8 || text[2] != ':') return {};
  const std::string kind = text.substr(0, 2);
  const std::string number = text.substr(3, at - 3);
  const auto when = parse_duration(text.substr(at + 1));
  const bool digits = number.find_first_not_of("0123456789") == std::string::npos;
  if ((kind != "cn" && kind != "mn") || !digits || !when) return {};
  return bench::MicroConfig::Kill{kind == "mn", static_cast<std::uint32_t>(std::stoul(number)), *when};
}

Check kill_validator() {
  return {[](const std::string& text) -> std::string {
            if (parse_kill(text)) return "";
            return fmt::format(
                "'{}' names nothing to kill; accepted: cn:N@TIME or mn:N@TIME, "
                "as in cn:1@1s",
                text);
          },
          ""};
}

std::vector<std::string> accepted_locks() {
  std::vector<std::string> names = locks::lock_names();
  names.emplace_back("all");
  return names;
}

}  // namespace

Action add_bench_micro(Command bench) {
  Command app = bench.add_command(
      "micro", "Lock, use an object, unlock: throughput, latency and MN operations of a lock");
  auto options = std::make_shared<Options>();
  bench::MicroConfig& c = options->config;

  app.add_option(
         "--fabric", [&c](const std::string& name) { c.fabric = *fabric_of(name); },
         "Where to run: simulated, or processes on this machine over shared memory, TCP or RDMA verbs")
      .check(one_of({"sim", "shm", "tcp", "verbs"}))
      .default_text("sim");
  app.add_option("--lock", c.lock, "The lock; all: one after the other, and a table")
      .check(one_of(accepted_locks()));
  app.add_option("--cns", c.cns, "Compute nodes").check(whole_number(1, 1024));
  app.add_option("--mns", c.mns, "Memory nodes").check(whole_number(1, 64));
  app.add_option("--clients", c.clients, "Clients per compute node").check(whole_number(1, 1024));
  app.add_option("--workers", c.workers,
                 "sim: cores per compute node that run clients; otherwise threads, 1 if not given")
      .check(whole_number(1, 256))
      .each([options](const std::string&) { options->workers_given = true; });
  app.add_option("--locks", c.locks, "Locks, each with an object").check(whole_number(1, 100'000'000));
  app.add_option("--slots", c.slots, "Slots per lock; 0: one per client").check(whole_number(0, 4096));
  app.add_option("--zipf", c.zipf, "Skew of the choice of locks; 0: uniform").check(decimal(0, 10));
  app.add_option("--read-ratio", c.read_ratio, "Part of the operations that are shared")
      .check(decimal(0, 1));
  app.add_option("--cs-ops", c.cs_ops, "Data operations per critical section")
      .check(whole_number(0, 10'000));
  app.add_option("--object-size", c.object_size, "Bytes per object, in whole words")
      .check(whole_number(8, 16'384));
  app.add_flag("--piggyback", c.piggyback,
               "Lock and data in one doorbell; readers' releases not awaited");
  app.add_option(
         "--release-read",
         [&c](const std::string& when) {
           c.release_read = when == "always" ? cql::ReleaseRead::always : cql::ReleaseRead::adaptive;
         },
         "When a release reads the queue with its first operation")
      .check(one_of({"adaptive", "always"}))
      .default_text("adaptive");
  app.add_duration("--slack", c.slack, "declock-slack: how much later a local client may have come", {},
                   milliseconds(30));
  app.add_option("--bound", c.bound, "declock-local-bound: local hand-overs in a row")
      .check(whole_number(1, 1'000'000));
  app.add_option("--gate", c.gate, "declock-token: writers of one compute node in a row")
      .check(whole_number(1, 65'535));
  app.add_duration("--duration", c.duration, "Time that is measured; virtual on sim", microseconds(1),
                   seconds(3600));
  app.add_duration("--warmup", c.warmup, "Time before that", Duration{}, seconds(3600));
  app.add_option("--seed", c.seed, "sim: the same seed gives the same run")
      .check(whole_number(0, ~std::uint64_t{0}));
  app.add_option(
         "--cn-latency", [&c](const std::string& text) { c.cn_latency = *parse_factor(text); },
         "Factor on the latency of messages between compute nodes")
      .check(factor(1, 1000))
      .default_text("1x");
  app.add_option(
         "--kill", [&c](const std::string& text) { c.kill = *parse_kill(text); },
         "DecLock: a compute node that dies, or a memory node that restarts, while measuring")
      .check(kill_validator())
      .type_name("cn:N@TIME|mn:N@TIME");
  app.add_duration("--lease", c.lease, "tcp, verbs: who is silent for so long is taken for dead",
                   milliseconds(10), seconds(3600));
  app.add_option("--namespaces", c.namespaces,
                 "tcp: network namespaces of this machine, one for the memory nodes, then those of the "
                 "compute nodes")
      .delimiter(',')
      .type_name("NAME,NAME,..");
  add_verbs_options(app, c.network);
  app.add_option("--nic", options->nic,
                 "The network's model: a name or a file ('declock nic' prints one)")
      .type_name("NAME|FILE");
  app.add_option("--json", options->json, "Write the result there; - is standard output")
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
