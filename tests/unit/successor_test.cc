// Whom a releaser grants, from what it sees: each case is a picture of a header and its slots.
#include "cql/successor.h"

#include <gtest/gtest.h>

#include <vector>

namespace declock::cql {
namespace {

constexpr Epoch kEpoch{3};

class Picture {
 public:
  explicit Picture(Ticket header_ticket) : shape_{4, 4, QueueLayout::owner}, words_(5) {
    words_[0] = shape_.header.encode(Header{.ticket = header_ticket, .epoch = kEpoch});
  }
  Picture& entry(std::uint32_t slot, std::uint32_t ticket, Mode mode, Epoch epoch = kEpoch) {
    words_[1 + slot] = encode(Entry{.tag = ticket, .epoch = epoch, .mode = mode});
    return *this;
  }
  QueueView view(std::uint64_t h, std::uint64_t end) const {
    return {rules_, shape_, words_, kEpoch, Ticket{h}, Ticket{end}};
  }

 private:
  Rules rules_;
  LockShape shape_;
  std::vector<std::uint64_t> words_;
};

void expect(const Decision& decision, std::uint64_t grant_end, bool settled) {
  EXPECT_EQ(decision.grant_end.value, grant_end);
  EXPECT_EQ(decision.settled, settled);
}

constexpr Mode R = Mode::shared;
constexpr Mode W = Mode::exclusive;

TEST(AfterWriter, GrantsTheNextWriterAlone) {
  Picture picture{Ticket{5}};
  picture.entry(0, 5, W).entry(1, 6, R);
  expect(after_writer(picture.view(5, 7)), 6, true);
}

TEST(AfterWriter, GrantsAllReadersUpToTheNextWriter) {
  Picture picture{Ticket{5}};
  picture.entry(0, 6, R).entry(1, 5, R).entry(2, 7, W).entry(3, 8, R);
  expect(after_writer(picture.view(5, 9)), 7, true);
}

TEST(AfterWriter, GrantsAllReadersIfNoWriterWaits) {
  Picture picture{Ticket{5}};
  picture.entry(0, 6, R).entry(1, 5, R);
  expect(after_writer(picture.view(5, 7)), 7, true);
}

TEST(AfterWriter, AGapIsNotTheEndOfAGroup) {  // H27, H29
  Picture picture{Ticket{5}};
  picture.entry(0, 5, R).entry(2, 7, W);
  expect(after_writer(picture.view(5, 8)), 5, false);
}

TEST(AfterWriter, WaitsForItsSuccessorHoweverFarTheTicketHasMoved) {  // H28
  Picture picture{Ticket{9}};
  expect(after_writer(picture.view(5, 6)), 5, false);
}

TEST(AfterWriter, IgnoresEntriesOfOtherTicketsAndEpochs) {  // H6
  Picture picture{Ticket{5}};
  picture.entry(0, 4, R).entry(1, 6, R).entry(2, 5, R, Epoch{2});
  expect(after_writer(picture.view(5, 6)), 5, false);
}

TEST(AfterReader, GrantsTheWriterThatIsNext) {
  Picture picture{Ticket{5}};
  picture.entry(0, 5, W).entry(1, 6, W);
  expect(after_reader(picture.view(5, 7), 2), 6, true);
}

TEST(AfterReader, OwesNothingToAReader) {
  Picture picture{Ticket{5}};
  picture.entry(0, 5, R);
  expect(after_reader(picture.view(5, 7), 1), 5, true);
}

TEST(AfterReader, AMissingEntryIsAReaderOnceAllWritersAreSeen) {
  Picture picture{Ticket{5}};
  picture.entry(0, 6, W);
  expect(after_reader(picture.view(5, 7), 1), 5, true);
  expect(after_reader(picture.view(5, 8), 2), 5, false);
}

TEST(AfterReader, OwesNothingOnceTheTicketHasPassed) {  // H2
  Picture picture{Ticket{6}};
  expect(after_reader(picture.view(5, 7), 1), 5, true);
}

}  // namespace
}  // namespace declock::cql
