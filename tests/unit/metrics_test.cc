// What is told to Prometheus, and how.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "metrics/exporter.h"
#include "metrics/families.h"
#include "support/soon.h"

namespace declock::metrics {
namespace {

Stats some_stats() {
  Stats stats;
  TableStats& orders = stats.tables.emplace_back();
  orders.table = "orders";
  orders.acquired_shared = 10;
  orders.acquired_exclusive = 20;
  orders.busy = 1;
  orders.timed_out = 2;
  orders.cancelled = 3;
  orders.failed = 4;
  orders.wait.buckets[0] = 5;
  orders.wait.buckets[10] = 3;
  orders.wait.buckets[Latency::kBuckets - 1] = 2;
  orders.wait.sum_ns = 3'000'000'000;
  stats.hand_overs_local = 6;
  stats.hand_overs_remote = 7;
  stats.operations = {{"fetch_add", "acquire", 30}, {"read", "release", 8}};
  stats.view = 9;
  stats.members = 2;
  return stats;
}

const Family& family(const std::vector<Family>& all, const std::string& name) {
  for (const Family& f : all) {
    if (f.name == name) return f;
  }
  ADD_FAILURE() << name;
  static const Family kNone{};
  return kNone;
}

double value(const std::vector<Family>& all, const std::string& name, const std::string& label = "") {
  for (const Sample& s : family(all, name).samples) {
    bool fits = label.empty();
    for (const auto& [key, text] : s.labels) fits = fits || text == label;
    if (fits) return s.value;
  }
  ADD_FAILURE() << name << " " << label;
  return -1;
}

TEST(Families, EveryFigureOfTheStatsIsThere) {
  const std::vector<Family> all = families_of(some_stats());
  EXPECT_EQ(value(all, "declock_acquisitions_total", "shared"), 10);
  EXPECT_EQ(value(all, "declock_acquisitions_total", "exclusive"), 20);
  EXPECT_EQ(value(all, "declock_given_up_total", "busy"), 1);
  EXPECT_EQ(value(all, "declock_given_up_total", "timed_out"), 2);
  EXPECT_EQ(value(all, "declock_given_up_total", "cancelled"), 3);
  EXPECT_EQ(value(all, "declock_failures_total"), 4);
  EXPECT_EQ(value(all, "declock_hand_overs_total", "local"), 6);
  EXPECT_EQ(value(all, "declock_hand_overs_total", "remote"), 7);
  EXPECT_EQ(value(all, "declock_mn_operations_total", "fetch_add"), 30);
  EXPECT_EQ(value(all, "declock_view"), 9);
  EXPECT_EQ(value(all, "declock_members"), 2);
}

TEST(Families, AHistogramIsCumulativeAndItsLastBucketHasNoBound) {
  const std::vector<Family> all = families_of(some_stats());
  const Sample& wait = family(all, "declock_wait_seconds").samples.front();
  ASSERT_EQ(wait.buckets.size(), Latency::kBuckets - 1);
  EXPECT_EQ(wait.count, 10u);
  EXPECT_DOUBLE_EQ(wait.sum_seconds, 3.0);
  EXPECT_DOUBLE_EQ(wait.buckets.front().upper_seconds, 256e-9);
  EXPECT_EQ(wait.buckets[0].cumulative, 5u);
  EXPECT_EQ(wait.buckets[9].cumulative, 5u);
  EXPECT_EQ(wait.buckets[10].cumulative, 8u);
  EXPECT_EQ(wait.buckets.back().cumulative, 8u);
  for (std::size_t i = 1; i < wait.buckets.size(); ++i)
    EXPECT_GT(wait.buckets[i].upper_seconds, wait.buckets[i - 1].upper_seconds);
}

TEST(Families, TablesWithTheSameLabelAreOneSample) {
  Stats stats = some_stats();
  stats.tables.push_back(stats.tables.front());  // the same name on another memory node
  const std::vector<Family> all = families_of(stats);
  EXPECT_EQ(family(all, "declock_acquisitions_total").samples.size(), 2u);
  EXPECT_EQ(value(all, "declock_acquisitions_total", "shared"), 20);
  std::set<std::string> names;
  for (const Family& f : all) EXPECT_TRUE(names.insert(f.name).second) << f.name;
}

TEST(Families, ALabelIsUtf8WhateverTheNameWas) {
  EXPECT_EQ(label_value("orders/42"), "orders/42");
  EXPECT_EQ(label_value("stra\xC3\x9F"
                        "e"),
            "stra\xC3\x9F"
            "e");
  EXPECT_EQ(label_value("a\xFFz"), "a\\xffz");
  EXPECT_EQ(label_value("\xC3"), "\\xc3");
  EXPECT_EQ(label_value("\xED\xA0\x80"), "\\xed\\xa0\\x80");
}

#if DECLOCK_PROMETHEUS

const std::atomic<bool> kStays{false};

// An endpoint that is gone may have left the connection open, and nobody answers.
std::string get(std::uint16_t port, const std::string& path,
                const std::atomic<bool>& is_gone = kStays) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  const timeval between_looks{.tv_sec = 0, .tv_usec = 100'000};
  setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &between_looks, sizeof between_looks);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(s, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    const std::string request = fmt::format("GET {} HTTP/1.0\r\n\r\n", path);
    (void)!write(s, request.data(), request.size());
    char bytes[4096];
    ssize_t n = 0;
    do {
      n = read(s, bytes, sizeof bytes);
      if (n > 0) answer.append(bytes, static_cast<std::size_t>(n));
    } while (n > 0 || (n < 0 && errno == EAGAIN && !is_gone));
  }
  close(s);
  return answer;
}

TEST(Endpoint, AnswersWithWhatIsCollectedNow) {
  std::atomic<std::uint64_t> n{1};
  auto opened = Exporter::open("localhost:0", [&] {
    return std::vector{
        counter("declock_test_total", "A \"test\".", {sample(n, {{"table", "a\"b\\c\nd"}})})};
  });
  ASSERT_TRUE(opened) << opened.error();
  EXPECT_NE((*opened)->port(), 0);
  EXPECT_NE(get((*opened)->port(), "/metrics").find("declock_test_total{table=\"a\\\"b\\\\c\\nd\"} 1"),
            std::string::npos);
  n = 2;
  EXPECT_NE(get((*opened)->port(), "/metrics").find("} 2"), std::string::npos);
  EXPECT_NE(get((*opened)->port(), "/elsewhere").find("404"), std::string::npos);
}

TEST(Endpoint, SeveralAskAtTheSameTimeAndItEndsMeanwhile) {
  auto opened = Exporter::open("127.0.0.1:0", [] { return families_of(some_stats()); });
  ASSERT_TRUE(opened) << opened.error();
  const std::uint16_t port = (*opened)->port();
  std::atomic<int> answers{0};
  std::atomic<bool> is_gone{false};
  std::vector<std::jthread> askers;
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&, port] {
      while (!get(port, "/metrics", is_gone).empty()) answers += 1;
    });
  }
  EXPECT_TRUE(soon([&] { return answers > 0; }));
  opened->reset();
  is_gone = true;
}

TEST(Endpoint, LeavesTheSignalsOfTheProcessAsTheyWere) {
  struct sigaction before {};
  struct sigaction after {};
  sigaction(SIGPIPE, nullptr, &before);
  auto opened = Exporter::open("127.0.0.1:0", [] { return std::vector<Family>{}; });
  ASSERT_TRUE(opened) << opened.error();
  sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(Endpoint, SaysWhatIsWrongWithAnAddress) {
  const auto nothing = [] { return std::vector<Family>{}; };
  const auto error = [&](const std::string& at) {
    const auto opened = Exporter::open(at, nothing);
    return opened ? std::string{} : opened.error();
  };
  EXPECT_NE(error("here").find("HOST:PORT"), std::string::npos);
  EXPECT_NE(error("127.0.0.1:99999").find("65535"), std::string::npos);
  EXPECT_NE(error("192.0.2.1:0").find("not an address of this machine"), std::string::npos);
  EXPECT_NE(error("no.such.host.invalid:1").find("has no address"), std::string::npos);
  auto first = Exporter::open("127.0.0.1:0", nothing);
  ASSERT_TRUE(first);
  const std::string taken = error(fmt::format("127.0.0.1:{}", (*first)->port()));
  EXPECT_NE(taken.find("is taken"), std::string::npos) << taken;
  EXPECT_EQ(taken.find('\n'), std::string::npos);
}

#endif

}  // namespace
}  // namespace declock::metrics
