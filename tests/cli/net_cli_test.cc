// The commands that run over a network.
#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/runner.h"
#include "process/programs.h"
#include "support/soon.h"

namespace declock {
namespace {

using process::Program;

class NetCli : public CliTest {
 protected:
  std::string secret() {
    const std::string path = folder_ / "secret";
    if (!fs::exists(path)) {
      EXPECT_EQ(run("secret " + path).status, 0);
    }
    return path;
  }
};

TEST_F(NetCli, TheMicrobenchmarkRunsOverTcp) {
  const Outcome outcome =
      run("bench micro --fabric tcp --lock declock-slack --cns 4 --clients 2 --locks 20 --lease 30s "
          "--duration 500ms --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["fabric"], "tcp");
  EXPECT_EQ(json["lost_updates"], 0);
  EXPECT_EQ(json["violations"], 0);
  EXPECT_GT(json["ops"], 0);
  EXPECT_LE(json["mn_ops_per_acquire_max"], 2);
  EXPECT_EQ(json["resets"], 0);
}

TEST_F(NetCli, AKilledComputeNodeOverTcpCostsTheOthersAMoment) {
  const Outcome outcome =
      run("bench micro --fabric tcp --lock declock-pf --cns 4 --clients 2 --locks 10 --duration 1s "
          "--lease 3s --kill cn:1@500ms --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_LE(json["lost_updates"], 0);
  EXPECT_EQ(json["violations"], 0);
  EXPECT_GT(json["resets"], 0);
}

TEST_F(NetCli, RecoveryOverTcpTakesTheLeaseAndALittle) {
  const Outcome outcome = run("bench reset --fabric tcp --resets 2 --lease 3s --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_GT(json["recovery_ms"]["p50"], 1500) << "nobody may go before the lease is over";
}

TEST_F(NetCli, BadInputGetsOneLineThatSaysWhatIsAccepted) {
  expect_refused("bench micro --fabric udp", "sim|shm|tcp|verbs");
  expect_refused("bench micro --fabric tcp --lock shiftlock", "masked compare-and-swap");
  expect_refused("bench micro --fabric tcp --lock ideal", "--fabric sim");
  expect_refused("bench micro --fabric tcp --namespaces a", "mn,cn1,cn2");
  expect_refused("bench micro --fabric tcp --lock declock-pf --kill mn:0@1s", "cn:N@TIME");
  expect_refused("mn", "--secret");
  expect_refused("mn --secret /nonexistent", "declock secret");
  expect_refused("mn --listen somewhere --secret " + secret(), "HOST:PORT");
  expect_refused("mn --listen 0.0.0.0:0 --secret " + secret(), "one address");
  expect_refused("mn --size 1MB --secret " + secret(), "MiB");
  expect_refused("mn --size 1KiB --secret " + secret(), "4KiB");
  expect_refused("mn --id 1 --secret " + secret(), "--coordinator");
  expect_refused("mn --id 64 --secret " + secret(), "63");
  expect_refused("mn --lease 1 --secret " + secret(), "duration");
  expect_refused("mn --coordinator 127.0.0.1:1 --state /tmp/x --id 1 --secret " + secret(), "--state");
  expect_refused("lock", "NAME");
  expect_refused("lock a --coordinator here --secret " + secret(), "HOST:PORT");
  expect_refused("secret " + secret(), "exists");
}

TEST_F(NetCli, ASecretThatOthersMayReadIsRefused) {
  fs::permissions(secret(), fs::perms::owner_read | fs::perms::others_read);
  expect_refused("mn --secret " + secret(), "chmod 600");
}

TEST_F(NetCli, ATakenPortIsSaidInClearWords) {
  Program mn{
      {DECLOCK_PROGRAM, "mn", "--listen", "127.0.0.1:0", "--size", "1MiB", "--secret", secret()}};
  ASSERT_TRUE(mn.says("serves")) << mn.output();
  const std::size_t at = mn.output().find("127.0.0.1:");
  const std::string address = mn.output().substr(at, mn.output().find(' ', at) - at);
  const Outcome outcome = run("mn --listen " + address + " --size 1MiB --secret " + secret());
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("is taken"), std::string::npos) << outcome.err;
  // A second one with the same number has no place in the cluster.
  const Outcome twin = run("mn --listen 127.0.0.1:0 --size 1MiB --id 0 --coordinator " + address +
                           " --secret " + secret());
  EXPECT_EQ(twin.status, 2);
  EXPECT_NE(twin.err.find("is here already"), std::string::npos) << twin.err;
  mn.send(SIGTERM);
  EXPECT_EQ(mn.wait(), 0);
}

// Where it lay something else lies then.
TEST_F(NetCli, ALockIsLookedUpAgainWhenItsMemoryNodeHasRestarted) {
  const auto start = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{DECLOCK_PROGRAM, "mn",       "--listen", "127.0.0.1:0", "--size",
                                       "1MiB",          "--secret", secret(),   "--lease",     "20s"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto mn = std::make_unique<Program>(arguments);
    EXPECT_TRUE(mn->says("serves")) << mn->output();
    return mn;
  };
  const auto first = start({});
  const std::size_t at = first->output().find("127.0.0.1:");
  const std::string address = first->output().substr(at, first->output().find(' ', at) - at);
  auto second = start({"--id", "1", "--coordinator", address});
  const auto use = [&](const std::string& lock, std::vector<std::string> command) {
    std::vector<std::string> arguments{DECLOCK_PROGRAM, "lock",  lock,       "--mn",   "1",
                                       "--coordinator", address, "--secret", secret(), "--"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    return std::make_unique<Program>(arguments);
  };
  const auto requests = [&](const std::string& lock) {
    const Outcome outcome =
        run(fmt::format("inspect 'tcp://{}?secret={}' {} --json -", address, secret(), lock));
    if (outcome.status != 0) return -1;
    const auto header = nlohmann::json::parse(outcome.out)["header"];
    return header["ticket"].get<int>() + header["qsize"].get<int>();
  };
  const auto has_requests = [&](const std::string& lock, int count) {
    return soon([&] { return requests(lock) == count; });
  };
  const auto holder = use("mine", {"sleep", "100"});
  ASSERT_TRUE(has_requests("mine", 1)) << holder->output();
  const auto waiter = use("mine", {"echo", "has it"});
  ASSERT_TRUE(has_requests("mine", 2)) << waiter->output();
  waiter->send(SIGSTOP);
  second->send(SIGKILL);
  (void)second->wait();
  second = start({"--id", "1", "--coordinator", address});
  EXPECT_EQ(use("other", {"true"})->wait(), 0);
  waiter->send(SIGCONT);
  EXPECT_EQ(waiter->wait(), 0) << waiter->output();
  EXPECT_TRUE(waiter->says("has it"));
  EXPECT_EQ(requests("other"), 1);
  EXPECT_EQ(requests("mine"), 1);
}

TEST_F(NetCli, ALockOfAClusterProtectsACommand) {
  Program mn{{DECLOCK_PROGRAM, "mn", "--listen", "127.0.0.1:0", "--size", "1MiB", "--secret", secret(),
              "--lease", "3s"}};
  ASSERT_TRUE(mn.says("serves")) << mn.output();
  const std::size_t at = mn.output().find("127.0.0.1:");
  const std::string cluster =
      fmt::format(" --coordinator {} --secret {} ",
                  mn.output().substr(at, mn.output().find(' ', at) - at), secret());
  const std::string counter = folder_ / "counter";
  std::ofstream{counter} << 0;
  // Read, wait, write: without the lock most of these would be lost.
  const std::string add = fmt::format("n=$(cat {0}); sleep 0.02; echo $((n + 1)) > {0}", counter);
  std::vector<std::unique_ptr<Program>> others;
  for (int i = 0; i < 3; ++i) {
    std::vector<std::string> arguments{DECLOCK_PROGRAM,
                                       "lock",
                                       "jobs",
                                       "--times",
                                       "5",
                                       "--coordinator",
                                       mn.output().substr(at, mn.output().find(' ', at) - at),
                                       "--secret",
                                       secret(),
                                       "--",
                                       "sh",
                                       "-c",
                                       add};
    others.push_back(std::make_unique<Program>(arguments));
  }
  for (auto& other : others) EXPECT_EQ(other->wait(), 0) << other->output();
  EXPECT_EQ(slurp(counter), "15\n");
  EXPECT_EQ(run("lock jobs" + cluster + "-- sh -c 'exit 7'").status, 7);
  EXPECT_EQ(run("lock jobs" + cluster + "-- printf '%s|' '[1,2]' '[]' -- --times").out,
            "[1,2]|[]|--|--times|");
  expect_refused("lock " + std::string(201, 'x') + cluster, "1 to 200 bytes");
  // The command ends with whoever holds the lock for it.
  for (const int signal : {SIGTERM, SIGKILL}) {
    const std::string running = folder_ / fmt::format("running-{}", signal);
    Program holder{
        {DECLOCK_PROGRAM, "lock", "jobs", "--coordinator",
         mn.output().substr(at, mn.output().find(' ', at) - at), "--secret", secret(), "--", "sh", "-c",
         fmt::format("echo $$ > {}.new; mv {}.new {}; exec sleep 100", running, running, running)}};
    ASSERT_TRUE(soon([&] { return fs::exists(running); })) << holder.output();
    holder.send(signal);
    EXPECT_NE(holder.wait(), 0);
    const int command = std::stoi(slurp(running));
    EXPECT_TRUE(soon([&] { return slurp(fmt::format("/proc/{}/cmdline", command)).empty(); }));
  }
  const Outcome missing = run("lock jobs" + cluster + "-- /no/such/program");
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("/no/such/program"), std::string::npos);
  const Outcome timed = run("lock jobs --times 10 --shared" + cluster);
  EXPECT_EQ(timed.status, 0) << timed.err;
  EXPECT_NE(timed.out.find("10 times"), std::string::npos);
  EXPECT_NE(run("lock jobs --mn 5" + cluster).err.find("memory node 5"), std::string::npos);
}

}  // namespace
}  // namespace declock
