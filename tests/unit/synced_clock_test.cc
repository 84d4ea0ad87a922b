#include "hier/synced_clock.h"

#include <gtest/gtest.h>

#include <deque>

#include "runtime/task_group.h"
#include "sim/timed.h"

namespace declock::hier {
namespace {

class Clocks {
 public:
  explicit Clocks(std::vector<sim::Skew> skews) {
    for (const sim::Skew& skew : skews) {
      sim::SimEndpoint& endpoint = engine.add_endpoint(engine.add_worker(skew));
      memberships.emplace_back(Slot{static_cast<std::uint16_t>(clocks.size())},
                               static_cast<std::uint32_t>(skews.size()), 1);
      clocks.emplace_back(endpoint, memberships.back());
      groups.emplace_back(endpoint.worker().frames());
    }
  }
  ~Clocks() { groups.clear(); }

  void start(std::size_t i) { groups[i].spawn(clocks[i].keep_in_step({MnId{0}, 0})); }
  void start_all() {
    for (std::size_t i = 0; i < clocks.size(); ++i) start(i);
  }
  void run(Duration d) { engine.run_until(engine.now() + d); }
  Duration apart() const {
    Time earliest = clocks[0].now(), latest = clocks[0].now();
    for (const SyncedClock& clock : clocks) {
      earliest = std::min(earliest, clock.now());
      latest = std::max(latest, clock.now());
    }
    return latest - earliest;
  }

  sim::TimedEngine engine{sim::NicModel{}, 1, 1};
  std::deque<member::FixedMembership> memberships;
  std::deque<SyncedClock> clocks;
  std::deque<TaskGroup> groups;
};

const std::vector<sim::Skew> kSkews{
    {milliseconds(-1), 900}, {Duration{}, -900}, {milliseconds(1), 0}, {microseconds(300), 100}};

TEST(SyncedClock, AgreesWithinAReadAfterOneRound) {
  Clocks clocks{kSkews};
  EXPECT_GT(clocks.apart(), milliseconds(1));
  clocks.start_all();
  clocks.run(milliseconds(5));
  EXPECT_LT(clocks.apart(), microseconds(3));
}

TEST(SyncedClock, StaysInStepForManyRounds) {
  Clocks clocks{kSkews};
  clocks.start_all();
  clocks.run(milliseconds(5));
  for (int i = 0; i < 80; ++i) {
    clocks.run(milliseconds(100));
    EXPECT_LT(clocks.apart(), microseconds(6)) << i;  // a READ, and the drift of a second
  }
  EXPECT_GE(clocks.clocks[0].rounds(), 7u);
}

TEST(SyncedClock, NeverGoesBackAcrossACorrection) {  // H26
  Clocks clocks{kSkews};
  clocks.start_all();
  clocks.run(milliseconds(5));
  std::vector<Time> last(clocks.clocks.size());
  for (int i = 0; i < 250'000; ++i) {
    clocks.run(microseconds(10));
    for (std::size_t c = 0; c < last.size(); ++c) {
      const Time now = clocks.clocks[c].now();
      ASSERT_GE(now, last[c]);
      last[c] = now;
    }
  }
  EXPECT_GE(clocks.clocks[0].rounds(), 3u);
}

TEST(SyncedClock, NobodyWaitsForOneThatIsNotThere) {  // H23
  Clocks clocks{kSkews};
  for (const std::size_t i : {0u, 1u, 3u}) clocks.start(i);
  clocks.run(seconds(3));
  for (const std::size_t i : {0u, 1u, 3u}) EXPECT_GE(clocks.clocks[i].rounds(), 3u);
  EXPECT_LT(clocks.engine.counts().of(Purpose::sync), 1000u);
  clocks.start(2);
  clocks.run(seconds(3));
  EXPECT_LT(clocks.apart(), microseconds(6)) << "a late one agrees after the next round";
}

TEST(SyncedClock, NobodyLooksForLongWhereTheFirstIsNotThere) {  // H23
  Clocks clocks{kSkews};
  for (std::size_t i = 1; i < clocks.clocks.size(); ++i) clocks.start(i);
  clocks.run(seconds(1));
  EXPECT_EQ(clocks.clocks[1].rounds(), 0u);
  EXPECT_LT(clocks.engine.counts().of(Purpose::sync), 20'000u) << "5 ms of READs each, then a pause";
  clocks.start(0);
  clocks.run(seconds(3));
  for (const SyncedClock& clock : clocks.clocks) EXPECT_GE(clock.rounds(), 1u);
}

}  // namespace
}  // namespace declock::hier
