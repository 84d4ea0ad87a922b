// What `declock top` makes of the reports of processes.
#include "looks/overview.h"

#include <gtest/gtest.h>

#include <cstring>

namespace declock::looks {
namespace {

using client::HotLock;
using client::Report;

HotLock hot(const char* name, std::uint64_t offset, std::uint64_t acquired) {
  HotLock lock{.lock = RemoteAddr{MnId{0}, offset}.packed(), .acquired = acquired};
  std::strncpy(lock.label.data(), name, lock.label.size());
  return lock;
}

Report report(std::uint64_t pid, std::uint64_t at_s, std::uint64_t shared, std::uint64_t exclusive) {
  Report r;
  r.format = Report::kFormat;
  r.pid = pid;
  r.incarnation = 1;
  r.at_ns = at_s * 1'000'000'000;
  r.acquired_shared = shared;
  r.acquired_exclusive = exclusive;
  return r;
}

TEST(Overview, RatesAreBetweenTwoReportsOfAProcess) {
  Reports reports;
  Report a = report(1, 10, 100, 1000);
  Report b = report(2, 500, 0, 0);  // another machine, another clock
  reports.add({a, b}, Time{});
  EXPECT_FALSE(reports.all_have_rates());
  a.at_ns += 2'000'000'000;
  a.acquired_shared += 20;
  a.acquired_exclusive += 200;
  a.operations += 440;
  b.at_ns += 1'000'000'000;
  b.acquired_exclusive += 50;
  b.hand_overs_local += 30;
  reports.add({a, b}, Time{seconds(1).ns});
  EXPECT_TRUE(reports.all_have_rates());
  const Overview o = reports.overview(Time{seconds(1).ns});
  EXPECT_DOUBLE_EQ(o.shared_per_s, 10);
  EXPECT_DOUBLE_EQ(o.exclusive_per_s, 150);
  EXPECT_DOUBLE_EQ(o.local_per_s, 30);
  EXPECT_DOUBLE_EQ(*o.operations_per_acquisition(), 220.0 / 160);
  ASSERT_EQ(o.processes.size(), 2u);
  EXPECT_EQ(o.processes[0].pid, 1u) << "the busiest first";
  EXPECT_DOUBLE_EQ(o.processes[0].acquired_per_s, 110);
}

TEST(Overview, AReportThatIsStillTheSameChangesNothing) {
  Reports reports;
  Report a = report(1, 10, 0, 0);
  reports.add({a}, Time{});
  a.at_ns += 1'000'000'000;
  a.acquired_shared = 100;
  reports.add({a}, Time{seconds(1).ns});
  reports.add({a}, Time{seconds(9).ns});
  const Overview o = reports.overview(Time{seconds(9).ns});
  EXPECT_DOUBLE_EQ(o.shared_per_s, 100);
  EXPECT_EQ(o.processes[0].silent, seconds(8));
  EXPECT_NE(screen(o, 0, 0).find("silent for 8.0s"), std::string::npos);
}

TEST(Overview, WhoIsGoneIsNotShownAndWhoComesBackBeginsAnew) {
  Reports reports;
  reports.add({report(1, 10, 0, 0), report(2, 10, 0, 0)}, Time{});
  reports.add({report(2, 11, 5, 0)}, Time{});
  EXPECT_EQ(reports.overview(Time{}).processes.size(), 1u);
  reports.add({report(1, 12, 1000, 0), report(2, 12, 10, 0)}, Time{});
  const Overview o = reports.overview(Time{});
  EXPECT_EQ(o.processes.size(), 2u);
  EXPECT_DOUBLE_EQ(o.shared_per_s, 5);
}

TEST(Overview, TheSameNumberOnTwoMachinesIsTwoProcesses) {
  Reports reports;
  reports.add({report(1, 10, 0, 0), report(1, 90, 0, 0)}, Time{});
  reports.add({report(1, 11, 7, 0), report(1, 91, 8, 0)}, Time{});
  EXPECT_DOUBLE_EQ(reports.overview(Time{}).shared_per_s, 15);
}

TEST(Overview, AHotLockIsOneRowForAllProcesses) {
  Reports reports;
  Report a = report(1, 10, 0, 100);
  Report b = report(2, 10, 0, 100);
  a.hot[0] = hot("orders/42", 64, 50);
  b.hot[0] = hot("orders/42", 64, 90);
  reports.add({a, b}, Time{});
  a.at_ns += 1'000'000'000;
  b.at_ns += 1'000'000'000;
  a.acquired_exclusive += 300;
  b.acquired_exclusive += 100;
  a.hot[0].acquired += 300;
  a.hot[0].waited += 300;
  a.hot[0].wait_ns += 300 * 1000;
  a.hot[0].held += 300;
  a.hot[0].hold_ns += 300 * 500;
  b.hot[1] = hot("orders/42", 64, 190);
  b.hot[0] = hot("other", 128, 1'000'000);  // watched for long, but new on the list
  reports.add({a, b}, Time{});
  const Overview o = reports.overview(Time{});
  ASSERT_EQ(o.locks.size(), 2u);
  EXPECT_EQ(o.locks[0].name, "orders/42");
  EXPECT_EQ(o.locks[0].at, (RemoteAddr{MnId{0}, 64}));
  EXPECT_DOUBLE_EQ(o.locks[0].acquired_per_s, 400);
  EXPECT_DOUBLE_EQ(o.locks[0].waited_share, 0.75);
  EXPECT_DOUBLE_EQ(*o.locks[0].wait_ns, 1000);
  EXPECT_DOUBLE_EQ(*o.locks[0].hold_ns, 500);
  EXPECT_DOUBLE_EQ(o.locks[1].acquired_per_s, 100) << "no more than its process did";
  EXPECT_FALSE(o.locks[1].wait_ns);
}

TEST(Overview, LatenciesAreThoseBetweenTheReports) {
  Reports reports;
  Report a = report(1, 10, 0, 0);
  a.wait.buckets[20] = 1000;
  reports.add({a}, Time{});
  a.at_ns += 1'000'000'000;
  a.wait.buckets[2] = 10;
  reports.add({a}, Time{});
  const Overview o = reports.overview(Time{});
  EXPECT_EQ(o.processes[0].wait.quantile_ns(990), Latency::below_ns(2));
}

TEST(Screen, FitsTheTerminal) {
  Reports reports;
  std::vector<Report> all;
  for (std::uint64_t pid = 1; pid <= 40; ++pid) all.push_back(report(pid, 10, 0, 0));
  all[0].hot[0] = hot("a\033[2Jb with a name that goes on for longer than", 64, 1);
  reports.add(all, Time{});
  for (Report& r : all) r.at_ns += 1'000'000'000;
  all[0].acquired_shared = 10;
  all[0].hot[0].acquired = 11;
  reports.add(all, Time{});
  const Overview o = reports.overview(Time{});
  const std::string text = screen(o, 60, 24);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 24);
  EXPECT_EQ(text.find('\033'), std::string::npos) << "a name moves no cursor";
  EXPECT_NE(text.find("and 33 more"), std::string::npos) << text;
  EXPECT_NE(text.find("a?[2Jb"), std::string::npos) << text;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_LE(end - at, 60u);
    at = end + 1;
  }
  EXPECT_NE(screen(Overview{}, 0, 0).find("none reports"), std::string::npos);
}

}  // namespace
}  // namespace declock::looks
