#include "looks/overview.h"

#include <algorithm>
#include <set>

namespace declock::looks {
namespace {

using client::HotLock;
using client::Report;

// Counters never go back; a place of the hot locks may have changed hands.
std::uint64_t grown(std::uint64_t now, std::uint64_t before) {
  return now >= before ? now - before : now;
}

const HotLock* find(const Report& report, std::uint64_t lock) {
  for (const HotLock& hot : report.hot) {
    if (hot.lock == lock && hot.acquired > 0) return &hot;
  }
  return nullptr;
}

// Since the report before. A lock that was not in that one counts from when it is watched, but never for more than its
// process did.
HotLock grown(const HotLock& now, const Report& before, std::uint64_t acquired_max) {
  HotLock d = now;
  const HotLock* old = find(before, now.lock);
  if (old != nullptr && old->acquired <= now.acquired) {
    d.acquired = grown(now.acquired, old->acquired);
    d.waited = grown(now.waited, old->waited);
    d.wait_ns = grown(now.wait_ns, old->wait_ns);
    d.held = grown(now.held, old->held);
    d.hold_ns = grown(now.hold_ns, old->hold_ns);
  }
  d.acquired = std::min(d.acquired, acquired_max);
  return d;
}

std::uint64_t acquired(const Report& r) {
  return r.acquired_shared + r.acquired_exclusive;
}

}  // namespace

std::optional<double> Overview::operations_per_acquisition() const {
  const double rate = shared_per_s + exclusive_per_s;
  if (rate <= 0) return {};
  return operations_per_s / rate;
}

double Reports::Process::seconds() const {
  return static_cast<double>(latest.at_ns - before->at_ns) / 1e9;
}

void Reports::add(const std::vector<Report>& reports, Time now) {
  std::set<Key> here;
  for (const Report& report : reports) {
    int number = 0;
    while (here.contains({report.pid, report.incarnation, number})) number += 1;
    const Key key{report.pid, report.incarnation, number};
    here.insert(key);
    const auto [at, is_new] = processes_.try_emplace(key, Process{report, {}, now});
    Process& process = at->second;
    if (is_new || report.at_ns == process.latest.at_ns) continue;
    const bool went_on = report.at_ns > process.latest.at_ns;
    process = {report, went_on ? std::optional{process.latest} : std::nullopt, now};
  }
  std::erase_if(processes_, [&](const auto& entry) { return !here.contains(entry.first); });
}

bool Reports::all_have_rates() const {
  return std::all_of(processes_.begin(), processes_.end(),
                     [](const auto& entry) { return entry.second.before.has_value(); });
}

ProcessRow Reports::row_of(const Process& process, Time now) {
  const Report& latest = process.latest;
  ProcessRow row{.pid = latest.pid,
                 .has_rates = process.before.has_value(),
                 .wait = latest.wait,
                 .hold = latest.hold,
                 .waiting = latest.waiting,
                 .holding = latest.holding,
                 .silent = now - process.since};
  if (!row.has_rates) return row;
  row.acquired_per_s =
      static_cast<double>(acquired(latest) - acquired(*process.before)) / process.seconds();
  row.wait -= process.before->wait;
  row.hold -= process.before->hold;
  return row;
}

void Reports::add_locks(const Process& process, std::map<std::uint64_t, LockRow>& locks) {
  const std::uint64_t acquired_max = acquired(process.latest) - acquired(*process.before);
  for (const HotLock& hot : process.latest.hot) {
    if (hot.acquired == 0) continue;
    const HotLock d = grown(hot, *process.before, acquired_max);
    if (d.acquired == 0) continue;
    LockRow& row = locks[hot.lock];
    row.at = RemoteAddr::unpack(hot.lock);
    if (row.name.empty()) row.name = hot.name();
    const double rate = static_cast<double>(d.acquired) / process.seconds();
    const double share = std::min(1.0, static_cast<double>(d.waited) / static_cast<double>(d.acquired));
    // Means of what several processes saw, by how often each of them did.
    const double before = row.acquired_per_s;
    row.acquired_per_s += rate;
    row.waited_share = (row.waited_share * before + share * rate) / row.acquired_per_s;
    const auto mean_with = [&](std::optional<double>& mean, std::uint64_t sum, std::uint64_t count) {
      if (count == 0) return;
      const double mine = static_cast<double>(sum) / static_cast<double>(count);
      mean = mean ? (*mean * before + mine * rate) / row.acquired_per_s : mine;
    };
    mean_with(row.wait_ns, d.wait_ns, d.waited);
    mean_with(row.hold_ns, d.hold_ns, d.held);
  }
}

Overview Reports::overview(Time now) const {
  Overview o;
  std::map<std::uint64_t, LockRow> locks;
  for (const auto& [key, process] : processes_) {
    const Report& latest = process.latest;
    o.processes.push_back(row_of(process, now));
    o.resets += latest.resets;
    if (!process.before) continue;
    const Report& before = *process.before;
    const auto rate = [&](std::uint64_t Report::*count) {
      return static_cast<double>(grown(latest.*count, before.*count)) / process.seconds();
    };
    o.shared_per_s += rate(&Report::acquired_shared);
    o.exclusive_per_s += rate(&Report::acquired_exclusive);
    o.local_per_s += rate(&Report::hand_overs_local);
    o.remote_per_s += rate(&Report::hand_overs_remote);
    o.operations_per_s += rate(&Report::operations);
    o.messages_per_s += rate(&Report::messages);
    o.given_up_per_s += rate(&Report::given_up);
    o.failed_per_s += rate(&Report::failed);
    add_locks(process, locks);
  }
  for (auto& [lock, row] : locks) o.locks.push_back(std::move(row));
  std::stable_sort(
      o.processes.begin(), o.processes.end(),
      [](const ProcessRow& a, const ProcessRow& b) { return a.acquired_per_s > b.acquired_per_s; });
  std::stable_sort(o.locks.begin(), o.locks.end(), [](const LockRow& a, const LockRow& b) {
    return a.acquired_per_s > b.acquired_per_s;
  });
  return o;
}

}  // namespace declock::looks
