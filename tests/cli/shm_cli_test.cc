// The commands that start real processes, or look at what those left.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/runner.h"
#include "member_shm/slot_lock.h"
#include "shm/cluster.h"
#include "support/soon.h"

namespace declock {
namespace {

const std::string kShm = "bench micro --fabric shm --warmup 20ms --locks 20 --zipf 0.9 ";
const std::string kQuickShm = kShm + "--duration 500ms --cns 3 --clients 2 ";

// Clusters of benchmarks that are, or were, running.
std::size_t clusters_left(const std::string& prefix) {
  auto all = shm::list_clusters(shm::kDefaultDirectory);
  std::size_t count = 0;
  for (const shm::Listed& listed : *all) count += listed.name.starts_with(prefix) ? 1 : 0;
  return count;
}

std::vector<pid_t> children_of(pid_t process) {
  std::ifstream file{fmt::format("/proc/{}/task/{}/children", process, process)};
  return {std::istream_iterator<pid_t>{file}, {}};
}

class ShmCli : public CliTest {
 protected:
  // Also if nobody has asked yet how.
  static bool has_ended(pid_t process) {
    return slurp(fmt::format("/proc/{}/cmdline", process)).empty();
  }
};

TEST_F(ShmCli, EveryLockExcludesBetweenProcesses) {
  const std::string result = folder_ / "all.json";
  const Outcome outcome = run(kQuickShm + "--lock all --json " + result);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto runs = nlohmann::json::parse(slurp(result));
  EXPECT_EQ(runs.size(), 13u);
  for (const auto& json : runs) {
    EXPECT_EQ(json["fabric"], "shm");
    EXPECT_EQ(json["violations"], 0) << json["lock"];
    EXPECT_EQ(json["lost_updates"], 0) << json["lock"];
    EXPECT_GT(json["ops"], 0) << json["lock"];
    const std::string lock = json["lock"];
    if (!lock.starts_with("declock") && lock != "cql") continue;
    EXPECT_EQ(json["resets"], 0) << lock;
    // Who waits for a token also looks at the header.
    EXPECT_LE(json["mn_ops_per_acquire_max"], lock == "declock-token" ? 3 : 2) << lock;
  }
  EXPECT_NE(outcome.out.find("shiftlock"), std::string::npos);
}

TEST_F(ShmCli, WorkersAreThreads) {
  const Outcome outcome = run(
      kShm + "--duration 200ms --cns 3 --lock declock-slack --clients 4 --workers 3 --mns 2 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["lost_updates"], 0);
}

TEST_F(ShmCli, AKilledProcessCostsNothingThatWasAcknowledged) {
  const Outcome outcome =
      run(kShm + "--duration 1s --cns 3 --clients 2 --lock declock-pf --kill cn:1@100ms --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["violations"], 0);
  EXPECT_LE(json["lost_updates"], 0);
  std::uint64_t after = 0;
  for (std::size_t i = 20; i < json["timeline"].size(); ++i)
    after += json["timeline"][i].get<std::uint64_t>();
  EXPECT_GT(after, 0u);
}

TEST_F(ShmCli, CtrlCAndEvenAKillLeaveNothingBehind) {
  for (const int signal : {SIGINT, SIGKILL}) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::freopen("/dev/null", "w", stderr);
      std::freopen("/dev/null", "w", stdout);
      ::execl(DECLOCK_PROGRAM, DECLOCK_PROGRAM, "bench", "micro", "--fabric", "shm", "--lock",
              "declock-pf", "--cns", "3", "--clients", "2", "--locks", "20", "--duration", "3600s",
              nullptr);
      ::_exit(127);
    }
    const std::string cluster = fmt::format("bench-{}", child);
    // It is under way when all have joined, and the names, which nobody needs any more, are gone again.
    std::vector<pid_t> processes;
    ASSERT_TRUE(soon([&] {
      processes = children_of(child);
      return processes.size() == 3 && clusters_left(cluster) == 0;
    }));
    ::kill(child, signal);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(signal == SIGKILL || WEXITSTATUS(status) == 2);
    EXPECT_EQ(clusters_left(cluster), 0u);
    for (const pid_t process : processes) EXPECT_TRUE(soon([&] { return has_ended(process); }));
  }
}

TEST_F(ShmCli, PeersAreMeasuredSideBySide) {
  const Outcome outcome = run("bench peers --duration 20ms --rounds 1 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["locks"].size(), 6u);
  for (const auto& lock : json["locks"]) {
    EXPECT_EQ(lock["lost_updates"], 0) << lock["lock"];
    EXPECT_GT(lock["contended_mops"], 0) << lock["lock"];
    EXPECT_GT(lock["uncontended_exclusive_ns"], 0) << lock["lock"];
  }
}

TEST_F(ShmCli, RecoveryIsMeasured) {
  const Outcome outcome = run("bench reset --fabric shm --resets 5 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_GT(nlohmann::json::parse(outcome.out)["recovery_ms"]["p50"], 0);
}

TEST_F(ShmCli, TheDemoComparesAndRecovers) {
  const Outcome outcome = run("demo --duration 100ms");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* part : {"1. A simulated cluster", "  shiftlock ", "2. This machine", "declock-slack",
                           "caslock", "<- kill -9", "Violations 0, lost updates 0"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  }
}

TEST_F(ShmCli, TheDoctorFindsThisMachineWell) {
  const Outcome well = run("doctor");
  EXPECT_EQ(well.status, 0) << well.out;
  EXPECT_NE(well.out.find("log"), std::string::npos)
      << "it says what becomes of files at log-out: " << well.out;
  const Outcome unwell = run("doctor --dir " + (folder_ / "nowhere").string());
  EXPECT_EQ(unwell.status, 2);
  EXPECT_NE(unwell.out.find("mend it:"), std::string::npos);
}

TEST_F(ShmCli, ClustersAreListedInspectedAndRemoved) {
  const std::string where = " --dir " + folder_.string();
  EXPECT_NE(run("shm list" + where).out.find("no cluster"), std::string::npos);
  shm::ClusterConfig config;
  config.name = "mine";
  config.directory = folder_;
  config.members = 3;
  config.mn_bytes = 8000;
  ASSERT_TRUE(shm::Cluster::open_or_create(config));
  std::ofstream(folder_ / "declock-broken") << "not ours";
  const Outcome list = run("shm list" + where);
  EXPECT_EQ(list.status, 0);
  EXPECT_NE(list.out.find("mine"), std::string::npos);
  EXPECT_NE(list.out.find("it was left as it is"), std::string::npos) << list.out;
  const Outcome inspect = run("shm inspect mine" + where);
  EXPECT_EQ(inspect.status, 0);
  EXPECT_NE(inspect.out.find("a lock takes 40 bytes"), std::string::npos) << inspect.out;
  EXPECT_EQ(run("shm inspect other" + where).status, 2);
  EXPECT_EQ(run("shm remove broken" + where).status, 2);
  EXPECT_EQ(slurp(folder_ / "declock-broken"), "not ours");
  EXPECT_EQ(run("shm remove mine" + where).status, 0);
  EXPECT_EQ(run("shm remove mine" + where).status, 2);
  expect_refused("shm", "list, inspect, remove");
  expect_refused("shm inspect", "NAME");
}

// What a message tells one to remove can be removed, unless somebody uses it.
TEST_F(ShmCli, ADamagedClusterIsRemovedUnlessItIsInUse) {
  const fs::path folder = folder_ / "shm";
  fs::create_directory(folder);
  const std::string where = " --dir " + folder.string();
  const auto damage = [&](const std::string& file, std::size_t at, const std::string& with) {
    std::fstream out{folder / file, std::ios::binary | std::ios::in | std::ios::out};
    out.seekp(static_cast<std::streamoff>(at));
    out << with;
  };
  shm::ClusterConfig config;
  config.name = "mine";
  config.directory = folder;
  config.mns = 2;
  config.mn_bytes = 8000;
  const std::vector<std::pair<std::string, std::function<void()>>> damages{
      {"is damaged", [&] { fs::resize_file(folder / "declock-mine", 5000); }},
      {"makes no sense", [&] { damage("declock-mine", 32, std::string(16, '\xFF')); }},
      {"format version", [&] { damage("declock-mine", 8, "\x09"); }},
      {"is damaged", [&] { fs::resize_file(folder / "declock-mine.mn1", 5000); }},
      {"another cluster", [&] { damage("declock-mine.mn1", 24, "other"); }}};
  for (const auto& [why, how] : damages) {
    ASSERT_TRUE(shm::Cluster::open_or_create(config));
    how();
    const Outcome inspect = run("shm inspect mine" + where);
    EXPECT_NE(inspect.err.find(why), std::string::npos) << inspect.err;
    EXPECT_NE(inspect.err.find("remove"), std::string::npos) << inspect.err;
    const Outcome removed = run("shm remove mine" + where);
    EXPECT_EQ(removed.status, 0) << why << ": " << removed.err;
    EXPECT_TRUE(fs::is_empty(folder)) << why;
    for (const auto& left : fs::directory_iterator{folder}) fs::remove(left);
  }
  ASSERT_TRUE(shm::Cluster::open_or_create(config));
  auto user = member::SlotLock::open(folder / "declock-mine");
  ASSERT_TRUE(user && user->try_take(Slot{3}));
  damages[0].second();
  const Outcome refused = run("shm remove mine" + where);
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("in use"), std::string::npos) << refused.err;
}

TEST_F(ShmCli, RefusesWhatARealFabricCannotDo) {
  expect_refused(kQuickShm + "--lock ideal", "simulator");
  expect_refused(kShm + "--lock declock-pf --cns 1000", "256 processes");
  expect_refused(kQuickShm + "--lock declock-pf --kill mn:0@10ms", "cn:N@TIME");
  expect_refused(kQuickShm + "--cn-latency 4x", "--fabric sim");
  expect_refused("bench peers --fabric sim", "shm");
  expect_refused("bench peers --processes 0", "1 to 64");
  expect_refused("bench reset --fabric udp", "sim|shm|tcp|verbs");
  expect_refused("demo --cns 1", "2 to 64");
}

}  // namespace
}  // namespace declock
