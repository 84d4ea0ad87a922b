// The lock header: one 64-bit word that changes by fetch-and-add alone (paper section 4.1).
//
//   63                                                              0
//   +---------------------+-----------+-----------+-------+----------+
//   | ticket              | qsize     | wcnt      | epoch | reset_id |
//   +---------------------+-----------+-----------+-------+----------+
//
// An addition that overflows a field carries into the one above it, so only the topmost may overflow.
//
//   ticket    the paper's qhead: how many requests have left the queue. The request that found
//             (ticket, qsize) has the ticket `ticket + qsize`, and no other request ever has it.
//   qsize     requests in the queue, holders included.
//   wcnt      how many of them are exclusive.
//   epoch     counts resets of this lock; every fetch-and-add returns it for free.
//   reset_id  who is resetting the lock; 0 if nobody is. 0 is therefore never a claimant's id.
//
// What a header says (what a request sees as the old value of its own fetch-and-add):
//
//   reset_id  qsize  wcnt   the lock is            a shared request     an exclusive request
//   --------  -----  -----  ---------------------  -------------------  --------------------
//   != 0      any    any    being reset            aborts, tries later  aborts, tries later
//   0         0      0      free                   holds at once        holds at once
//   0         n > 0  0      shared by up to n      holds at once        waits
//   0         n > 0  w > 0  held, and of the n     waits                waits
//                           requests w are
//                           exclusive
//
// With wcnt = 0 some of the n may be readers that a writer has let in but whose grant is on its way;
// a reader that comes now holds at once all the same, since readers share (H28).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/check.h"
#include "layout/ids.h"

namespace declock {

struct Header {
  Ticket ticket{};
  std::uint32_t qsize = 0;
  std::uint32_t wcnt = 0;
  Epoch epoch{};
  ResetId reset_id{};

  bool operator==(const Header&) const = default;

  // The ticket of the request whose fetch-and-add found this header, and one past the last ticket
  // in the queue that a release found.
  constexpr Ticket end() const { return Ticket{ticket.value + qsize}; }
  // Would a request hold the lock at once, if nobody is resetting it?
  constexpr bool admits(Mode mode) const { return qsize == 0 || (mode == Mode::shared && wcnt == 0); }
};

// Field widths follow from the number of members (compute nodes, or clients in the flat lock) that may
// ever be in a queue.
class HeaderLayout {
 public:
  static constexpr unsigned kMembersMax = 1024;
  static constexpr unsigned kEpochBits = 6;
  // Tickets are written into queue entries, which have this many bits for them.
  static constexpr unsigned kEntryTicketBits = 32;

  // REQUIRES: 1 <= members <= kMembersMax.
  constexpr explicit HeaderLayout(unsigned members) {
    CHECK(members >= 1 && members <= kMembersMax);
    const auto slot_bits = static_cast<unsigned>(std::bit_width(members - 1));
    reset_id_bits_ = slot_bits + 1 + 2;  // slot + 1 (0 is nobody), two bits of the incarnation (H18)
    count_bits_ = slot_bits + 2;         // four times the members: ghosts of crashed ones count (H10)
    wcnt_shift_ = reset_id_bits_ + kEpochBits;
    qsize_shift_ = wcnt_shift_ + count_bits_;
    ticket_shift_ = qsize_shift_ + count_bits_;
    reset_id_mask_ = mask_of(reset_id_bits_);
    count_mask_ = mask_of(count_bits_);
    const std::uint64_t wcnt = std::uint64_t{count_mask_} << wcnt_shift_;
    requests_mask_ = wcnt | std::uint64_t{count_mask_} << qsize_shift_;
    busy_mask_ = {reset_id_mask_ | wcnt, reset_id_mask_ | requests_mask_};
    for (const Mode mode : {Mode::shared, Mode::exclusive}) {
      const std::uint64_t writer = mode == Mode::exclusive ? std::uint64_t{1} << wcnt_shift_ : 0;
      const std::uint64_t request = (std::uint64_t{1} << qsize_shift_) + writer;
      acquire_delta_[index(mode)] = request;
      release_delta_[index(mode)] = (std::uint64_t{1} << ticket_shift_) - request;
    }
  }

  constexpr unsigned reset_id_bits() const { return reset_id_bits_; }
  constexpr unsigned count_bits() const { return count_bits_; }
  constexpr unsigned ticket_bits() const { return 64 - ticket_shift_; }

  // A lock needs a reset before it hands out this ticket (H24). The margin is for the requests that are
  // on their way when the first one notices.
  constexpr Ticket ticket_limit() const {
    const unsigned bits = ticket_bits() < kEntryTicketBits ? ticket_bits() : kEntryTicketBits;
    return Ticket{(std::uint64_t{1} << bits) - (std::uint64_t{1} << (count_bits_ + 1))};
  }

  constexpr Header decode(std::uint64_t word) const {
    Header h;
    h.reset_id = ResetId{static_cast<std::uint16_t>(word & reset_id_mask_)};
    h.epoch = Epoch{static_cast<std::uint8_t>(word >> reset_id_bits_ & mask_of(kEpochBits))};
    h.wcnt = static_cast<std::uint32_t>(word >> wcnt_shift_) & count_mask_;
    h.qsize = static_cast<std::uint32_t>(word >> qsize_shift_) & count_mask_;
    h.ticket = Ticket{word >> ticket_shift_};
    return h;
  }

  constexpr std::uint64_t encode(const Header& h) const {
    return h.ticket.value << ticket_shift_ | std::uint64_t{h.qsize} << qsize_shift_ |
           std::uint64_t{h.wcnt} << wcnt_shift_ | std::uint64_t{h.epoch.value} << reset_id_bits_ |
           h.reset_id.value;
  }

  // qsize += 1, wcnt += exclusive
  constexpr std::uint64_t acquire_delta(Mode mode) const { return acquire_delta_[index(mode)]; }

  // The counts of a word, as they are in `acquire_delta` of a request that is alone.
  constexpr std::uint64_t requests_in(std::uint64_t word) const { return word & requests_mask_; }
  // Nobody resets the lock, and it admits this mode.
  constexpr bool admits(std::uint64_t word, Mode mode) const {
    return (word & busy_mask_[index(mode)]) == 0;
  }

  // ticket += 1, qsize -= 1, wcnt -= exclusive; modulo 2^64 the borrows cancel out
  constexpr std::uint64_t release_delta(Mode mode) const { return release_delta_[index(mode)]; }
  // The same for so many requests at once, and so many writers, be they among them or not.
  constexpr std::uint64_t release_delta(std::uint32_t requests, std::uint32_t writers) const {
    return requests * release_delta(Mode::shared) - (std::uint64_t{writers} << wcnt_shift_);
  }
  // More than that do not fit.
  constexpr std::uint32_t requests_max() const { return count_mask_; }

 private:
  static constexpr std::uint32_t mask_of(unsigned bits) { return (std::uint32_t{1} << bits) - 1; }
  static constexpr std::size_t index(Mode mode) { return mode == Mode::exclusive ? 1 : 0; }

  unsigned reset_id_bits_ = 0;
  unsigned count_bits_ = 0;
  unsigned wcnt_shift_ = 0;
  unsigned qsize_shift_ = 0;
  unsigned ticket_shift_ = 0;
  std::uint32_t reset_id_mask_ = 0;
  std::uint32_t count_mask_ = 0;
  std::uint64_t requests_mask_ = 0;
  std::array<std::uint64_t, 2> busy_mask_{};  // by mode
  std::array<std::uint64_t, 2> acquire_delta_{};
  std::array<std::uint64_t, 2> release_delta_{};
};

namespace header_checks {

constexpr bool widths(unsigned members, unsigned reset_id, unsigned count, unsigned ticket) {
  const HeaderLayout layout{members};
  return layout.reset_id_bits() == reset_id && layout.count_bits() == count &&
         layout.ticket_bits() == ticket;
}
static_assert(widths(8, 6, 5, 42));
static_assert(widths(128, 10, 9, 30));
static_assert(widths(1024, 13, 12, 21));

// For every number of members: ids for all of them and nobody, in each of four incarnations; counts
// up to four times the members; each field separate from its neighbours.
constexpr bool sound(unsigned members) {
  const HeaderLayout layout{members};
  if ((1u << layout.reset_id_bits()) < 4 * (members + 1)) return false;
  if ((1u << layout.count_bits()) < 4 * members) return false;
  const Header full{Ticket{(std::uint64_t{1} << layout.ticket_bits()) - 1},
                    (1u << layout.count_bits()) - 1, 0, Epoch{63}, ResetId{0}};
  if (layout.decode(layout.encode(full)) != full) return false;
  const Header writers{Ticket{0}, 0, (1u << layout.count_bits()) - 1, Epoch{0},
                       ResetId{static_cast<std::uint16_t>((1u << layout.reset_id_bits()) - 1)}};
  if (layout.decode(layout.encode(writers)) != writers) return false;
  const std::uint64_t held = layout.acquire_delta(Mode::exclusive);
  return layout.decode(held) == Header{Ticket{0}, 1, 1, Epoch{0}, ResetId{0}} &&
         layout.decode(held + layout.release_delta(Mode::exclusive)) ==
             Header{Ticket{1}, 0, 0, Epoch{0}, ResetId{0}};
}
constexpr bool sound_up_to(unsigned members) {
  for (unsigned m = 1; m <= members; ++m) {
    if (!sound(m)) return false;
  }
  return true;
}
static_assert(sound_up_to(HeaderLayout::kMembersMax));

}  // namespace header_checks
}  // namespace declock
