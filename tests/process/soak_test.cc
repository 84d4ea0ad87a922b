// Steady load for as long as DECLOCK_SOAK_SECONDS says, with a death every ten seconds: what a process needs does not grow,
// and who waits does nothing. The tests can run at the same time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

#include "process/net_cluster.h"
#include "shm/cluster.h"

namespace declock::process {
namespace {

constexpr std::size_t kLoad = 4;  // the first of them lives to the end
constexpr std::size_t kHolder = 4;
constexpr std::size_t kWaiter = 5;
constexpr Duration kBetweenDeaths = seconds(10);

// What was seen at one time.
struct Sample {
  double mn_kib = 0;
  double mn_descriptors = 0;
  double member_kib = 0;
  double member_descriptors = 0;
  double records = 0;
  double waiter_cpu_ms = 0;  // in a second
  std::uint64_t sections = 0;
};

class Soak : public testing::Test {
 protected:
  using Start = std::function<std::unique_ptr<Program>(std::size_t station, const std::string& work)>;

  // `mn`: the process of the memory node, if there is one. `warm`: after so many sections all memory has been used once.
  void run(Control& control, const Start& start, std::optional<pid_t> mn, std::uint64_t warm);

 private:
  void begin(Control& control, const Start& start);
  void kill_one(const Start& start);
  Sample look(const Control& control, std::optional<pid_t> mn);
  void print(Time began) const;
  void expect_flat(std::uint64_t warm) const;

  std::vector<std::unique_ptr<Program>> processes_{kWaiter + 1};
  std::vector<Sample> samples_;
  std::uint64_t deaths_ = 0;
  Time looked_;
  Duration waiter_cpu_{};
};

void Soak::begin(Control& control, const Start& start) {
  const auto works = [&](std::size_t i) {
    return soon([&] {
             return control.stations[i].operations.load() > 0 || processes_[i]->has_ended();
           }) &&
           !processes_[i]->has_ended();
  };
  processes_[kHolder] = start(kHolder, "hold");
  ASSERT_TRUE(works(kHolder)) << processes_[kHolder]->output();
  processes_[kWaiter] = start(kWaiter, "hold");
  for (std::size_t i = 0; i < kLoad; ++i) processes_[i] = start(i, "wide");
  for (std::size_t i = 0; i < kLoad; ++i) ASSERT_TRUE(works(i)) << processes_[i]->output();
  ASSERT_TRUE(soon([&] { return control.stations[kWaiter].records.load() > 0; }))
      << "it does not even wait";
}

void Soak::kill_one(const Start& start) {
  const std::size_t which = 1 + deaths_ % (kLoad - 1);
  processes_[which]->send(SIGKILL);
  (void)processes_[which]->wait();
  processes_[which] = start(which, "wide");
  deaths_ += 1;
}

Sample Soak::look(const Control& control, std::optional<pid_t> mn) {
  const Time now = monotonic_now();
  const Duration cpu = cpu_time_of(processes_[kWaiter]->pid());
  const double seconds_passed = static_cast<double>((now - looked_).ns) / 1e9;
  const double cpu_ms = static_cast<double>(cpu.ns - waiter_cpu_.ns) / 1e6;
  looked_ = now;
  waiter_cpu_ = cpu;
  const pid_t member = processes_[0]->pid();
  Sample sample;
  if (mn) {
    sample.mn_kib = static_cast<double>(resident_kib_of(*mn));
    sample.mn_descriptors = static_cast<double>(descriptors_of(*mn));
  }
  sample.member_kib = static_cast<double>(resident_kib_of(member));
  sample.member_descriptors = static_cast<double>(descriptors_of(member));
  sample.records = static_cast<double>(control.stations[0].records.load());
  sample.waiter_cpu_ms = cpu_ms / seconds_passed;
  for (const Station& station : control.stations) sample.sections += station.operations.load();
  return sample;
}

void Soak::print(Time began) const {
  const Sample& s = samples_.back();
  fmt::print(
      "{:5} s: {} deaths, {} sections; memory node {:.0f} KiB, {:.0f} descriptors; member {:.0f} KiB, "
      "{:.0f} descriptors, {:.0f} records; who waits {:.2f} ms of CPU per second\n",
      (monotonic_now() - began).ns / 1'000'000'000, deaths_, s.sections, s.mn_kib, s.mn_descriptors,
      s.member_kib, s.member_descriptors, s.records, s.waiter_cpu_ms);
  std::fflush(stdout);
}

// The last quarter against the second.
void Soak::expect_flat(std::uint64_t warm) const {
  const std::size_t quarter = samples_.size() / 4;
  ASSERT_GT(quarter, 0u);
  const auto expect = [&](const char* what, double Sample::*of, double factor, double more) {
    double before = 0;
    double after = 0;
    for (std::size_t i = 0; i < quarter; ++i) {
      before += samples_[quarter + i].*of / static_cast<double>(quarter);
      after += samples_[samples_.size() - 1 - i].*of / static_cast<double>(quarter);
    }
    EXPECT_LE(after, before * factor + more) << what << " of " << before << " has grown";
  };
  expect("number of descriptors of the memory node", &Sample::mn_descriptors, 1.2, 8);
  expect("number of descriptors of a member", &Sample::member_descriptors, 1.2, 8);
  expect("number of records of a member", &Sample::records, 1.2, 100);
  expect("CPU time of who waits, in ms per second,", &Sample::waiter_cpu_ms, 1.5, 10);
  if (samples_[quarter - 1].sections < warm) {
    fmt::print("too short to judge memory: the first quarter should have {} sections\n", warm);
    return;
  }
  expect("memory of the memory node, in KiB,", &Sample::mn_kib, 1.2, 8 << 10);
  expect("memory of a member, in KiB,", &Sample::member_kib, 1.2, 8 << 10);
}

void Soak::run(Control& control, const Start& start, std::optional<pid_t> mn, std::uint64_t warm) {
  const char* asked = std::getenv("DECLOCK_SOAK_SECONDS");
  const Duration lasts =
      seconds(asked != nullptr ? std::max(20l, std::strtol(asked, nullptr, 10)) : 60);
  ASSERT_NO_FATAL_FAILURE(begin(control, start));
  const Time began = monotonic_now();
  const Duration between_looks{std::min(seconds(60).ns, lasts.ns / 16)};
  Time next_death = began + kBetweenDeaths;
  Time next_look = began + between_looks;
  looked_ = began;
  waiter_cpu_ = cpu_time_of(processes_[kWaiter]->pid());
  while (monotonic_now() < began + lasts && !HasFailure()) {
    usleep(100'000);  // the load is what takes time here
    for (const auto& process : processes_) ASSERT_FALSE(process->has_ended()) << process->output();
    if (monotonic_now() >= next_death) {
      kill_one(start);
      next_death = next_death + kBetweenDeaths;
    }
    if (monotonic_now() < next_look) continue;
    samples_.push_back(look(control, mn));
    print(began);
    next_look = next_look + between_looks;
  }
  control.stop.store(true);
  for (const auto& process : processes_) EXPECT_EQ(process->wait(), 0) << process->output();
  EXPECT_EQ(control.violations.load(), 0u);
  EXPECT_EQ(control.misjudged.load(), 0u);
  EXPECT_EQ(control.errors.load(), 0u);
  expect_flat(warm);
}

TEST_F(Soak, SteadyLoadInSharedMemoryNeedsNoMoreAndMore) {
  const TemporaryDirectory directory;
  const std::string name = fmt::format("soak-{}", getpid());
  const std::string path = directory / "control";
  Control& control = Control::map(path);
  std::uint64_t started = 0;
  run(
      control,
      [&](std::size_t station, const std::string& work) {
        return std::make_unique<Program>(std::vector<std::string>{DECLOCK_PROCESS_CN, "shm:" + name,
                                                                  path, std::to_string(station),
                                                                  std::to_string(++started), work});
      },
      {}, 0);
  (void)shm::remove_cluster(shm::kDefaultDirectory, name);
}

TEST_F(Soak, SteadyLoadOverTcpNeedsNoMoreAndMore) {
  NetCluster cluster{seconds(2)};
  cluster.start_mn(0);
  run(
      cluster.control(),
      [&](std::size_t station, const std::string& work) { return cluster.started(station, 0, work); },
      cluster.mn(0).pid(), 300'000);  // libfabric goes through all its buffers before it uses one again
}

}  // namespace
}  // namespace declock::process
