// Opening and closing clusters, names, tables, memory, stats, traces.
#include "declock/cluster.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <shared_mutex>
#include <thread>

#include "api/support.h"
#include "client/seeing.h"
#include "process/programs.h"
#include "shm/cluster.h"

namespace declock::api {
namespace {

using namespace std::chrono_literals;

std::string error_of(const std::string& uri) {
  const auto opened = Cluster::open(uri);
  return opened ? "opened" : opened.error().message;
}

TEST(Uri, WhatIsWrongIsSaidAndWhatIsAccepted) {
  const std::string fresh = fresh_uri();
  for (const auto& [uri, said] : std::initializer_list<std::pair<std::string, const char*>>{
           {"", "accepted: shm:NAME"},
           {"smh:x", "accepted: shm:NAME"},
           {"tcp:x", "tcp://HOST:PORT"},
           {"shm:", "is no name for a cluster"},
           {"shm:a/b", "is no name for a cluster"},
           {"shm:x?", "'' is no option here"},
           {"shm:x?member=3", "'member' is no option here; accepted: fairness, slack, gate, workers"},
           {"shm:x?members=0", "members: '0' is not a whole number from 1 to 1024"},
           {"shm:x?members=2000", "from 1 to 1024"},
           {"shm:x?members=", "is not a whole number"},
           {"shm:x?members", "'members' has no value"},
           {"shm:x?size=12", "is less than 4KiB"},
           {"shm:x?size=big", "size:"},
           {"shm:x?fairness=fair", "task-fair, phase-fair, slack or token"},
           {"shm:x?slack=1h", "slack:"},
           {"shm:x?gate=0", "gate: '0' is not a whole number from 1 to 65535"},
           {"shm:x?gate=65536", "gate: '65536' is not a whole number from 1 to 65535"},
           {"shm:x?create=maybe", "is not yes or no"},
           {"shm:x?secret=f", "'secret' is no option here"},
           {"shm:x?dir=/nowhere&create=no", "/nowhere"},
           {"shm:api-test-not-there?create=no", "there is no such file"},
           {"shm:x?trace=/nowhere/t.json", "/nowhere/t.json"},
           {fresh + "&metrics=nonsense", "nonsense"},
           {"tcp://", "a HOST:PORT is missing"},
           {"tcp://127.0.0.1:1", "secret is missing; say where it is: ?secret=FILE"},
           {"tcp://127.0.0.1:1?secret=/nowhere", "/nowhere"},
           {"tcp://127.0.0.1:1?members=4&secret=/nowhere", "'members' is no option here"},
           {"tcp://127.0.0.1:1?device=x&secret=/nowhere", "'device' is no option here"}}) {
    EXPECT_NE(error_of(uri).find(said), std::string::npos) << uri << ": " << error_of(uri);
  }
}

TEST(ClusterTest, AnotherSizeThanAskedForIsAnError) {
  const std::string uri = fresh_uri();
  const Cluster cluster = open(uri + "&members=4&size=1MiB");
  EXPECT_EQ(cluster.lock_bytes(), 16 + 4 * 8);
  EXPECT_NE(error_of(uri + "&members=5").find("asked for were"), std::string::npos);
  EXPECT_NE(error_of(uri + "&size=2MiB").find("asked for were"), std::string::npos);
  EXPECT_EQ(open(uri).lock_bytes(), 16 + 4 * 8);  // as it is
}

TEST(ClusterTest, OneThatHasNoRoomIsNotInTheWayOfASmallerOne) {
  const std::string uri = fresh_uri();
  Child with_little_room{[&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit little{1 << 20, 1 << 20};  // a file's size
    if (setrlimit(RLIMIT_FSIZE, &little) != 0) return 1;
    if (Cluster::open(uri + "&members=4&size=16MiB")) return 2;
    return Cluster::open(uri + "&members=4&size=64KiB") ? 0 : 3;
  }};
  EXPECT_EQ(with_little_room.wait(), 0);
}

TEST(ClusterTest, SizesThatNothingHasAreRefused) {
  Options many;
  many.members = 5000;
  Options large;
  large.size = ~std::uint64_t{0};
  for (const Options& options : {many, large}) {
    const auto opened = Cluster::open(fresh_uri(), options);
    ASSERT_FALSE(opened);
    EXPECT_NE(opened.error().message.find("at most 1024"), std::string::npos) << opened.error().message;
  }
}

TEST(ClusterTest, WhoseLocksAreOfAnotherKindIsRefused) {
  for (const char* first : {"token", "slack"}) {
    const bool token = std::string{first} == "token";
    const std::string uri = fresh_uri();
    Cluster cluster = open(uri + "&fairness=" + first);
    EXPECT_TRUE(Cluster::open(uri + "&fairness=" + (token ? "token&gate=3" : "task-fair")));
    const auto refused = Cluster::open(uri + "&fairness=" + (token ? "phase-fair" : "token"));
    ASSERT_FALSE(refused);
    const std::string said = std::string{"others use its locks "} + (token ? "with" : "without");
    EXPECT_NE(refused.error().message.find(said), std::string::npos) << refused.error().message;
    EXPECT_TRUE(client::open_to_look(uri, {})) << "whoever takes no locks may look at them";
  }
  Options options;
  options.gate = 0;
  const auto closed = Cluster::open(fresh_uri(), options);
  ASSERT_FALSE(closed);
  EXPECT_NE(closed.error().message.find("gate: '0'"), std::string::npos) << closed.error().message;
}

TEST(ClusterTest, TheMemberAfterTheLastIsRefused) {
  const std::string uri = fresh_uri("&members=2");
  const Cluster one = open(uri);
  const Cluster two = open(uri);
  EXPECT_NE(error_of(uri).find("all 2 member slots are taken"), std::string::npos);
}

TEST(ClusterTest, ItsFilesGoWithItsLastMember) {
  const std::string uri = fresh_uri();
  const std::string name = uri.substr(4, uri.find('?') - 4);
  {
    Cluster cluster = open(uri);
    EXPECT_EQ(error_of("shm:" + name + "?create=no"), "opened");
    EXPECT_TRUE(cluster.close());
  }
  EXPECT_NE(error_of("shm:" + name + "?create=no").find("there is no such file"), std::string::npos);
}

TEST(ClusterTest, ANameIsTheSameForEverybody) {
  const std::string uri = fresh_uri();
  Cluster one = open(uri);
  Cluster two = open(uri);
  EXPECT_EQ(*one.named_lock("orders/42"), *two.named_lock("orders/42"));
  EXPECT_NE(one.named_lock("orders/42")->at, two.named_lock("orders/43")->at);
  EXPECT_EQ(*one.allocate("a", 64), *two.allocate("a", 64));
  EXPECT_NE(*one.allocate("a", 64), *two.allocate("b", 64));
  const LockTable table = *one.lock_table("orders", 10);
  EXPECT_EQ(table.size(), 10);
  EXPECT_EQ(table[3].at, (*two.lock_table("orders", 10))[3].at);
  EXPECT_EQ(table[1].at.offset - table[0].at.offset, one.lock_bytes());
}

TEST(ClusterTest, NamesOfAnotherSizeAndBadOnesAreErrors) {
  Cluster cluster = open(fresh_uri("&size=1MiB"));
  ASSERT_TRUE(cluster.lock_table("t", 10));
  EXPECT_NE(cluster.lock_table("t", 11).error().message.find("is there already"), std::string::npos);
  EXPECT_EQ(cluster.lock_table("t", 0).error().code, Errc::invalid_argument);
  EXPECT_EQ(cluster.named_lock("").error().code, Errc::invalid_argument);
  EXPECT_EQ(cluster.named_lock(std::string(201, 'x')).error().code, Errc::invalid_argument);
  EXPECT_TRUE(cluster.named_lock(std::string(200, 'x')));
  EXPECT_EQ(cluster.allocate("odd", 7).error().code, Errc::invalid_argument);
  EXPECT_EQ(cluster.allocate("none", 0).error().code, Errc::invalid_argument);
  const auto large = cluster.allocate("large", std::uint64_t{1} << 60);
  EXPECT_EQ(large.error().code, Errc::unavailable);
  EXPECT_NE(large.error().message.find("make a larger cluster"), std::string::npos);
  EXPECT_FALSE(cluster.lock_table("large", ~std::uint64_t{0}));
  EXPECT_NE(cluster.named_lock("x", MnId{1}).error().message.find("memory node 1"), std::string::npos);
}

TEST(ClusterTest, NamesUntilThereIsNoRoomAndAllOfThemAreFoundAgain) {
  const std::string uri = fresh_uri("&size=64KiB&members=2&publish=no");
  Cluster cluster = open(uri);
  std::set<std::uint64_t> offsets;
  int made = 0;
  for (;; ++made) {
    const auto lock = cluster.named_lock("lock-" + std::to_string(made));
    if (!lock) {
      EXPECT_EQ(lock.error().code, Errc::unavailable);
      break;
    }
    EXPECT_TRUE(offsets.insert(lock->at.offset).second);
  }
  EXPECT_GT(made, 200);
  Cluster other = open(uri);
  for (int i = 0; i < made; ++i) {
    const auto found = other.named_lock("lock-" + std::to_string(i));
    ASSERT_TRUE(found);
    EXPECT_EQ(offsets.count(found->at.offset), 1);
  }
}

// Many processes ask for the same names at once; one of each is made.
TEST(ClusterTest, OfSeveralWhoMakeANameOneMakesIt) {
  const std::string uri = fresh_uri("&publish=no");
  const Cluster keeper = open(uri);
  std::vector<std::jthread> threads;
  std::array<std::array<std::uint64_t, 100>, 4> offsets{};
  for (auto& mine : offsets) {
    threads.emplace_back([&] {
      Cluster cluster = open(uri);
      for (std::size_t i = 0; i < mine.size(); ++i) {
        mine[i] = cluster.named_lock("n" + std::to_string(i))->at.offset;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(offsets[0], offsets[1]);
  EXPECT_EQ(offsets[0], offsets[2]);
  EXPECT_EQ(offsets[0], offsets[3]);
}

TEST(ClusterTest, EverythingEndsWithClosedOnceItIs) {
  Cluster cluster = open(fresh_uri());
  const RemoteAddr at = *cluster.allocate("a", 8);
  EXPECT_TRUE(cluster.close());
  std::uint64_t word = 0;
  EXPECT_EQ(cluster.read(at, {&word, 1}).error(), Errc::closed);
  EXPECT_EQ(cluster.write(at, {&word, 1}).error(), Errc::closed);
  EXPECT_EQ(cluster.named_lock("x").error().code, Errc::closed);
  EXPECT_EQ(cluster.lock_table("x", 1).error().code, Errc::closed);
  EXPECT_EQ(cluster.client().error().code, Errc::closed);
  EXPECT_EQ(cluster.serve_metrics("127.0.0.1:0").error().code, Errc::closed);
  EXPECT_TRUE(cluster.stats().tables.empty());
  EXPECT_FALSE(cluster.evicted());
}

TEST(ClusterTest, ACopyIsTheSameMembership) {
  Cluster one = open(fresh_uri());
  {
    const Cluster two = one;
    EXPECT_EQ(two.stats().members, one.stats().members);
  }
  EXPECT_TRUE(one.named_lock("still open"));
}

TEST(ClusterTest, StatsCountWhatWasDone) {
  Cluster cluster = open(fresh_uri());
  SharedMutex named = cluster.shared_mutex("named");
  const LockTable table = *cluster.lock_table("orders", 4);
  SharedMutex of_table = cluster.shared_mutex(table[1]);
  SharedMutex embedded = cluster.shared_mutex(LockRef{*cluster.allocate("object", 1024)});
  for (int i = 0; i < 1600; ++i) {
    const std::unique_lock a{named};
    const std::shared_lock b{of_table};
  }
  {
    const std::unique_lock c{embedded};
    std::jthread{[&] {
      EXPECT_FALSE(embedded.try_lock());
      EXPECT_FALSE(embedded.try_lock_for(1ms));
    }}.join();
  }
  const Stats stats = cluster.stats();
  ASSERT_EQ(stats.tables.size(), 3);
  EXPECT_EQ(stats.tables[0].table, "(embedded)");
  EXPECT_EQ(stats.tables[0].acquired_exclusive, 1);
  EXPECT_EQ(stats.tables[0].busy, 1);
  EXPECT_EQ(stats.tables[0].timed_out, 1);
  EXPECT_EQ(stats.tables[1].table, "(names)");
  EXPECT_EQ(stats.tables[1].acquired_exclusive, 1600);
  EXPECT_EQ(stats.tables[2].table, "orders");
  EXPECT_EQ(stats.tables[2].acquired_shared, 1600);
  // One in 64 is timed, on the average, and counts 64 times.
  EXPECT_NEAR(static_cast<double>(stats.tables[1].wait.count() + stats.tables[2].wait.count()), 3200,
              1600);
  EXPECT_GT(stats.tables[1].hold.sum_ns, 0);
  std::uint64_t acquiring = 0;
  for (const auto& operations : stats.operations) {
    if (operations.kind == "fetch_add" && operations.purpose == "acquire")
      acquiring += operations.count;
  }
  EXPECT_GE(acquiring, 3201);
  EXPECT_EQ(stats.members, 1);
}

TEST(ClusterTest, AReportOfEveryMemberIsOnTheBoardAndLocksAreFoundByWhatItSays) {
  const std::string uri = fresh_uri();
  Cluster one = open(uri);
  Cluster two = open(uri);
  SharedMutex mutex = one.shared_mutex("orders/42");
  const LockTable table = *one.lock_table("table", 10);
  SharedMutex other = one.shared_mutex(table[7]);
  for (int i = 0; i < 100; ++i) {
    const std::unique_lock lock{mutex};
    const std::shared_lock shared{other};
  }
  std::vector<client::Report> reports;
  ASSERT_TRUE(soon([&] {
    reports = *client::read_reports(two);
    return reports.size() == 2 && reports[0].acquired_exclusive == 100 &&
           reports[0].acquired_shared == 100;
  }));
  EXPECT_EQ(reports[0].pid, static_cast<std::uint64_t>(getpid()));
  std::set<std::string> names{reports[0].hot[0].name(), reports[0].hot[1].name()};
  EXPECT_EQ(names, (std::set<std::string>{"orders/42", "table[7]"}));
  EXPECT_EQ(client::find_lock(two, "orders/42")->at, mutex.ref().at);
  EXPECT_EQ(client::find_lock(two, "table[7]")->at, table[7].at);
  EXPECT_EQ(client::find_lock(two, "mn0+0x1000")->at, (RemoteAddr{MnId{0}, 0x1000}));
  EXPECT_NE(client::find_lock(two, "table[10]").error().message.find("has 10 locks"),
            std::string::npos);
  EXPECT_NE(client::find_lock(two, "nobody").error().message.find("TABLE[INDEX]"), std::string::npos);
}

// Making a large memory takes a while, or whoever made it was killed.
TEST(ClusterTest, AClusterWhoseMemoryIsNotMadeYetIsOpenedAsItIs) {
  const process::TemporaryDirectory directory;
  shm::ClusterConfig config;
  config.name = "x";
  config.directory = directory / ".";
  config.members = 64;
  config.mn_bytes = 1 << 20;
  ASSERT_TRUE(shm::Cluster::open_or_create_members(config));
  Cluster cluster = open("shm:x?remove=yes&dir=" + (directory / "."));
  EXPECT_EQ(cluster.lock_bytes(), (64 + 2) * 8);
  SharedMutex mutex = cluster.shared_mutex("m");
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

TEST(ClusterTest, ATraceIsJsonWhateverALockIsCalled) {
  const process::TemporaryDirectory directory;
  const std::string path = directory / "trace";
  // A surrogate, an overlong form, more than there is, nothing at all; the last is well formed.
  const std::vector<std::string> names{"\xED\xA0\x80", "\xC0\xAF", "\xF4\x90\x80\x80", "\xFF",
                                       "\xC3\xA4"};
  {
    Cluster cluster = open(fresh_uri("&trace=" + path));
    for (const std::string& name : names) {
      SharedMutex mutex = cluster.shared_mutex(name);
      const std::unique_lock lock{mutex};
    }
    ASSERT_TRUE(cluster.close());
  }
  std::ifstream file{path};
  const auto trace = nlohmann::json::parse(file);
  std::vector<std::string> held;
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "hold") held.push_back(event["args"]["lock"]);
  }
  ASSERT_EQ(held.size(), names.size());
  EXPECT_EQ(held.back(), names.back());
}

TEST(ClusterTest, ATraceHasEveryWaitHoldAndRelease) {
  const std::string path = "/tmp/declock-trace-" + std::to_string(getpid()) + ".json";
  {
    Cluster cluster = open(fresh_uri("&trace=" + path));
    SharedMutex mutex = cluster.shared_mutex("orders/\"42\"");
    std::jthread other{[&] {
      for (int i = 0; i < 10; ++i) {
        const std::unique_lock lock{mutex};
        std::this_thread::sleep_for(100us);
      }
    }};
    for (int i = 0; i < 10; ++i) {
      const std::unique_lock lock{mutex};
      std::this_thread::sleep_for(100us);
    }
    other.join();
    ASSERT_TRUE(cluster.close());
  }
  std::ifstream file{path};
  const auto trace = nlohmann::json::parse(file);
  std::map<std::string, int> seen;
  std::map<int, std::vector<std::pair<double, double>>> tracks;  // what happened on each: from, to
  std::set<std::pair<std::uint64_t, std::uint64_t>> holds;
  for (const auto& event : trace["traceEvents"]) {
    seen[event["name"]] += 1;
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["dur"].get<double>(), 0);
    EXPECT_EQ(event["args"]["lock"], "orders/\"42\"");
    EXPECT_EQ(event["args"]["mode"], "exclusive");
    const double from = event["ts"].get<double>();
    tracks[event["tid"].get<int>()].emplace_back(from, from + event["dur"].get<double>());
    if (event["name"] == "hold")
      holds.emplace(event["args"]["ticket"].get<std::uint64_t>(),
                    event["args"]["sequence"].get<std::uint64_t>());
  }
  EXPECT_EQ(seen["wait"], 20);
  EXPECT_EQ(seen["hold"], 20);
  EXPECT_EQ(seen["release"], 20);
  EXPECT_EQ(holds.size(), 20);  // every hold is another one
  for (auto& [track, spans] : tracks) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
      EXPECT_LE(spans[i - 1].second, spans[i].first + 0.001);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace declock::api
