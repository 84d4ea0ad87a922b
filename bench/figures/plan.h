// What the figures show, and which runs that takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/micro.h"
#include "figures/results.h"

namespace declock::bench::figures {

// How much of everything is run.
struct Scale {
  bool quick = false;
  std::uint64_t seed = 1;
  Duration duration() const { return quick ? milliseconds(40) : milliseconds(500); }
  Duration warmup() const { return quick ? milliseconds(20) : milliseconds(100); }
};

// A setting of a sweep.
struct Setting {
  double x;
  std::string label;
  MicroConfig config;  // of every lock; its lock is to be filled in
};
using Sweep = std::vector<Setting>;
// Cells of the grid that vary the same.
struct Group {
  std::string title;
  Sweep cells;
};

// The paper's (section 6.2): the defaults with one parameter changed.
Sweep clients_sweep(const Scale& scale);
Sweep section_sweep(const Scale& scale);
Sweep reads_sweep(const Scale& scale);
Sweep locks_sweep(const Scale& scale);
Sweep skew_sweep(const Scale& scale);
// Ours.
Sweep nodes_sweep(const Scale& scale);       // 1 to 128 CNs
Sweep slack_sweep(const Scale& scale);       // of declock-slack
Sweep slow_reads_sweep(const Scale& scale);  // with messages between CNs 4 times slower

MicroConfig defaults(const Scale& scale);

inline const std::string kTokenLock = "declock-token";

// A contestant: a lock, and how it is used.
struct Contestant {
  std::string lock;
  std::string label;
  bool piggyback = false;     // and, for DecLock, the queue read only where somebody may wait
  Duration slack_per_node{};  // if not 0, instead of the configuration's slack

  MicroConfig with(MicroConfig config) const;
};
// As in the paper: data apart from the lock, every release reads the queue.
Contestant published(const std::string& lock);
// Everybody with lock and data in one doorbell.
Contestant at_full_strength(const std::string& lock);

// CASLock, DSLR+, ShiftLock, DecLock-TF and -PF.
const std::vector<Contestant>& the_papers();
// Published DecLock-PF, ours, ShiftLock at full strength, and those that cost nothing.
const std::vector<Contestant>& beyond();
// Figure 14: no hierarchy, and the policies.
const std::vector<Contestant>& policies();

std::string key_of(const MicroConfig& config);
// The run of one configuration.
Job job_of(const MicroConfig& config);

struct Series {
  std::string label;
  std::string style;  // the lock whose colour it has
  struct Sample {
    double x;
    std::string key;  // of the run
  };
  std::vector<Sample> samples;
  std::string value;  // where it is in the result: a JSON pointer
  double scale = 1;   // value x scale is drawn
};

struct Panel {
  enum class Kind : std::uint8_t {
    values,        // one value of each run
    timeline,      // an array of one run, over time
    distribution,  // percentiles of one run: the share of acquisitions that took no longer
  };
  std::string id;      // "12-clients"
  std::string figure;  // "12", "beyond", "slack"
  std::string title;
  std::string x, y;  // names of the axes, with units
  bool log_x = false, log_y = false;
  std::vector<std::pair<std::string, double>> ticks{};  // where x has names
  std::vector<std::pair<std::string, double>> paper{};  // the paper's values, as lines across
  std::vector<Series> series{};
  Kind kind = Kind::values;
};

struct Plan {
  std::vector<Panel> panels;
  std::vector<Job> jobs;
  std::vector<Group> grid;  // empty: not wanted
};

const std::vector<std::string>& figure_names();

// The panels of these figures, and the runs behind them.
Plan make_plan(const Scale& scale, const std::vector<std::string>& figures);

// Resets on so many compute nodes x clients (figure 16, left).
std::string reset_key(std::uint32_t cns, std::uint32_t clients, const Scale& scale);
// Kills at low and high contention (figure 16, right).
MicroConfig kill_config(const Scale& scale, bool memory, bool high_contention);
MicroConfig slots_config(const Scale& scale, std::uint32_t slots, double zipf);
MicroConfig latency_config(const Scale& scale, double cn_latency, std::uint32_t section);
MicroConfig policy_config(const Scale& scale, double reads);
// Long enough for the clocks to meet three times; they do not drift meanwhile.
MicroConfig clocks_config(const Scale& scale);

}  // namespace declock::bench::figures
