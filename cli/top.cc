// declock top: what the processes of a cluster do with its locks, live.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/futex.h"
#include "client/seeing.h"
#include "commands.h"
#include "exit_codes.h"
#include "looks/lock_state.h"
#include "looks/overview.h"
#include "options.h"
#include "output.h"
#include "visit.h"

namespace declock::cli {
namespace {

using Json = nlohmann::ordered_json;

// Reports come once a second; the first two of everybody are waited for no longer than this.
constexpr Duration kFirstReports = milliseconds(2500);
constexpr std::size_t kHeadersRead = 16;
constexpr unsigned kLeaveSecondsMax = 2;

struct TopOptions {
  std::string uri;
  Duration interval = seconds(1);
  std::uint64_t times = 0;  // 0: until Ctrl-C
  bool once = false;
  std::string json;
};

std::atomic<bool> is_over{false};

// Also on SIGTERM: a member that ends without leaving is a loss that others have to clean up after.
void end_on_signals() {
  end_on_alarm("declock: the cluster does not answer, so this process did not leave it\n");
  struct sigaction action {};
  action.sa_handler = [](int) {
    is_over = true;
    alarm(kLeaveSecondsMax);
  };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second one ends the program at once
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// A signal may reach another thread than this one, so it looks by itself now and then.
void sleep_until(Time until) {
  for (Time now = monotonic_now(); now < until && !is_over; now = monotonic_now()) {
    const std::int64_t left_us = (until - now).ns / 1000;
    usleep(static_cast<useconds_t>(std::min<std::int64_t>(left_us + 1, 20'000)));
  }
}

void look(Cluster& cluster, looks::Reports& reports) {
  if (cluster.evicted()) {
    throw CannotRun(
        "the cluster took this process for dead, since it was silent too long; start it again");
  }
  const auto read = client::read_reports(cluster);
  if (!read) throw CannotRun(read.error().message);
  reports.add(*read, monotonic_now());
}

looks::Overview overview_of(Cluster& cluster, const looks::Reports& reports, const std::string& uri) {
  looks::Overview o = reports.overview(monotonic_now());
  const Stats own = cluster.stats();
  o.cluster = uri.substr(0, uri.find('?'));
  o.view = own.view;
  o.members = own.members;
  o.removals = own.removals;
  const HeaderLayout layout{static_cast<unsigned>((cluster.lock_bytes() - 16) / 8)};
  for (std::size_t i = 0; i < std::min(o.locks.size(), kHeadersRead); ++i) {
    std::uint64_t word = 0;
    if (cluster.read(o.locks[i].at, {&word, 1})) o.locks[i].header = layout.decode(word);
  }
  return o;
}

Json to_json(const Latency& latency) {
  if (latency.count() == 0) return nullptr;
  return {{"p50_below_ns", latency.quantile_ns(500)}, {"p99_below_ns", latency.quantile_ns(990)}};
}

Json to_json(const looks::LockRow& l) {
  Json json{{"lock", l.name},
            {"address", looks::to_text(l.at)},
            {"acquired_per_s", l.acquired_per_s},
            {"waited_share", l.waited_share},
            {"wait_mean_ns", l.wait_ns ? Json(*l.wait_ns) : Json{}},
            {"hold_mean_ns", l.hold_ns ? Json(*l.hold_ns) : Json{}}};
  if (l.header) {
    json["queue"] = l.header->qsize;
    json["writers"] = l.header->wcnt;
    json["epoch"] = l.header->epoch.value;
  }
  return json;
}

Json to_json(const looks::Overview& o) {
  const std::optional<double> operations = o.operations_per_acquisition();
  Json json{{"cluster", o.cluster},
            {"view", o.view},
            {"members", o.members},
            {"removals", o.removals},
            {"resets", o.resets},
            {"acquired_shared_per_s", o.shared_per_s},
            {"acquired_exclusive_per_s", o.exclusive_per_s},
            {"given_up_per_s", o.given_up_per_s},
            {"failed_per_s", o.failed_per_s},
            {"hand_overs_local_per_s", o.local_per_s},
            {"hand_overs_remote_per_s", o.remote_per_s},
            {"messages_per_s", o.messages_per_s},
            {"mn_operations_per_acquisition", operations ? Json(*operations) : Json{}},
            {"processes", Json::array()},
            {"locks", Json::array()}};
  for (const looks::ProcessRow& p : o.processes) {
    json["processes"].push_back({{"pid", p.pid},
                                 {"acquired_per_s", p.has_rates ? Json(p.acquired_per_s) : Json{}},
                                 {"wait", to_json(p.wait)},
                                 {"hold", to_json(p.hold)},
                                 {"waiting", p.waiting},
                                 {"holding", p.holding}});
  }
  for (const looks::LockRow& l : o.locks) json["locks"].push_back(to_json(l));
  return json;
}

void show(const looks::Overview& overview, bool first) {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 4) {
    fmt::print("{}{}", first ? "" : "\n", looks::screen(overview, 0, 0));
  } else {
    // From the top left corner, over what is there, so that nothing flickers.
    std::string text = first ? "\033[2J\033[H" : "\033[H";
    for (const char c : looks::screen(overview, size.ws_col, size.ws_row - 1u))
      text += c == '\n' ? std::string{"\033[K\n"} : std::string{c};
    fmt::print("{}\033[J", text);
  }
  flush_standard_output();
}

int run(const TopOptions& options) {
  ResultFile json{options.json};
  Cluster cluster = visit(options.uri);
  end_on_signals();
  looks::Reports reports;
  look(cluster, reports);
  const Time latest = monotonic_now() + kFirstReports;
  do {
    sleep_until(monotonic_now() + milliseconds(100));
    look(cluster, reports);
  } while (!is_over && !reports.all_have_rates() && monotonic_now() < latest);

  const std::uint64_t times = options.once ? 1 : options.times;
  looks::Overview overview;
  for (std::uint64_t i = 0; !is_over || i == 0; ++i) {
    const Time began = monotonic_now();
    if (i > 0) look(cluster, reports);
    overview = overview_of(cluster, reports, options.uri);
    if (!json.is_standard_output()) show(overview, i == 0);
    if (i + 1 == times) break;
    sleep_until(began + options.interval);
  }
  json.write(to_json(overview).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  (void)cluster.close();
  return kFine;
}

}  // namespace

Action add_top(Command program) {
  Command app = program.add_command(
      "top", "What the processes of a cluster do with its locks, live, until Ctrl-C");
  auto options = std::make_shared<TopOptions>();
  app.add_option("URI", options->uri, "The cluster: shm:NAME, tcp://HOST:PORT?secret=FILE, ..")
      .required();
  app.add_duration("--interval", options->interval, "Between two looks", milliseconds(100),
                   seconds(3600));
  Option times = app.add_option("--times", options->times, "So many looks; 0: until Ctrl-C")
                     .check(whole_number(0, 1'000'000'000));
  app.add_flag("--once", options->once, "One look").excludes(times);
  app.add_option("--json", options->json, "The last look as JSON; -: to standard output, instead")
      .type_name("FILE");
  return [options] { return run(*options); };
}

}  // namespace declock::cli
