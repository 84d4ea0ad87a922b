// The program as a user meets it: results, exit codes, and one clear line for everything that is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/runner.h"
#include "support/soon.h"

namespace declock {
namespace {

class Cli : public CliTest {};

const std::string kQuick = "bench micro --duration 2ms --warmup 1ms --cns 2 --clients 4 --locks 100 ";

TEST_F(Cli, BenchWritesItsResultAsJsonTwiceTheSame) {
  nlohmann::json results[2];
  for (auto& result : results) {
    const Outcome outcome = run(kQuick + "--seed 5 --json -");
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    result = nlohmann::json::parse(outcome.out);
    result.erase("wall_s");
  }
  EXPECT_EQ(results[0], results[1]);
  for (const char* key : {"commit",
                          "fabric",
                          "lock",
                          "seed",
                          "config",
                          "duration_s",
                          "trace_hash",
                          "ops",
                          "throughput_mops",
                          "latency_us",
                          "mn_ops",
                          "mn_ops_by_purpose",
                          "mn_ops_per_acquire",
                          "mn_ops_per_release",
                          "mn_ops_per_op",
                          "refetches_per_release",
                          "messages",
                          "fairness",
                          "lost_updates",
                          "violations"}) {
    EXPECT_TRUE(results[0].contains(key)) << key;
  }
  EXPECT_EQ(results[0]["seed"], 5);
}

TEST_F(Cli, ExploreTellsTheStoryOfAViolation) {
  const Outcome text = run("explore --program 'w;r;r' --without H28");
  EXPECT_EQ(text.status, 4);
  EXPECT_NE(text.out.find("  1. client "), std::string::npos);
  const Outcome outcome = run("explore --program 'w;r;r' --without H28 --json -");
  EXPECT_EQ(outcome.status, 4);
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["verdict"], "hang");
  EXPECT_GT(json["story"].size(), 10u);
}

TEST_F(Cli, ASafetyViolationHasItsOwnStatus) {
  const Outcome outcome = run("explore --program 'w;w;w' --without ticket-match --json -");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["verdict"], "order");
}

TEST_F(Cli, AllLocksMakeOneTable) {
  const std::string result = folder_ / "all.json";
  const Outcome outcome = run(kQuick + "--lock all --piggyback --json " + result);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(slurp(result));
  ASSERT_TRUE(json.is_array());
  for (const auto& run : json) {
    EXPECT_NE(outcome.out.find(run["lock"].get<std::string>()), std::string::npos);
    EXPECT_EQ(run["violations"], 0);
    EXPECT_EQ(run["lost_updates"], 0);
  }
  EXPECT_GE(json.size(), 12u);
}

TEST_F(Cli, StandardOutputThatIsClosedOrFullIsNoticed) {
  const std::string result = folder_ / "result.json";
  const auto shell = [](const std::string& command) {
    return WEXITSTATUS(std::system(command.c_str()));
  };
  EXPECT_EQ(shell(fmt::format("{} {} --json {} >&-", DECLOCK_PROGRAM, kQuick, result)), 0);
  EXPECT_TRUE(nlohmann::json::accept(slurp(result))) << "the summary must not get into the result";
  EXPECT_EQ(shell(fmt::format("{} {} >/dev/full 2>/dev/null", DECLOCK_PROGRAM, kQuick)), 2);
  EXPECT_EQ(shell(fmt::format("{} nic >/dev/full 2>/dev/null", DECLOCK_PROGRAM)), 2);
}

TEST_F(Cli, ExploreSaysCleanAndCountsStates) {
  const Outcome outcome = run("explore --program 'w;r' --json -");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["verdict"], "clean");
  EXPECT_TRUE(json["complete"]);
  EXPECT_GT(json["states"], 50);
}

TEST_F(Cli, TortureIsCleanAndTheSameTwice) {
  const Outcome first = run("torture --seeds 1..20 --jobs 1 --json -");
  const Outcome second = run("torture --seeds 1..20 --jobs 2 --json -");
  ASSERT_EQ(first.status, 0) << first.err;
  auto a = nlohmann::json::parse(first.out), b = nlohmann::json::parse(second.out);
  a.erase("wall_s");
  b.erase("wall_s");
  EXPECT_EQ(a, b);
  EXPECT_EQ(a["verdict"], "clean");
  EXPECT_GT(a["resets"].get<int>(), 0);
}

TEST_F(Cli, TortureTellsHowToSeeAViolationAgain) {
  const Outcome outcome = run("torture --seeds 1..100 --without initialise");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_NE(outcome.out.find("joins as slot"), std::string::npos) << "the story";
  EXPECT_NE(outcome.out.find("again: declock torture --seeds "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(" --without initialise"), std::string::npos);
  EXPECT_EQ(run("torture --seeds 1..500 --without gap").status, 4);
}

TEST_F(Cli, BenchSurvivesAKill) {
  const Outcome outcome =
      run("bench micro --warmup 1ms --cns 2 --clients 4 --locks 100 --lock declock-pf --duration 200ms "
          "--kill cn:1@50ms --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result["violations"], 0);
  EXPECT_LE(result["lost_updates"].get<int>(), 0);
  ASSERT_EQ(result["timeline"].size(), 21u);
  EXPECT_GT(result["timeline"][19].get<int>(), 0);
  EXPECT_EQ(result["config"]["kill"], "cn:1@50ms");
}

TEST_F(Cli, BenchResetMakesATable) {
  const Outcome outcome = run("bench reset --resets 3 --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(rows.size(), 13u);
  for (const auto& row : rows) EXPECT_LT(row["reset_us"]["p50"].get<double>(), 520) << row.dump();
}

TEST_F(Cli, AnIncompleteSearchIsNotClean) {
  const Outcome outcome = run("explore --program 'w;r;w' --max-states 10 --json -");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_FALSE(nlohmann::json::parse(outcome.out)["complete"]);
}

TEST_F(Cli, ListsTheRulesThatCanBeLeftOut) {
  const Outcome outcome = run("explore --without list");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.out.find("H28"), std::string::npos);
}

TEST_F(Cli, HelpIsThereForEveryCommand) {
  for (const char* command : {"", "bench", "bench micro", "bench reset", "explore", "torture", "nic"}) {
    const Outcome outcome = run(fmt::format("{} --help", command));
    EXPECT_EQ(outcome.status, 0) << command;
    EXPECT_NE(outcome.out.find("--help"), std::string::npos) << command;
  }
  EXPECT_EQ(run("--version").status, 0);
}

TEST_F(Cli, RefusesBadUsageInOneLine) {
  expect_refused("", "commands of 'declock' are doctor");
  expect_refused("frobnicate", "'frobnicate' is no command");
  expect_refused("bench", "micro");
  expect_refused("bench mico", "'mico' is no command");
  expect_refused("bench micro --lokc cql", "--lokc");
  expect_refused("bench micro --lock qcl", "cql|caslock");
  expect_refused("bench micro --fabric smh", "sim|shm");
  expect_refused("bench micro --clients 0", "1 to 1024");
  expect_refused("bench micro --clients -3", "1 to 1024");
  expect_refused("bench micro --clients", "--clients");
  expect_refused("bench micro --clients 1e9", "1 to 1024");
  expect_refused("bench micro --clients 010", "1 to 1024");
  expect_refused("bench micro --lock ideal --cns 1024 --clients 1024", "65535");
  expect_refused("bench micro --cn-latency 4", "1x to 1000x");
  expect_refused("bench micro --slack -1us", "100ms");
  expect_refused("bench micro --release-read never", "adaptive|always");
  expect_refused("bench micro --cns 0", "1 to 1024");
  expect_refused("bench micro --lock cql --cns 100 --clients 100", "1024");
  expect_refused("bench micro --locks 1000000000000", "100000000");
  expect_refused("bench micro --locks 0", "1 to 100000000");
  expect_refused("bench micro --zipf -1", "0 to 10");
  expect_refused("bench micro --zipf nan", "0 to 10");
  expect_refused("bench micro --read-ratio 1.5", "0 to 1");
  expect_refused("bench micro --duration 5", "100ms");
  expect_refused("bench micro --duration 0s", "out of range");
  expect_refused("bench micro --object-size 0", "8 to");
  expect_refused("bench micro --slots 3", "--slots");
  expect_refused("bench micro --workers 64", "--workers");
  expect_refused("bench micro --seed -1", "whole number");
  expect_refused("bench micro extra", "extra");
  expect_refused("explore --layout star", "owner|ring");
  expect_refused("explore --slots 2", "--slots");
  expect_refused("explore --program 'w;z'", "'z'");
  expect_refused("explore --without H99", "H99");
  expect_refused("explore --lock dslr --without H28", "--lock cql");
  expect_refused("explore --max-states 0", "1 to");
  expect_refused("explore --jobs 0", "1 to");
}

TEST_F(Cli, RefusesFaultsThatMakeNoSense) {
  expect_refused("torture --seeds 5..1", "1..1000");
  expect_refused("torture --seeds x", "1..1000");
  expect_refused("torture --without nothing", "fence");
  expect_refused("torture --jobs 0", "1 to 256");
  expect_refused(kQuick + "--lock cql --kill cn:1@1ms", "declock- locks");
  expect_refused(kQuick + "--lock declock-pf --kill cn:2@1ms", "there are 2");
  expect_refused(kQuick + "--lock declock-pf --kill cn:1@1s", "--duration");
  expect_refused(kQuick + "--lock declock-pf --kill 1", "cn:N@TIME");
  for (const char* mishap :
       {"faults", "resets", "breaks", "restarts", "losses", "repeats", "joins", "heirs"}) {
    expect_refused(std::string{"explore --lock dslr --"} + mishap + " 1", "declock- locks");
  }
  expect_refused("explore --lock cql --at-once", "--at-once is for");
  expect_refused("explore --program 'w;w' --at-once --breaks 1", "--at-once is for");
  expect_refused("explore --program 'w;w' --joins 2", "--joins 2 is too many");
  expect_refused("explore --program 'w;w' --heirs 2", "--heirs 2 is too many");
  expect_refused("explore --program 'w;w;w' --joins 1 --heirs 1", "one of them");
  expect_refused("explore --program W --lock cql", "declock- locks");
}

TEST_F(Cli, RefusesABadNicFileInOneLine) {
  const std::string nic = folder_ / "nic.json";
  expect_refused(kQuick + "--nic " + nic, "cx4-100g");
  auto json = nlohmann::json::parse(run("nic").out);
  json["one_way_ns"] = 1000;
  std::ofstream(nic) << json.dump();
  EXPECT_EQ(run(kQuick + "--nic " + nic).status, 0);
  json.erase("atomic_ns");
  std::ofstream(nic) << json.dump();
  expect_refused(kQuick + "--nic " + nic, "'atomic_ns' is missing");
  std::ofstream(nic) << "not json";
  expect_refused(kQuick + "--nic " + nic, "not a JSON object");
  expect_refused(kQuick + "--nic " + folder_.string(), "not a JSON object");
}

TEST_F(Cli, AResultThatCannotBeWrittenLosesNothing) {
  const std::string result = folder_ / "result.json";
  std::ofstream(result) << "old";
  expect_refused(kQuick + "--json " + (folder_ / "no/such/folder.json").string(), "cannot be written");
  expect_refused(kQuick + "--json " + folder_.string(), "directory");
  expect_refused(kQuick + "--zipf -1 --json " + result, "--zipf");
  EXPECT_EQ(slurp(result), "old");
  const Outcome full = run(kQuick + "--json /dev/full");
  EXPECT_EQ(full.status, 2);
  EXPECT_NE(full.err.find("No space left"), std::string::npos) << full.err;
  EXPECT_EQ(run(kQuick + "--json " + result).status, 0);
  EXPECT_EQ(nlohmann::json::parse(slurp(result))["lock"], "cql");
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

TEST_F(Cli, CtrlCEndsABenchmarkAtOnceAndLeavesNoFile) {
  const std::string result = folder_ / "result.json", err = folder_ / "err";
  const pid_t child = ::fork();
  if (child == 0) {
    std::freopen(err.c_str(), "w", stderr);
    std::freopen("/dev/null", "w", stdout);
    ::execl(DECLOCK_PROGRAM, DECLOCK_PROGRAM, "bench", "micro", "--duration", "3600s", "--json",
            result.c_str(), nullptr);
    ::_exit(127);
  }
  const auto files = [&] {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator{});
  };
  ASSERT_TRUE(soon([&] { return files() >= 2; }));  // it has opened its result
  ::kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_NE(slurp(err).find("interrupted"), std::string::npos);
  EXPECT_EQ(files(), 1) << "only the errors are left";
}

}  // namespace
}  // namespace declock
