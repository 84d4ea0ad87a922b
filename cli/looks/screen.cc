#include <fmt/format.h>

#include <cmath>

#include "base/units.h"
#include "looks/overview.h"

namespace declock::looks {
namespace {

constexpr std::size_t kLocksShown = 16;
constexpr std::size_t kNameColumns = 30;
constexpr Duration kSilent = seconds(5);  // reports come once a second

std::string rate(double per_s) {
  if (per_s > 0 && per_s < 10) return fmt::format("{:.1f}", per_s);
  return format_count(static_cast<std::uint64_t>(std::llround(per_s)));
}

std::string time(double ns) {
  if (ns < 1e3) return fmt::format("{:.0f}ns", ns);
  if (ns < 1e6) return fmt::format("{:.1f}us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.1f}ms", ns / 1e6);
  return fmt::format("{:.1f}s", ns / 1e9);
}

std::string time(const std::optional<double>& ns) {
  return ns ? time(*ns) : "-";
}

std::string quantile(const Latency& latency, unsigned permille) {
  if (latency.count() == 0) return "-";
  return "<" + time(static_cast<double>(latency.quantile_ns(permille)));
}

// A name may have bytes that move the cursor.
std::string printable(const std::string& name) {
  std::string text;
  for (const char c : name) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  if (text.size() <= kNameColumns) return text;
  return text.substr(0, kNameColumns - 2) + "..";
}

std::vector<std::string> head_of(const Overview& o) {
  const std::optional<double> operations = o.operations_per_acquisition();
  return {fmt::format("{}   view {}   members {} (with this one)   removed {}   resets {}", o.cluster,
                      o.view, o.members, format_count(o.removals), format_count(o.resets)),
          fmt::format("acquired   {:>10}/s shared   {:>10}/s exclusive   given up {}/s   failed {}/s",
                      rate(o.shared_per_s), rate(o.exclusive_per_s), rate(o.given_up_per_s),
                      rate(o.failed_per_s)),
          fmt::format("hand-overs {:>10}/s local    {:>10}/s remote", rate(o.local_per_s),
                      rate(o.remote_per_s)),
          fmt::format("network    {:>10}/s messages {:>10} operations on memory nodes per acquisition",
                      rate(o.messages_per_s), operations ? fmt::format("{:.2f}", *operations) : "-")};
}

std::string line_of(const ProcessRow& p) {
  const bool is_silent = p.silent > kSilent;
  return fmt::format("{:<10}{:>12}{:>11}{:>11}{:>11}{:>11}{:>9}{:>9}{}", p.pid,
                     p.has_rates ? rate(p.acquired_per_s) : "-", quantile(p.wait, 500),
                     quantile(p.wait, 990), quantile(p.hold, 500), quantile(p.hold, 990), p.waiting,
                     p.holding,
                     is_silent ? "  silent for " + time(static_cast<double>(p.silent.ns)) : "");
}

std::string line_of(const LockRow& l) {
  const auto field = [&](auto get) { return l.header ? std::to_string(get(*l.header)) : "-"; };
  return fmt::format("{:<{}}{:>12}{:>8}{:>11}{:>11}{:>7}{:>9}{:>8}", printable(l.name), kNameColumns,
                     rate(l.acquired_per_s), fmt::format("{:.0f}%", 100 * l.waited_share),
                     time(l.wait_ns), time(l.hold_ns), field([](const Header& h) { return h.qsize; }),
                     field([](const Header& h) { return h.wcnt; }),
                     field([](const Header& h) { return h.epoch.value; }));
}

// `room`: for processes, when there is not enough for all lines.
std::vector<std::string> processes_of(const Overview& o, std::size_t room) {
  std::vector<std::string> lines{fmt::format("{:<10}{:>12}{:>11}{:>11}{:>11}{:>11}{:>9}{:>9}",
                                             "process", "acquired/s", "wait p50", "p99", "hold p50",
                                             "p99", "waiting", "holding")};
  for (const ProcessRow& p : o.processes) {
    if (lines.size() == room && o.processes.size() >= room) {
      lines.push_back(fmt::format("and {} more", o.processes.size() + 1 - room));
      break;
    }
    lines.push_back(line_of(p));
  }
  if (o.processes.empty())
    lines.push_back("none reports: nobody is there, or everybody was opened with publish=no");
  return lines;
}

}  // namespace

std::string screen(const Overview& o, std::size_t columns, std::size_t lines_max) {
  std::vector<std::string> lines = head_of(o);
  lines.emplace_back();
  // A third for processes: the locks are what one looks for.
  const std::size_t room =
      lines_max == 0 ? o.processes.size() + 1 : std::max<std::size_t>(lines_max / 3, 2);
  for (std::string& line : processes_of(o, room)) lines.push_back(std::move(line));
  lines.emplace_back();
  lines.push_back(fmt::format("{:<{}}{:>12}{:>8}{:>11}{:>11}{:>7}{:>9}{:>8}", "lock", kNameColumns,
                              "acquired/s", "waited", "wait", "hold", "queue", "writers", "resets"));
  for (std::size_t i = 0; i < std::min(o.locks.size(), kLocksShown); ++i)
    lines.push_back(line_of(o.locks[i]));
  if (lines_max > 0 && lines.size() > lines_max) lines.resize(lines_max);
  std::string text;
  for (const std::string& line : lines) text += (columns > 0 ? line.substr(0, columns) : line) + "\n";
  return text;
}

}  // namespace declock::looks
