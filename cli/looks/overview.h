// What `declock top` shows: what the processes of a cluster did between two of their reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/time.h"
#include "client/report.h"
#include "declock/lock_ref.h"
#include "declock/stats.h"
#include "layout/header.h"

namespace declock::looks {

struct ProcessRow {
  std::uint64_t pid = 0;
  bool has_rates = false;  // false: it has reported once only
  double acquired_per_s = 0;
  Latency wait{};  // between the reports
  Latency hold{};
  std::uint64_t waiting = 0;
  std::uint64_t holding = 0;
  Duration silent{};  // for so long its report is the same
};

struct LockRow {
  RemoteAddr at{};
  std::string name;
  double acquired_per_s = 0;
  double waited_share = 0;          // 0 to 1
  std::optional<double> wait_ns{};  // mean, of those that had to wait
  std::optional<double> hold_ns{};  // mean
  std::optional<Header> header{};   // as it is on its memory node now
};

struct Overview {
  std::string cluster;
  std::uint64_t view = 0;
  std::uint64_t members = 0;
  std::uint64_t removals = 0;
  std::uint64_t resets = 0;  // by the processes that report
  double shared_per_s = 0;
  double exclusive_per_s = 0;
  double local_per_s = 0;
  double remote_per_s = 0;
  double operations_per_s = 0;
  double messages_per_s = 0;
  double given_up_per_s = 0;
  double failed_per_s = 0;
  std::vector<ProcessRow> processes{};  // busiest first
  std::vector<LockRow> locks{};         // hottest first

  std::optional<double> operations_per_acquisition() const;
};

// Remembers of each process its last two reports.
class Reports {
 public:
  void add(const std::vector<client::Report>& reports, Time now);
  // Whether everybody who is there has reported twice.
  bool all_have_rates() const;
  // The cluster's figures and the headers are left to the caller.
  Overview overview(Time now) const;

 private:
  // By pid and incarnation; a process may be a member twice, and processes of two machines may have the same pid: the
  // number tells them apart.
  using Key = std::tuple<std::uint64_t, std::uint64_t, int>;
  struct Process {
    client::Report latest{};
    std::optional<client::Report> before{};
    Time since{};  // when `latest` was first seen
    double seconds() const;
  };
  static ProcessRow row_of(const Process& process, Time now);
  static void add_locks(const Process& process, std::map<std::uint64_t, LockRow>& locks);

  std::map<Key, Process> processes_;
};

// Lines of at most `columns` characters, and at most so many; 0: without a limit.
std::string screen(const Overview& overview, std::size_t columns, std::size_t lines);

}  // namespace declock::looks
