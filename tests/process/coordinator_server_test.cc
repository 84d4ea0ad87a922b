// The embedded coordinator, told what happens by the test: who leaves when, and what it remembers.
#include "member_net/coordinator_server.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/check.h"
#include "base/prng.h"
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
        [](const std::string&) {});
    CHECK(opened);
    server_ = std::move(*opened);
  }
  // Some time later, in steps in which it listens.
  void wait(Duration d) {
    for (std::int64_t ns = 0; ns < d.ns; ns += milliseconds(10).ns) {
      now_ = now_ + milliseconds(10);
      for (const auto& [mn, line] : alive_mns_) tell(line, RenewMn{mn});
      server_->on_tick(now_);
      server_->flush();
    }
  }
  // It was stopped meanwhile.
  void pause(Duration d) {
    now_ = now_ + d;
    server_->on_tick(now_);
    server_->flush();
  }
  template <class T>
  void tell(wire::LineId line, const T& message) {
    tell_unflushed(line, message);
    server_->flush();
  }
  // With others, in one turn.
  template <class T>
  void tell_unflushed(wire::LineId line, const T& message) {
    EXPECT_TRUE(server_->on_frame(line, frame_of(message)));
  }
  void flush() { server_->flush(); }
  void hang_up(wire::LineId line) { server_->on_down(line); }

  void add_mn(wire::LineId line, std::uint16_t id, std::uint32_t incarnation = 0) {
    tell(line, RegisterMn{id, 9, incarnation, "10.0.0.1:1"});
    alive_mns_[id] = line;
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
  const std::string& frame(wire::LineId line, std::size_t i) { return said_[line][i]; }
  const std::string& last(wire::LineId line) { return said_[line].back(); }
  std::optional<Joined> joined(wire::LineId line) { return last_of<Joined>(line); }
  std::optional<Refused> refused(wire::LineId line) { return last_of<Refused>(line); }
  MemberId join(wire::LineId line) {
    const std::size_t before = heard(line, Kind::joined);
    tell(line, Join{1, {{"address", 1}}});
    EXPECT_EQ(heard(line, Kind::joined), before + 1) << "it could not join";
    return joined(line).value_or(Joined{}).self;
  }
  const ClusterState& state() const { return server_->state(); }
  bool has(const MemberId& m) const { return state().has(m.slot, m.incarnation); }

 private:
  // The last message of this kind that was sent there.
  template <class T>
  std::optional<T> last_of(wire::LineId line) {
    for (auto frame = said_[line].rbegin(); frame != said_[line].rend(); ++frame) {
      if ((*frame)[0] == static_cast<char>(T::kKind))
        return from_bytes<T>(std::string_view{*frame}.substr(1));
    }
    return {};
  }

  Time now_{seconds(1).ns};
  std::map<wire::LineId, std::vector<std::string>> said_;
  std::map<std::uint16_t, wire::LineId> alive_mns_;
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
  for (int i = 0; i < 5; ++i) office.pause(seconds(5));
  EXPECT_EQ(office.heard(kMn0, Kind::fence), 1u);
}

// A turn that takes two leases, as in a storm of joins: what was said meanwhile is read at the beginning of the next one.
TEST(CoordinatorServer, NobodyIsSilentBecauseItsOwnTurnsTakeLong) {
  Office office;
  office.add_mn(CoordinatorServer::kHost, 0);
  office.add_mn(kMn1, 1);
  const MemberId member = office.join(kCn);
  for (int i = 0; i < 20; ++i) {
    office.tell(kCn, Renew{member});
    office.tell(kMn1, RenewMn{1});
    office.pause(kLease * 2);
  }
  EXPECT_EQ(office.heard(kMn1, Kind::fence), 0u);
  EXPECT_TRUE(office.has(member));
  EXPECT_EQ(office.state().mns[0].incarnation, 1u);
  EXPECT_EQ(office.state().mns[1].incarnation, 1u);
}

TEST(CoordinatorServer, TheMemoryNodeThatHostsItIsNeverSilent) {
  Office office;
  office.add_mn(CoordinatorServer::kHost, 0);
  office.silence_mn(0);
  office.wait(kLease * 10);
  EXPECT_EQ(office.state().mns[0].incarnation, 1u);
  EXPECT_FALSE(office.state().mns[0].address.empty());
}

// One file, one message to each: a storm of joins is not a storm of messages.
TEST(CoordinatorServer, WhatHappensInOneTurnIsToldAtOnceAndNoMoreThanThat) {
  constexpr wire::LineId kFirst = 100, kMany = 200;
  Office office{"", 256};
  office.add_mn(kMn0, 0);
  (void)office.join(kCn);
  std::size_t before = office.said(kCn);
  (void)office.join(kOther);
  ASSERT_EQ(office.kinds_since(kCn, before), std::vector{Kind::changed});
  const std::size_t bytes_of_one = office.last(kCn).size();

  before = office.said(kCn);
  for (wire::LineId line = kFirst; line < kFirst + kMany; ++line)
    office.tell_unflushed(line, Join{1, {{"address", 1}}});
  EXPECT_EQ(office.said(kFirst), 0u) << "not before it is on disk";
  office.flush();
  EXPECT_EQ(office.kinds_since(kCn, before), std::vector{Kind::changed});
  for (wire::LineId line = kFirst; line < kFirst + kMany; ++line)
    ASSERT_EQ(office.kinds_since(line, 0), std::vector{Kind::joined});
  EXPECT_EQ(office.joined(kFirst)->state.members.size(), kMany + 2u) << "with those of the same turn";

  (void)office.join(kFirst + kMany);
  EXPECT_EQ(office.last(kCn).size(), bytes_of_one) << "however many members there are";
  const MemberId known = office.joined(kFirst)->self;
  before = office.said(kFirst);
  office.tell(kFirst, Fetch{7, 9, office.state().number});
  EXPECT_EQ(office.kinds_since(kFirst, before), std::vector{Kind::changed}) << "it has that already";
  office.hang_up(kFirst);
  office.tell(kFirst + 1000, Renew{known});
  (void)office.join(kFirst + kMany + 1);
  EXPECT_EQ(office.kinds_since(kFirst + 1000, 0), std::vector{Kind::state})
      << "nobody knows what came through on the line that broke";
}

TEST(CoordinatorServer, ChangesAddUpToTheState) {
  Office office{"", 4};
  office.add_mn(kMn0, 0);
  (void)office.join(kCn);
  ClusterState followed = office.joined(kCn)->state;
  std::size_t read = office.said(kCn);
  Prng random{1, 0};
  std::map<wire::LineId, MemberId> here;
  for (int i = 0; i < 200; ++i) {
    const wire::LineId line = kOther + random.below(3);
    if (const auto at = here.find(line); at != here.end()) {
      office.tell(line, Leave{at->second});
      office.tell(kMn0, Fenced{0, at->second});
      office.tell(kMn1, Fenced{1, at->second});
      here.erase(at);
    } else {
      here[line] = office.join(line);
    }
    if (random.one_in(10)) office.add_mn(kMn1, 1);
    for (; read < office.said(kCn); ++read) {
      const std::string frame = office.frame(kCn, read);
      ASSERT_EQ(static_cast<Kind>(frame[0]), Kind::changed);
      const auto changed = from_bytes<Changed>(std::string_view{frame}.substr(1));
      ASSERT_TRUE(changed && followed.apply(changed->change));
      EXPECT_FALSE(followed.apply(changed->change) && changed->change.from != changed->change.number);
    }
    ASSERT_EQ(to_bytes(followed), to_bytes(office.state()));
    office.tell(kCn, Renew{office.joined(kCn)->self, followed.number});
    for (const auto& [other, member] : here) office.tell(other, Renew{member, followed.number});
  }
}

// An entry of a lock's queue has one bit of the incarnation. Who releases with a view in which the slot still belongs
// to the member before last would wake that one.
TEST(CoordinatorServer, ASlotIsUsedAgainOnceEveryMemberHasSaidThatItKnows) {
  constexpr wire::LineId kThird = 5, kFourth = 6;
  Office office{"", 3};
  office.add_mn(kMn0, 0);
  const MemberId late = office.join(kCn);
  const auto comes_and_goes = [&](wire::LineId line) {
    const MemberId member = office.join(line);
    office.tell(line, Leave{member});
    office.tell(kMn0, Fenced{0, member});
    return member.slot.value;
  };
  EXPECT_EQ(comes_and_goes(kOther), 1u);
  const std::uint64_t without_first = office.state().number;
  EXPECT_EQ(comes_and_goes(kThird), 2u) << "nobody had it yet";
  office.tell(kOther, Join{1, {{"address", 2}}});
  EXPECT_EQ(office.heard(kOther, Kind::joined), 1u) << "it waits";
  EXPECT_FALSE(office.refused(kOther)->final);
  office.tell(kThird, Join{1, {{"address", 2}}, Slot{2}});
  EXPECT_EQ(office.heard(kThird, Kind::joined), 1u) << "also for one that it wants";

  office.tell(kCn, Renew{late, without_first});
  EXPECT_EQ(office.heard(kOther, Kind::joined), 2u);
  EXPECT_EQ(office.joined(kOther)->self.slot.value, 1u);
  EXPECT_EQ(office.heard(kThird, Kind::joined), 1u);
  // Who is on the way out need not say so: its locks are mended anyway.
  office.tell(kCn, Leave{late});
  EXPECT_EQ(office.heard(kThird, Kind::joined), 2u);
  EXPECT_EQ(office.joined(kThird)->self.slot.value, 2u);
  office.tell(kFourth, Join{1, {{"address", 2}}});
  EXPECT_FALSE(office.refused(kFourth)->final);
  office.tell(kMn0, Fenced{0, late});
  EXPECT_EQ(office.heard(kFourth, Kind::joined), 0u) << "two have not heard that it left";
  office.tell(kOther, Renew{office.joined(kOther)->self, office.state().number});
  office.tell(kThird, Renew{office.joined(kThird)->self, office.state().number});
  EXPECT_EQ(office.joined(kFourth)->self.slot.value, 0u);
}

TEST(CoordinatorServer, OfTheFreeSlotsTheOneIsUsedThatWasFreeForLongest) {
  Office office{"", 3};
  office.add_mn(kMn0, 0);
  std::vector<std::uint16_t> slots;
  for (int i = 0; i < 7; ++i) {
    const MemberId member = office.join(kCn);
    slots.push_back(member.slot.value);
    office.tell(kCn, Leave{member});
    office.tell(kMn0, Fenced{0, member});
  }
  EXPECT_EQ(slots, (std::vector<std::uint16_t>{0, 1, 2, 0, 1, 2, 0}));
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
  EXPECT_EQ(office.heard(kCn, Kind::joined), 0u);
  EXPECT_FALSE(office.refused(kCn)->final) << "it is told why it waits";
  office.add_mn(kMn0, 0);
  EXPECT_EQ(office.heard(kCn, Kind::joined), 1u);
  EXPECT_EQ(office.state().members.size(), 1u);
}

TEST(CoordinatorServer, ARestartRemembersIncarnationsAndTakesEverybodyForDead) {
  process::TemporaryDirectory directory;
  {
    Office office{directory / "state", 1};
    office.add_mn(kMn0, 0);
    office.add_mn(kMn1, 1);
    EXPECT_EQ(office.join(kCn).incarnation.value, 1u);
  }
  Office office{directory / "state", 1};
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
