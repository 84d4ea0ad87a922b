#include "figures/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "bench/reset.h"
#include "figures/grid.h"

namespace declock::bench::figures {
namespace {

constexpr std::uint32_t kClientsPerNode = 32;

template <class Change>
Sweep sweep(const Scale& scale, std::initializer_list<double> all, std::initializer_list<double> quick,
            Change change) {
  Sweep settings;
  for (const double x : scale.quick ? quick : all) {
    Setting setting{x, fmt::format("{}", x), defaults(scale)};
    change(setting);
    settings.push_back(std::move(setting));
  }
  return settings;
}

// About how many seconds the simulator takes.
double cost_of(const MicroConfig& config) {
  const double clients = static_cast<double>(config.cns) * config.clients;
  const double busy = std::min(clients, 256.0) / 256 + std::max(0.0, clients - 256) / 2560;
  const double seconds = static_cast<double>((config.duration + config.warmup).ns) / 1e9;
  double pace = config.cs_ops >= 8 || config.lock == "caslock" ? 3 : 8;
  const bool many_reads = config.read_ratio > 0.6;
  if (config.lock == "dslr+" || (config.lock == "declock-slack" && many_reads)) pace = 16;
  if (locks::costs_nothing(config.lock) && many_reads) pace = 24;
  return pace * busy * seconds + static_cast<double>(config.locks) / 1e7;
}

class Planner {
 public:
  Planner(const Scale& scale, const std::vector<std::string>& figures)
      : scale_(scale), figures_(figures) {}

  Plan plan() {
    figure_3();
    figure_12();
    figure_13();
    figure_14();
    figure_15();
    figure_16();
    figure_18();
    figures_beyond();
    figures_slack();
    grid();
    return std::move(plan_);
  }

 private:
  bool wanted(const std::string& figure) const {
    return std::find(figures_.begin(), figures_.end(), figure) != figures_.end();
  }
  bool wanted(const Panel& panel) const { return wanted(panel.figure); }
  void add(Panel panel) { plan_.panels.push_back(std::move(panel)); }

  std::string run(const MicroConfig& config) {
    plan_.jobs.push_back(job_of(config));
    return plan_.jobs.back().key;
  }
  Series series(const Contestant& contestant, const Sweep& sweep, std::string value,
                bool by_index = false) {
    Series s{contestant.label, contestant.lock, {}, std::move(value)};
    for (std::size_t i = 0; i < sweep.size(); ++i) {
      s.samples.push_back(
          {by_index ? static_cast<double>(i) : sweep[i].x, run(contestant.with(sweep[i].config))});
    }
    return s;
  }
  // One line per contestant over a sweep.
  void compare(Panel panel, const std::vector<Contestant>& contestants, const Sweep& sweep,
               const std::string& value, bool named_ticks) {
    if (!wanted(panel)) return;
    for (std::size_t i = 0; named_ticks && i < sweep.size(); ++i)
      panel.ticks.emplace_back(sweep[i].label, static_cast<double>(i));
    for (const Contestant& contestant : contestants)
      panel.series.push_back(series(contestant, sweep, value, named_ticks));
    add(std::move(panel));
  }

  void figure_3();
  void figure_12();
  void figure_13();
  void figure_14();
  void figure_15();
  void figure_16();
  void figure_18();
  void figures_beyond();
  void figures_slack();
  void grid();

  Scale scale_;
  const std::vector<std::string>& figures_;
  Plan plan_;
};

void Planner::figure_3() {
  const Sweep clients = clients_sweep(scale_);
  const Contestant caslock = published("caslock");
  Panel throughput{"3-throughput", "3", "CASLock: throughput", "clients", "M operations/s"};
  throughput.paper = {{"peak", 1.61}, {"256 clients", 0.20}};
  compare(throughput, {caslock}, clients, "/throughput_mops", false);
  Panel operations{"3-operations", "3", "CASLock: MN operations per acquisition", "clients",
                   "operations"};
  operations.paper = {{"up to", 37.8}};
  compare(operations, {caslock}, clients, "/mn_ops_per_acquire", false);
  Panel latency{"3-latency", "3", "CASLock: latency of acquisitions and of data", "clients", "us"};
  latency.log_y = true;
  if (wanted(latency)) {
    for (const auto& [label, value, style] :
         {std::tuple{"acquire, median", "/latency_us/acquire/p50", "declock-pf"},
          std::tuple{"acquire, P99", "/latency_us/acquire/p99", "caslock"},
          std::tuple{"data access, median", "/latency_us/data/p50", "dslr+"}}) {
      latency.series.push_back(series(caslock, clients, value));
      latency.series.back().label = label;
      latency.series.back().style = style;
    }
    add(latency);
  }
  compare({"3-others", "3", "Throughput of the earlier locks", "clients", "M operations/s"},
          {caslock, published("dslr+"), published("shiftlock")}, clients, "/throughput_mops", false);
  Panel checks{"3-checks", "3", "Operations per acquisition of the earlier locks", "clients",
               "operations"};
  checks.log_y = true;
  checks.paper = {{"DSLR+", 27.4}, {"ShiftLock", 2.34}};
  compare(checks, {caslock, published("dslr+"), published("shiftlock")}, clients, "/mn_ops_per_acquire",
          false);
}

void Planner::figure_12() {
  const std::string y = "M operations/s", value = "/throughput_mops";
  compare({"12-clients", "12", "Clients, on 1 CN and then on 2 to 8", "clients", y}, the_papers(),
          clients_sweep(scale_), value, false);
  Panel section{"12-section", "12", "Length of the critical section", "data operations", y};
  section.log_y = true;
  compare(section, the_papers(), section_sweep(scale_), value, true);
  compare({"12-reads", "12", "Reads", "% shared", y}, the_papers(), reads_sweep(scale_), value, false);
  Panel locks{"12-locks", "12", "Number of locks", "locks", y};
  locks.log_x = true;
  compare(locks, the_papers(), locks_sweep(scale_), value, false);
  if (wanted(section)) run(clocks_config(scale_));  // what they need is checked, not drawn
  compare({"12-skew", "12", "Skew, from hot to uniform", "Zipf alpha", y}, the_papers(),
          skew_sweep(scale_), value, true);
}

void Planner::figure_13() {
  const Sweep section = section_sweep(scale_);
  for (const auto& [id, title, y, value] :
       {std::tuple{"13-median", "Median latency of an operation", "us", "/latency_us/op/p50"},
        std::tuple{"13-p99", "P99 latency of an operation", "us", "/latency_us/op/p99"},
        std::tuple{"13-operations", "MN operations per acquisition", "operations",
                   "/mn_ops_per_acquire"}}) {
    Panel panel{id, "13", title, "data operations per section", y};
    panel.log_y = true;
    if (panel.id == "13-operations")
      panel.paper = {{"CASLock", 387.9}, {"ShiftLock", 15.6}, {"DecLock", 1.10}};
    compare(panel, the_papers(), section, value, true);
  }
}

void Planner::figure_14() {
  for (const double reads : {0.0, 0.5, 0.9}) {
    Panel panel{fmt::format("14-reads-{:.0f}", reads * 100), "14",
                fmt::format("Hottest lock, {:.0f} % reads", reads * 100), "acquisition takes, us",
                "% no longer than this"};
    panel.kind = Panel::Kind::distribution;
    panel.log_x = true;
    if (!wanted(panel)) continue;
    for (const Contestant& policy : policies()) {
      const std::string key = run(policy.with(policy_config(scale_, reads)));
      panel.series.push_back(
          {policy.label, policy.lock, {{0, key}}, "/fairness/hottest_lock_acquire_us/percentiles"});
    }
    add(panel);
  }
}

void Planner::figure_15() {
  Panel refetches{"15-refetches", "15", "READs again per release", "data operations per section",
                  "READs per release"};
  refetches.paper = {{"at most", 0.018}};
  compare(refetches, {published("declock-tf"), published("declock-pf")}, section_sweep(scale_),
          "/refetches_per_release", true);
  Panel slots{"15-slots", "15", "Release with a longer queue", "slots per lock", "median, us"};
  slots.log_x = true;
  slots.paper = {{"uniform, up to 128 slots", 8.80}};
  if (!wanted(slots)) return;
  for (const auto& [zipf, style] :
       {std::pair{0.0, "caslock"}, std::pair{0.9, "dslr+"}, std::pair{0.99, "declock-pf"}}) {
    Series s{
        zipf == 0 ? "uniform" : fmt::format("alpha {}", zipf), style, {}, "/latency_us/release/p50"};
    for (std::uint32_t n = 8; n <= 2048; n *= scale_.quick ? 4 : 2)
      s.samples.push_back({static_cast<double>(n), run(slots_config(scale_, n, zipf))});
    slots.series.push_back(std::move(s));
  }
  add(slots);
}

void Planner::figure_16() {
  Panel resets{"16-resets", "16", "A reset", "clients", "us"};
  resets.log_x = true;
  resets.log_y = true;
  resets.paper = {{"8 clients", 83.29}, {"256 clients", 520.72}};
  if (!wanted(resets)) return;
  const auto reset = [&](std::uint32_t cns, std::uint32_t clients) {
    const std::string key = reset_key(cns, clients, scale_);
    const ResetConfig config{.cns = cns,
                             .clients = clients,
                             .resets = scale_.quick ? 20u : 200u,
                             .seed = scale_.seed,
                             .nic = {}};
    plan_.jobs.push_back({key, cns / 8.0, [config](const std::function<void()>&) {
                            return Json::parse(reset_json({run_reset(config)}, ""))[0];
                          }});
    return key;
  };
  Series by_clients{"median, 8 CNs", "declock-pf", {}, "/reset_us/p50"};
  for (std::uint32_t clients = 1; clients <= kClientsPerNode; clients *= 2)
    by_clients.samples.push_back({8.0 * clients, reset(8, clients)});
  Series worst = by_clients;
  worst.label = "P99, 8 CNs";
  worst.style = "dslr+";
  worst.value = "/reset_us/p99";
  Series by_nodes{"median, 2 to 128 CNs x 2 clients", "shiftlock", {}, "/reset_us/p50"};
  for (std::uint32_t cns = 2; cns <= (scale_.quick ? 32u : 128u); cns *= 2)
    by_nodes.samples.push_back({2.0 * cns, reset(cns, 2)});
  resets.series = {by_clients, worst, by_nodes};
  add(resets);

  for (const bool high : {false, true}) {
    Panel panel{high ? "16-high" : "16-low", "16",
                high ? "Failures at high contention: 8 CNs x 32 clients"
                     : "Failures at low contention: 8 CNs x 2 clients",
                "time, ms", "M operations/s"};
    panel.kind = Panel::Kind::timeline;
    for (const bool memory : {false, true}) {
      const std::string key = run(kill_config(scale_, memory, high));
      panel.series.push_back({memory ? "the MN restarts" : "1 of 8 CNs dies",
                              memory ? "caslock" : "declock-pf",
                              {{0, key}},
                              "/timeline",
                              1 / 1e4});  // operations per 10 ms
    }
    add(panel);
  }
}

void Planner::figure_18() {
  for (const std::uint32_t section : {1u, 4u, 16u}) {
    Sweep latencies;
    for (const double factor : {1.0, 2.0, 4.0, 8.0}) {
      latencies.push_back(
          {factor, fmt::format("{}x", factor), latency_config(scale_, factor, section)});
    }
    compare({fmt::format("18-section-{}", section), "18",
             fmt::format("Slow network between CNs, section of {}", section), "latency CN to CN",
             "M operations/s"},
            {published("caslock"), published("dslr+"), published("shiftlock"), published("declock-pf")},
            latencies, "/throughput_mops", true);
  }
}

void Planner::figures_beyond() {
  struct Over {
    const char* id;
    const char* name;
    const char* x;
    Sweep sweep;
    bool named_ticks;
    bool slack_by_nodes = false;  // and ours with a slack that grows with the nodes
  };
  const std::vector<Over> sweeps{
      {"clients", "clients", "clients", clients_sweep(scale_), false},
      {"reads", "reads", "% shared", reads_sweep(scale_), false},
      {"section", "length of the section", "data operations", section_sweep(scale_), true},
      {"skew", "skew", "Zipf alpha", skew_sweep(scale_), true},
      {"cns", "CNs of 32 clients", "CNs", nodes_sweep(scale_), true, true},
      {"locks", "number of locks", "locks", locks_sweep(scale_), false},
      {"slow", "reads, messages between CNs 4 times slower", "% shared", slow_reads_sweep(scale_),
       false},
  };
  struct Metric {
    const char* id;
    const char* name;
    const char* unit;
    const char* value;
    bool log;
  };
  const std::vector<Metric> metrics{
      {"throughput", "Throughput", "M operations/s", "/throughput_mops", false},
      {"median", "Median latency", "us", "/latency_us/op/p50", true},
      {"p99", "P99 latency", "us", "/latency_us/op/p99", true},
      {"operations", "MN operations", "per operation", "/mn_ops_per_op", false},
      {"overtakes", "Overtakes", "per acquisition", "/fairness/overtakes_per_acquire", false}};
  for (const Over& over : sweeps) {
    for (const Metric& metric : metrics) {
      Panel panel{fmt::format("beyond-{}-{}", over.id, metric.id), "beyond",
                  fmt::format("{} over {}", metric.name, over.name), over.x, metric.unit};
      panel.log_x = panel.x == "locks";
      panel.log_y = metric.log || (&metric == &metrics[0] && panel.x == "data operations");
      std::vector<Contestant> contestants = beyond();
      // Waits grow with the nodes, and so may the slack; with 8 nodes it is the same.
      if (over.slack_by_nodes)
        contestants.push_back({"declock-slack", "ours, slack 25 us per CN", true, microseconds(25)});
      compare(panel, contestants, over.sweep, metric.value, over.named_ticks);
      if (over.slack_by_nodes && wanted(panel)) plan_.panels.back().series.back().style = "declock-tf";
    }
  }
}

void Planner::figures_slack() {
  for (const auto& [id, title, y, value] :
       {std::tuple{"slack-throughput", "Throughput by slack", "M operations/s", "/throughput_mops"},
        std::tuple{"slack-p99", "P99 latency by slack", "us", "/latency_us/op/p99"},
        std::tuple{"slack-overtakes", "Overtakes by slack", "per acquisition",
                   "/fairness/overtakes_per_acquire"}}) {
    Panel panel{id, "slack", title, "slack, us", y};
    if (!wanted(panel)) return;
    for (const auto& [reads, style] :
         {std::pair{0.0, "caslock"}, std::pair{0.5, "declock-pf"}, std::pair{0.9, "dslr+"}}) {
      Sweep sweep = slack_sweep(scale_);
      for (Setting& setting : sweep) setting.config.read_ratio = reads;
      panel.series.push_back(series(at_full_strength("declock-slack"), sweep, value, true));
      panel.series.back().label = fmt::format("{:.0f} % reads", reads * 100);
      panel.series.back().style = style;
      if (!panel.ticks.empty()) continue;
      for (std::size_t i = 0; i < sweep.size(); ++i)
        panel.ticks.emplace_back(sweep[i].label, static_cast<double>(i));
    }
    add(panel);
  }
}

void Planner::grid() {
  if (!wanted("grid")) return;
  plan_.grid = grid_cells(scale_);
  for (const Group& group : plan_.grid) {
    for (const Setting& cell : group.cells) {
      for (const Contestant& contestant : grid_contestants()) run(contestant.with(cell.config));
    }
  }
}

}  // namespace

MicroConfig defaults(const Scale& scale) {
  MicroConfig config;
  config.duration = scale.duration();
  config.warmup = scale.warmup();
  config.seed = scale.seed;
  return config;
}

Sweep clients_sweep(const Scale& scale) {
  return sweep(scale, {2, 4, 8, 16, 24, 32, 64, 96, 128, 160, 192, 224, 256},
               {2, 8, 24, 32, 64, 128, 160, 256}, [](Setting& s) {
                 const auto clients = static_cast<std::uint32_t>(s.x);
                 s.config.clients = std::min(clients, kClientsPerNode);
                 s.config.cns = clients / s.config.clients;
                 s.config.workers = std::min(s.config.workers, s.config.clients);
               });
}

Sweep section_sweep(const Scale& scale) {
  return sweep(scale, {0, 1, 2, 4, 8, 16, 32}, {0, 1, 4, 32},
               [](Setting& s) { s.config.cs_ops = static_cast<std::uint32_t>(s.x); });
}

Sweep reads_sweep(const Scale& scale) {
  return sweep(scale, {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}, {0, 50, 90, 100},
               [](Setting& s) { s.config.read_ratio = s.x / 100; });
}

Sweep slow_reads_sweep(const Scale& scale) {
  Sweep sweep = reads_sweep(scale);
  for (Setting& setting : sweep) setting.config.cn_latency = 4;
  return sweep;
}

Sweep locks_sweep(const Scale& scale) {
  return sweep(scale, {1e3, 1e4, 1e5, 1e6, 1e7}, {1e3, 1e5, 1e6},
               [](Setting& s) { s.config.locks = static_cast<std::uint64_t>(s.x); });
}

Sweep skew_sweep(const Scale& scale) {
  return sweep(scale, {0.999, 0.99, 0.9, 0.5, 0}, {0.99, 0.9, 0},
               [](Setting& s) { s.config.zipf = s.x; });
}

Sweep nodes_sweep(const Scale& scale) {
  return sweep(scale, {1, 2, 4, 8, 16, 32, 64, 128}, {1, 8, 32},
               [](Setting& s) { s.config.cns = static_cast<std::uint32_t>(s.x); });
}

Sweep slack_sweep(const Scale& scale) {
  return sweep(scale, {0, 10, 20, 50, 100, 200, 500, 1000}, {0, 50, 200, 1000},
               [](Setting& s) { s.config.slack = microseconds(static_cast<std::int64_t>(s.x)); });
}

MicroConfig Contestant::with(MicroConfig config) const {
  config.lock = lock;
  config.piggyback = piggyback;
  config.release_read = piggyback ? cql::ReleaseRead::adaptive : cql::ReleaseRead::always;
  if (slack_per_node.ns > 0) config.slack = slack_per_node * config.cns;
  // Its starved clients wait for hundreds of milliseconds, and count only once they get in.
  if (lock == "caslock") config.duration = config.duration * 4;
  return config;
}

namespace {

std::string label_of(const std::string& lock) {
  if (lock == "caslock") return "CASLock";
  if (lock == "dslr+") return "DSLR+";
  if (lock == "shiftlock") return "ShiftLock";
  if (lock == "declock-tf") return "DecLock-TF";
  if (lock == "declock-pf") return "DecLock-PF";
  if (lock == "declock-slack") return "DecLock-slack";
  return lock;
}

}  // namespace

Contestant published(const std::string& lock) {
  return {lock, label_of(lock), false};
}

Contestant at_full_strength(const std::string& lock) {
  return {lock, label_of(lock), true};
}

const std::vector<Contestant>& the_papers() {
  static const std::vector<Contestant> all{published("caslock"), published("dslr+"),
                                           published("shiftlock"), published("declock-tf"),
                                           published("declock-pf")};
  return all;
}

const std::vector<Contestant>& beyond() {
  static const std::vector<Contestant> all{{"declock-pf", "DecLock-PF as published", false},
                                           {kTokenLock, "ours: token, one doorbell", true},
                                           {"declock-slack", "ours: slack, one doorbell", true},
                                           {"shiftlock", "ShiftLock, one doorbell", true},
                                           {"ideal", "ideal, one doorbell", true},
                                           {"ideal-group", "ideal-group, one doorbell", true}};
  return all;
}

const std::vector<Contestant>& policies() {
  static const std::vector<Contestant> all{{"cql", "no hierarchy"},
                                           {"declock-remote-prefer", "remote-prefer"},
                                           {"declock-local-prefer", "local-prefer"},
                                           {"declock-local-bound", "local-bound"},
                                           {"declock-tf", "TS-TF"},
                                           {"declock-pf", "TS-PF"}};
  return all;
}

std::string key_of(const MicroConfig& config) {
  return fmt::format("seed {} {}", config.seed, config_text(config));
}

Job job_of(const MicroConfig& config) {
  return {
      key_of(config), cost_of(config), [config](const std::function<void()>& alive) {
        const MicroResult result = run_micro(config, [&](double) { alive(); });
        if (result.violations > 0 || result.lost_updates.value_or(0) > 0 || !result.failures.empty()) {
          throw std::runtime_error(
              fmt::format("{}: a run was not safe and live ({} violations, {} lost updates, {} clients "
                          "unfinished): {}",
                          config.lock, result.violations, result.lost_updates.value_or(0),
                          result.failures.size(), key_of(config)));
        }
        return Json::parse(to_json(config, result, ""));
      }};
}

const std::vector<std::string>& figure_names() {
  static const std::vector<std::string> names{"3",  "12",     "13",    "14",   "15",   "16",
                                              "18", "beyond", "slack", "grid", "paths"};
  return names;
}

Plan make_plan(const Scale& scale, const std::vector<std::string>& figures) {
  return Planner{scale, figures}.plan();
}

std::string reset_key(std::uint32_t cns, std::uint32_t clients, const Scale& scale) {
  return fmt::format("seed {} resets {} x {}{}", scale.seed, cns, clients, scale.quick ? " quick" : "");
}

MicroConfig kill_config(const Scale& scale, bool memory, bool high_contention) {
  MicroConfig config = published("declock-pf").with(defaults(scale));
  config.clients = high_contention ? kClientsPerNode : 2;
  config.workers = config.clients / 2;
  config.duration = milliseconds(600);
  config.kill = MicroConfig::Kill{memory, memory ? 0u : 1u, milliseconds(200)};
  return config;
}

MicroConfig slots_config(const Scale& scale, std::uint32_t slots, double zipf) {
  MicroConfig config = published("declock-pf").with(defaults(scale));
  config.slots = slots;
  config.zipf = zipf;
  config.duration = milliseconds(scale.quick ? 10 : 50);  // the queue is long, the wait is not
  config.warmup = milliseconds(scale.quick ? 5 : 20);
  return config;
}

MicroConfig latency_config(const Scale& scale, double cn_latency, std::uint32_t section) {
  MicroConfig config = defaults(scale);
  config.cn_latency = cn_latency;
  config.cs_ops = section;
  return config;
}

MicroConfig clocks_config(const Scale& scale) {
  MicroConfig config = published("declock-pf").with(defaults(scale));
  config.clients = config.workers = 2;
  config.duration = seconds(3);
  config.nic.clock_drift_max_ppb = 0;
  return config;
}

MicroConfig policy_config(const Scale& scale, double reads) {
  MicroConfig config = defaults(scale);
  config.read_ratio = reads;
  return config;
}

}  // namespace declock::bench::figures
