// The embedded coordinator, told what happens by the test: who leaves when, and what it remembers.
#include "member_net/coordinator_server.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/check.h"
#include "process/programs.h"

namespace declock::member {
namespace {

constexpr Duration kLease = milliseconds(100);
constexpr wire::LineId kMn0 = 1, kMn1 = 2, kCn = 3, kOther = 4;

class Office {
 public:
  explicit Office(const std::string& directory = "", std::uint32_t members = 2) {
    ClusterShape shape;
    shape.id = 9;
    shape.members = members;
    shape.lease = kLease;
    std::optional<StateFile> file;
    if (!directory.empty()) file.emplace(std::move(*StateFile::open(directory)));
    auto opened = CoordinatorServer::open(
        shape, std::move(file),
        [this](wire::LineId line, const std::string& frame) { said_[line].push_back(frame); },
        [](const std::string&) {}, now_);
    CHECK(opened);
    server_ = std::move(*opened);
  }
  // Some time later, in steps in which it listens.
  void wait(Duration d) {
    for (std::int64_t ns = 0; ns < d.ns; ns += milliseconds(10).ns) {
      now_ = now_ + milliseconds(10);
      for (const std::uint16_t mn : alive_mns_) tell(mn == 0 ? kMn0 : kMn1, RenewMn{mn});
      server_->on_tick(now_);
    }
  }
  // It was stopped meanwhile.
  void pause(Duration d) {
    now_ = now_ + d;
    server_->on_tick(now_);
  }
  template <class T>
  void tell(wire::LineId line, const T& message) {
    EXPECT_TRUE(server_->on_frame(line, frame_of(message), now_));
  }
  void add_mn(wire::LineId line, std::uint16_t id, std::uint32_t incarnation = 0) {
    tell(line, RegisterMn{id, 9, incarnation, "10.0.0.1:1"});
    alive_mns_.insert(id);
  }
  void silence_mn(std::uint16_t id) { alive_mns_.erase(id); }
  // How many of this kind were sent there.
  std::size_t heard(wire::LineId line, Kind kind) {
    std::size_t count = 0;
    for (const std::string& frame : said_[line]) count += frame[0] == static_cast<char>(kind) ? 1 : 0;
    return count;
  }
  // The last of what was sent there, of which kinds.
  std::vector<Kind> kinds_since(wire::LineId line, std::size_t first) {
    std::vector<Kind> kinds;
    for (std::size_t i = first; i < said_[line].size(); ++i)
      kinds.push_back(static_cast<Kind>(said_[line][i][0]));
    return kinds;
  }
  std::size_t said(wire::LineId line) { return said_[line].size(); }
  MemberId join(wire::LineId line) {
    tell(line, Join{1, {{"address", 1}}});
    for (auto frame = said_[line].rbegin(); frame != said_[line].rend(); ++frame) {
      if ((*frame)[0] == static_cast<char>(Kind::joined))
        return from_bytes<Joined>(std::string_view{*frame}.substr(1))->self;
    }
    ADD_FAILURE() << "it could not join";
    return {};
  }
  const ClusterState& state() const { return server_->state(); }
  bool has(const MemberId& m) const { return state().has(m.slot, m.incarnation); }

 private:
  Time now_{seconds(1).ns};
  std::map<wire::LineId, std::vector<std::string>> said_;
  std::set<std::uint16_t> alive_mns_;
  std::unique_ptr<CoordinatorServer> server_;
};

TEST(CoordinatorServer, ASilentMemberIsRemovedWhenEveryMemoryNodeHasFencedIt) {
  Office office;
  office.add_mn(kMn0, 0);
  office.add_mn(kMn1, 1);
  const MemberId member = office.join(kCn);
  office.wait(milliseconds(50));
  office.tell(kCn, Renew{member});
  office.wait(milliseconds(80));
  EXPECT_EQ(office.heard(kMn0, Kind::fence), 0u);
  office.wait(milliseconds(60));
  EXPECT_EQ(office.heard(kMn0, Kind::fence), 1u);
  EXPECT_EQ(office.heard(kMn1, Kind::fence), 1u);
  office.tell(kCn, Renew{member});  // there is no way back
  EXPECT_EQ(office.heard(kCn, Kind::refused), 1u);
  office.tell(kMn0, Fenced{0, member});
  EXPECT_TRUE(office.has(member)) << "one memory node may still serve it";
  office.tell(kMn1, Fenced{1, member});
  EXPECT_FALSE(office.has(member));
  EXPECT_EQ(office.state().removals, 1u);
}

TEST(CoordinatorServer, WhoLeavesIsFencedTooAndDoesNotCountAsRemoved) {
  Office office;
  office.add_mn(kMn0, 0);
  const MemberId member = office.join(kCn);
  office.tell(kCn, Leave{member});
  EXPECT_TRUE(office.has(member));
  office.tell(kMn0, Fenced{0, member});
  EXPECT_FALSE(office.has(member));
  EXPECT_EQ(office.heard(kCn, Kind::left), 1u);
  EXPECT_EQ(office.state().removals, 0u);
}

TEST(CoordinatorServer, AMemoryNodeThatIsGoneIsNotWaitedForAndItsMemoryIsVoid) {
  Office office;
  office.add_mn(kMn0, 0);
  office.add_mn(kMn1, 1);
  const MemberId member = office.join(kCn);
  office.silence_mn(1);
  office.wait(milliseconds(300));
  EXPECT_EQ(office.state().mns[1].incarnation, 2u);
  EXPECT_TRUE(office.state().mns[1].address.empty());
  office.tell(kMn0, Fenced{0, member});
  EXPECT_FALSE(office.has(member));
  // It thinks that it goes on; it does not.
  office.add_mn(kMn1, 1, 1);
  EXPECT_EQ(office.state().mns[1].incarnation, 2u);
  EXPECT_FALSE(office.state().mns[1].address.empty());
}

// Its connection has not noticed anything: it hears of it when it speaks again, and is not made to do it twice.
TEST(CoordinatorServer, AMemoryNodeThatWasSilentForTooLongComesBackOnce) {
  Office office;
  office.add_mn(kMn0, 0);
  office.add_mn(kMn1, 1);
  office.silence_mn(1);
  office.wait(milliseconds(300));
  EXPECT_TRUE(office.state().mns[1].address.empty());
  const std::size_t before = office.said(kMn1);
  office.tell(kMn1, RenewMn{1});
  EXPECT_EQ(office.kinds_since(kMn1, before), std::vector{Kind::state});
  office.add_mn(kMn1, 1, 1);  // as it was
  EXPECT_EQ(office.state().mns[1].incarnation, 2u);
  EXPECT_EQ(office.kinds_since(kMn1, before), (std::vector{Kind::state, Kind::registered}));
}

// Whoever is on the way out is in the state until it is removed, and a memory node that has just come would let it in.
TEST(CoordinatorServer, AMemoryNodeThatComesMeanwhileHasToFenceToo) {
  Office office;
  office.add_mn(kMn0, 0);
  const MemberId member = office.join(kCn);
  office.wait(milliseconds(200));
  EXPECT_EQ(office.heard(kMn0, Kind::fence), 1u);
  office.add_mn(kMn1, 1);
  EXPECT_EQ(office.heard(kMn1, Kind::fence), 1u);
  office.tell(kMn0, Fenced{0, member});
  EXPECT_TRUE(office.has(member));
  office.tell(kMn1, Fenced{1, member});
  EXPECT_FALSE(office.has(member));
}

TEST(CoordinatorServer, ItsOwnPausesAreNobodysSilence) {
  Office office;
  office.add_mn(kMn0, 0);
  const MemberId member = office.join(kCn);
  office.wait(milliseconds(20));
  office.pause(seconds(5));
  EXPECT_EQ(office.heard(kMn0, Kind::fence), 0u) << "what was said meanwhile is still to be read";
  office.tell(kCn, Renew{member});
  office.wait(milliseconds(50));
  EXPECT_EQ(office.heard(kMn0, Kind::fence), 0u);
  // Pauses without end are no excuse.
  office.pause(seconds(5));
  office.pause(seconds(5));
  EXPECT_EQ(office.heard(kMn0, Kind::fence), 1u);
}

TEST(CoordinatorServer, AFullClusterTakesTheNextWhenADeadOneIsFenced) {
  Office office{"", 1};
  office.add_mn(kMn0, 0);
  const MemberId first = office.join(kCn);
  office.tell(kOther, Join{1, {{"address", 2}}});
  EXPECT_EQ(office.heard(kOther, Kind::refused), 1u) << "nobody is on the way out";
  office.wait(milliseconds(200));
  office.tell(kOther, Join{1, {{"address", 2}}});
  EXPECT_EQ(office.heard(kOther, Kind::joined), 0u);
  office.tell(kMn0, Fenced{0, first});
  EXPECT_EQ(office.heard(kOther, Kind::joined), 1u);
  EXPECT_EQ(office.state().members[0].incarnation.value, 2u);
}

// Or it would take the memory node, which is about to come, for one whose connection broke.
// Everybody is told of everybody in one message.
TEST(CoordinatorServer, WhoseAddressesDoNotFitInAMessageIsRefused) {
  Office office{"", 64};
  office.add_mn(kMn0, 0);
  const std::vector<WorkerAddress> long_ones(kWorkersMax, {std::string(kStringMax, 'x'), 1});
  for (wire::LineId line = kOther; line < kOther + 10; ++line) office.tell(line, Join{1, long_ones});
  EXPECT_EQ(office.heard(kOther, Kind::joined), 1u);
  EXPECT_EQ(office.heard(kOther + 9, Kind::refused), 1u);
  EXPECT_EQ(office.heard(kOther + 9, Kind::joined), 0u);
  office.tell(kCn, Join{1, {{"short", 1}}});
  EXPECT_EQ(office.heard(kCn, Kind::joined), 1u);
}

TEST(CoordinatorServer, WhoComesBeforeTheFirstMemoryNodeJoinsWithIt) {
  Office office;
  office.tell(kCn, Join{1, {{"address", 1}}});
  EXPECT_EQ(office.heard(kCn, Kind::joined) + office.heard(kCn, Kind::refused), 0u);
  office.add_mn(kMn0, 0);
  EXPECT_EQ(office.heard(kCn, Kind::joined), 1u);
  EXPECT_EQ(office.state().members.size(), 1u);
}

TEST(CoordinatorServer, ARestartRemembersIncarnationsAndTakesEverybodyForDead) {
  process::TemporaryDirectory directory;
  {
    Office office{directory / "state"};
    office.add_mn(kMn0, 0);
    office.add_mn(kMn1, 1);
    EXPECT_EQ(office.join(kCn).incarnation.value, 1u);
  }
  Office office{directory / "state"};
  EXPECT_TRUE(office.has({Slot{0}, Incarnation{1}})) << "memory node 1 may still serve it";
  office.add_mn(kMn1, 1, 1);  // went on meanwhile
  EXPECT_EQ(office.state().mns[1].incarnation, 1u);
  EXPECT_EQ(office.heard(kMn1, Kind::fence), 1u);
  office.add_mn(kMn0, 0);
  EXPECT_EQ(office.state().mns[0].incarnation, 2u);
  office.tell(kMn1, Fenced{1, {Slot{0}, Incarnation{1}}});
  office.tell(kMn0, Fenced{0, {Slot{0}, Incarnation{1}}});
  EXPECT_FALSE(office.has({Slot{0}, Incarnation{1}}));
  EXPECT_EQ(office.state().removals, 1u);
  const MemberId again = office.join(kCn);
  EXPECT_EQ(again.slot.value, 0u);
  EXPECT_EQ(again.incarnation.value, 2u);
}

TEST(StateFile, IsForOneProcessAndRefusesWhatItDidNotWrite) {
  process::TemporaryDirectory directory;
  {
    const auto file = StateFile::open(directory / "state");
    ASSERT_TRUE(file);
    EXPECT_NE(StateFile::open(directory / "state").error().find("another process"), std::string::npos);
    EXPECT_FALSE(file->load()->has_value());
  }
  std::ofstream{directory / "state/cluster"} << "declock cluster 1\nand then something else";
  const auto file = StateFile::open(directory / "state");
  ASSERT_TRUE(file);
  EXPECT_NE(file->load().error().find("not the state of a cluster"), std::string::npos);
  EXPECT_NE(StateFile::open("/proc/nowhere").error().find("--state"), std::string::npos);
}

}  // namespace
}  // namespace declock::member
