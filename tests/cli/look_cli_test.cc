// declock top and inspect, metrics and traces: what they show of processes that lock.
#include <sys/prctl.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <shared_mutex>
#include <thread>

#include "cli/runner.h"
#include "declock/declock.h"
#include "process/programs.h"
#include "support/soon.h"

namespace declock {
namespace {

using nlohmann::json;
using process::Program;

// A process of the test's own: ends when the test kills it, or by itself.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    ::_exit(0);
  }
  Child(const Child&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    (void)wait();
  }
  int wait() {
    int status = -1;
    if (pid_ > 0 && !ended_) ::waitpid(pid_, &status, 0);
    ended_ = true;
    return status;
  }

 private:
  pid_t pid_ = 0;
  bool ended_ = false;
};

Cluster must_open(const std::string& uri) {
  Result<Cluster, Error> opened = Cluster::open(uri);
  if (!opened) {
    fmt::print(stderr, "{}\n", opened.error().message);
    std::abort();
  }
  return std::move(*opened);
}

class LookCli : public CliTest {
 protected:
  std::string uri() const {
    return fmt::format("shm:look?dir={}&members=8&size=1MiB", folder_.string());
  }
  std::string quoted() const { return "'" + uri() + "'"; }
  // Two threads that lock the same for ever.
  void busy() const {
    Cluster cluster = must_open(uri());
    const LockTable table = *cluster.lock_table("stock", 16);
    std::jthread other{[&] {
      SharedMutex mutex{cluster, "orders/42"};
      for (;;) {
        const std::lock_guard guard{mutex};
        ::usleep(100);
      }
    }};
    SharedMutex mutex{cluster, "orders/42"};
    SharedMutex stock{cluster, table[3]};
    for (;;) {
      {
        const std::lock_guard guard{mutex};
        ::usleep(100);
      }
      const std::shared_lock guard{stock};
    }
  }
  std::string inspected() { return run("inspect " + quoted() + " orders/42").out; }
};

TEST_F(LookCli, TopShowsWhatTheProcessesDo) {
  const Child one{[&] { busy(); }};
  const Child two{[&] { busy(); }};
  json look;
  ASSERT_TRUE(soon([&] {  // until both have reported twice
    const Outcome outcome = run("top " + quoted() + " --once --json -");
    if (outcome.status != 0) return false;  // there is no cluster yet
    look = json::parse(outcome.out);
    const json& processes = look["processes"];
    return processes.size() == 2 &&
           std::none_of(processes.begin(), processes.end(),
                        [](const json& process) { return process["acquired_per_s"].is_null(); });
  })) << look;
  for (const json& process : look["processes"]) EXPECT_GT(process["acquired_per_s"], 0) << look;
  EXPECT_GT(look["acquired_exclusive_per_s"], 0);
  EXPECT_GT(look["acquired_shared_per_s"], 0);
  EXPECT_GT(look["mn_operations_per_acquisition"], 0.1);
  EXPECT_EQ(look["removals"], 0);
  EXPECT_GE(look["members"], 2);
  json orders;
  for (const json& lock : look["locks"]) {
    if (lock["lock"] == "orders/42") orders = lock;
  }
  ASSERT_FALSE(orders.is_null()) << look;
  EXPECT_GT(orders["waited_share"], 0.3);
  EXPECT_GT(orders["hold_mean_ns"], 50'000);
  EXPECT_TRUE(orders.contains("queue"));

  Outcome blocks;
  EXPECT_TRUE(soon([&] {
    blocks = run("top " + quoted() + " --times 2 --interval 100ms");
    const std::size_t first = blocks.out.find("orders/42");
    return first != std::string::npos && blocks.out.find("orders/42", first + 1) != std::string::npos &&
           blocks.out.find("stock[3]") != std::string::npos;
  })) << blocks.out;
  EXPECT_EQ(blocks.status, 0) << blocks.err;
  EXPECT_EQ(blocks.out.find('\033'), std::string::npos) << "no terminal";
}

TEST_F(LookCli, TopLeavesTheClusterWhenItIsInterrupted) {
  const Cluster cluster = must_open(uri());
  for (const int signal : {SIGINT, SIGTERM}) {
    Program top{{DECLOCK_PROGRAM, "top", uri()}};
    ASSERT_TRUE(top.says("acquired/s")) << top.output();
    top.send(signal);
    EXPECT_EQ(top.wait(), 0) << top.output();
  }
  EXPECT_TRUE(soon([&] { return cluster.stats().members == 1; }));
  EXPECT_EQ(cluster.stats().removals, 0u);
}

TEST_F(LookCli, InspectShowsAQueue) {
  const auto wait_for_it = [&] {
    while (!fs::exists(folder_ / "is-held")) ::usleep(1000);
    Cluster cluster = must_open(uri());
    SharedMutex mutex{cluster, "orders/42"};
    const std::lock_guard guard{mutex};
  };
  Child first{wait_for_it};  // forked before this process has threads
  Cluster cluster = must_open(uri());
  SharedMutex mutex{cluster, "orders/42"};
  EXPECT_NE(inspected().find("is        free"), std::string::npos) << inspected();
  mutex.lock();
  EXPECT_NE(inspected().find("held exclusively by a member that got it at once; nobody waits"),
            std::string::npos)
      << inspected();
  std::ofstream{folder_ / "is-held"} << "now";
  std::string text;
  EXPECT_TRUE(soon([&] {
    text = inspected();
    return text.find("1 waits, 1 of them exclusively") != std::string::npos;
  })) << text;
  EXPECT_NE(text.find("waiting"), std::string::npos) << text;
  const Outcome outcome = run("inspect " + quoted() + " orders/42 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json lock = json::parse(outcome.out);
  EXPECT_EQ(lock["header"]["qsize"], 2);
  EXPECT_EQ(lock["queue"][0]["standing"], "holding");
  EXPECT_EQ(lock["queue"][1]["mode"], "exclusive");
  mutex.unlock();
  EXPECT_EQ(first.wait(), 0);
  EXPECT_NE(inspected().find("is        free"), std::string::npos) << inspected();
}

TEST_F(LookCli, BadInputGetsOneLine) {
  const Outcome none = run("top shm:no-such-cluster --once");
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(std::count(none.err.begin(), none.err.end(), '\n'), 1) << none.err;
  EXPECT_FALSE(fs::exists("/dev/shm/declock.no-such-cluster")) << "looking makes nothing";
  expect_refused("top", "URI");
  expect_refused("top shm:x --interval 1", "duration");
  expect_refused("top shm:x --interval 1ms", "100ms");
  expect_refused("top shm:x --once --times 3", "--times");
  expect_refused("top shm:x --tims 3", "--tims");
  expect_refused("inspect shm:x", "LOCK");
  Cluster cluster = must_open(uri());
  ASSERT_TRUE(cluster.lock_table("stock", 16));
  expect_refused("inspect " + quoted() + " nothing", "no such lock");
  expect_refused("inspect " + quoted() + " 'stock[16]'", "16 locks");
  EXPECT_EQ(run("inspect " + quoted() + " 'stock[15]'").status, 0);
}

TEST_F(LookCli, AProcessTellsPrometheusWhatItDoes) {
  Cluster cluster = must_open(uri());
  const Result<std::uint16_t, Error> port = cluster.serve_metrics("127.0.0.1:0");
  ASSERT_TRUE(port) << port.error().message;
  SharedMutex mutex{cluster, "orders/42"};
  for (int i = 0; i < 100; ++i) {
    const std::lock_guard guard{mutex};
  }
  const std::string file = folder_ / "metrics";
  ASSERT_EQ(
      std::system(fmt::format("curl -sSf http://127.0.0.1:{}/metrics -o {}", *port, file).c_str()), 0);
  EXPECT_EQ(std::system(fmt::format("promtool check metrics <{0} >{0}.said 2>&1", file).c_str()), 0);
  EXPECT_EQ(slurp(file + ".said"), "");
  const std::string text = slurp(file);
  EXPECT_NE(text.find("declock_acquisitions_total{table=\"(names)\",mode=\"exclusive\"} 100"),
            std::string::npos)
      << text;
}

TEST_F(LookCli, TracesOfTwoProcessesShowWhoHandedTheLockToWhom) {
  const auto has_both = [&](const std::string& what) {
    return fs::exists(folder_ / ("one-" + what)) && fs::exists(folder_ / ("two-" + what));
  };
  const auto take_turns = [&](const std::string& name) {
    Cluster cluster = must_open(uri() + "&trace=" + (folder_ / name).string());
    SharedMutex mutex{cluster, "orders/42"};
    std::ofstream{folder_ / (name + "-is-here")} << "yes";
    while (!has_both("is-here")) ::usleep(100);
    while (!has_both("has-enough")) {
      const std::lock_guard guard{mutex};
      ::usleep(500);
      if (cluster.stats().hand_overs_remote > 10)
        std::ofstream{folder_ / (name + "-has-enough")} << "yes";
    }
    (void)cluster.close();
  };
  {
    Child one{[&] { take_turns("one"); }};
    Child two{[&] { take_turns("two"); }};
    EXPECT_EQ(one.wait(), 0);
    EXPECT_EQ(two.wait(), 0);
  }
  const Outcome outcome = run(fmt::format("trace {0}/one {0}/two --out {0}/both", folder_.string()));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("of 2 processes"), std::string::npos) << outcome.out;
  const json both = json::parse(slurp(folder_ / "both"));
  std::size_t arrows = 0;
  for (const json& e : both["traceEvents"]) arrows += e["ph"] == "s" ? 1 : 0;
  EXPECT_GT(arrows, 10u) << outcome.out;
}

}  // namespace
}  // namespace declock
