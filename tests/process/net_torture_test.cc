// Real processes on real locks over TCP: killed, stopped beyond their lease, and their memory node restarted under load.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "base/prng.h"
#include "member_net/net_node.h"
#include "networks/networks.h"
#include "process/control.h"
#include "process/programs.h"

namespace declock::process {
namespace {

// Against hanging; recovery takes the lease and some milliseconds.
constexpr Duration kPatience = seconds(60);
constexpr std::size_t kProcesses = 4;

// The memory nodes are the real program. The locks are on memory node 0, which coordinates, or on memory node 1.
class NetTorture : public testing::Test {
 protected:
  NetTorture() : control_(Control::map(directory_ / "control")) {
    EXPECT_TRUE(wire::create_secret(directory_ / "secret"));
    processes_.resize(kProcesses);
  }

  std::unique_ptr<Program> start_mn(int id, const std::string& listen = "127.0.0.1:0") {
    std::vector<std::string> arguments{DECLOCK_PROGRAM, "mn",     "--listen", listen,
                                       "--size",        "1MiB",   "--secret", directory_ / "secret",
                                       "--id",          std::to_string(id)};
    if (id == 0) {
      for (const char* more : {"--members", "8", "--endpoints", "2", "--lease", "300ms", "--state"})
        arguments.emplace_back(more);
      arguments.push_back(directory_ / "state");
    } else {
      arguments.insert(arguments.end(), {"--coordinator", "127.0.0.1:" + port_});
    }
    auto mn = std::make_unique<Program>(arguments);
    EXPECT_TRUE(mn->says(" serves, incarnation ")) << mn->output();
    if (id == 0) port_ = port_of(mn->output());
    running_mn_ = mn.get();
    return mn;
  }
  static std::string port_of(const std::string& output) {
    const std::string before = "listens at 127.0.0.1:";
    const std::size_t at = output.find(before) + before.size();
    return output.substr(at, output.find(' ', at) - at);
  }

  void start(std::size_t i, int mn) {
    processes_[i] = std::make_unique<Program>(std::vector<std::string>{
        DECLOCK_PROCESS_CN, fmt::format("tcp:127.0.0.1:{}:{}:{}", port_, mn, directory_ / "secret"),
        directory_ / "control", std::to_string(i), std::to_string(++started_)});
  }

  // Everybody but `except` gets a lock again.
  void expect_progress(std::size_t except) {
    std::vector<std::uint64_t> before;
    for (const Station& station : control_.stations) before.push_back(station.operations.load());
    const Time latest = monotonic_now() + kPatience;
    for (std::size_t i = 0; i < kProcesses; ++i) {
      if (i == except) continue;
      while (control_.stations[i].operations.load() == before[i]) {
        ASSERT_LT(monotonic_now().ns, latest.ns)
            << "process " << i << " waits for ever: " << processes_[i]->output() << "\n"
            << mn_log();
        usleep(500);
      }
    }
  }

  std::string mn_log() {
    const std::string all = running_mn_ == nullptr ? "" : running_mn_->output();
    return all.substr(all.size() - std::min<std::size_t>(all.size(), 2000));
  }

  void stop_all() {
    control_.stop.store(true);
    for (auto& process : processes_) EXPECT_EQ(process->wait(kPatience), 0) << process->output();
  }

  // What the memory says in the end, read as any compute node would.
  std::vector<std::uint64_t> counters(int mn, std::uint32_t& incarnation) {
    member::NetNodeConfig config;
    config.coordinator = *wire::parse_host_port("127.0.0.1:" + port_);
    config.secret = *wire::read_secret(directory_ / "secret");
    config.transport = [](const std::string& host) {
      return net::open_transport({net::Network::tcp}, host);
    };
    auto node = member::NetNode::join(config);
    EXPECT_TRUE(node) << node.error();
    std::vector<std::uint64_t> words(8 * kLocks);
    const RemoteAddr objects{MnId{static_cast<std::uint16_t>(mn)}, kObjects};
    Op read = Op::read(objects, words, Purpose::verify);
    Endpoint& endpoint = (*node)->endpoint(0);
    const Result<void> done = (*node)->worker(0).run([&] { return post_until_known(endpoint, read); });
    EXPECT_TRUE(done);
    incarnation = endpoint.incarnation(objects.mn);
    (*node)->leave();
    std::vector<std::uint64_t> found;
    for (std::uint64_t lock = 0; lock < kLocks; ++lock) found.push_back(words[8 * lock + 1]);
    return found;
  }

  // Nothing that was acknowledged is missing, and nothing is there that nobody was at.
  void expect_updates(int mn, std::uint64_t unacknowledged_max) {
    EXPECT_EQ(control_.violations.load(), 0u);
    EXPECT_EQ(control_.errors.load(), 0u);
    std::uint32_t incarnation = 0;
    const std::vector<std::uint64_t> there = counters(mn, incarnation);
    for (std::uint64_t lock = 0; lock < kLocks; ++lock) {
      const std::uint64_t acknowledged = control_.acknowledged(incarnation, lock);
      EXPECT_GE(there[lock], acknowledged) << "acknowledged updates of lock " << lock << " are lost";
      EXPECT_LE(there[lock], acknowledged + unacknowledged_max) << "of lock " << lock;
      updates_ += acknowledged;
    }
    EXPECT_GT(updates_, 0u);
  }

  TemporaryDirectory directory_;
  Control& control_;
  std::string port_;
  Program* running_mn_ = nullptr;  // the last that was started
  std::vector<std::unique_ptr<Program>> processes_;
  std::uint64_t started_ = 0;
  std::uint64_t updates_ = 0;
};

TEST_F(NetTorture, KilledAndStoppedProcessesCostNoUpdateAndNobodyElseItsLocks) {
  const char* asked = std::getenv("DECLOCK_NET_EVENTS");
  const std::uint64_t events = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 100;
  const auto mn = start_mn(0);
  for (std::size_t i = 0; i < kProcesses; ++i) start(i, 0);
  expect_progress(kProcesses);
  Prng random{1, 0};
  std::uint64_t kills = 0;
  std::uint64_t stops = 0;
  for (std::uint64_t i = 0; i < events && !HasFatalFailure(); ++i) {
    usleep(static_cast<useconds_t>(random.below(20'000)));
    const std::size_t which = random.below(kProcesses);
    if (random.one_in(3)) {
      // Mostly beyond the lease of 300 ms: the others go on without it, and it is told so when it wakes up.
      const std::uint64_t evicted = control_.stations[which].evictions.load();
      const bool beyond = !random.one_in(4);
      processes_[which]->send(SIGSTOP);
      usleep(static_cast<useconds_t>(beyond ? 600'000 : random.below(200'000)));
      if (beyond) expect_progress(which);
      processes_[which]->send(SIGCONT);
      expect_progress(kProcesses);
      if (beyond) {
        EXPECT_GT(control_.stations[which].evictions.load(), evicted) << "it was not told";
      }
      stops += 1;
    } else {
      processes_[which]->send(SIGKILL);
      (void)processes_[which]->wait();
      kills += 1;
      if (random.one_in(2)) expect_progress(which);
      start(which, 0);
      expect_progress(kProcesses);
    }
  }
  stop_all();
  expect_updates(0, (kills + control_.evictions()) * kClients);
  fmt::print("{} kills, {} stops, {} evictions told, {} updates acknowledged, {} mended\n", kills, stops,
             control_.evictions(), updates_, control_.repairs.load());
}

TEST_F(NetTorture, EverybodyGoesOnWithARestartedMemoryNode) {
  const auto coordinator = start_mn(0);
  auto mn = start_mn(1);
  const std::string listen = "127.0.0.1:" + port_of(mn->output());
  for (std::size_t i = 0; i < kProcesses; ++i) start(i, 1);
  expect_progress(kProcesses);
  for (int round = 0; round < 3 && !HasFatalFailure(); ++round) {
    mn->send(SIGKILL);
    (void)mn->wait();
    if (round == 1) usleep(600'000);  // beyond its lease
    mn = start_mn(1, listen);
    expect_progress(kProcesses);
    usleep(100'000);
  }
  stop_all();
  expect_updates(1, control_.evictions() * kClients);
  EXPECT_EQ(control_.evictions(), 0u);
}

TEST_F(NetTorture, ARestartedCoordinatorMakesEverybodyJoinAgain) {
  auto mn = start_mn(0);
  const std::string listen = "127.0.0.1:" + port_of(mn->output());
  for (std::size_t i = 0; i < kProcesses; ++i) start(i, 0);
  expect_progress(kProcesses);
  mn->send(SIGKILL);
  (void)mn->wait();
  mn = start_mn(0, listen);
  expect_progress(kProcesses);
  EXPECT_EQ(control_.evictions(), kProcesses);
  stop_all();
  expect_updates(0, control_.evictions() * kClients);
}

}  // namespace
}  // namespace declock::process
