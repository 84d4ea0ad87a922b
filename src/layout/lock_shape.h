// How a lock lies in memory: the header, a slot per possible waiter, and a count of ticket wraps; all
// 8-byte words. Zeroed memory is a free lock.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "layout/header.h"
#include "layout/ids.h"

namespace declock {

enum class QueueLayout : std::uint8_t {
  owner,  // slot = the waiter's member number. Nobody writes to the slot of another member that lives.
  ring,   // slot = ticket mod capacity, as in the paper. Loses a waiter (H1); kept to show that.
};

struct LockShape {
  HeaderLayout header;
  std::uint32_t slots;
  QueueLayout queue;
  Ticket
      ticket_limit;  // from here on a reset is needed first: the ticket would repeat (H24), or the ring's version
  // Counts and words below these are far from any limit.
  std::uint64_t few_requests;
  std::uint64_t early_ticket = 0;

  // REQUIRES: members fit the header; with owner slots there is a slot for every member.
  constexpr LockShape(unsigned members, unsigned slot_count, QueueLayout layout)
      : header(members),
        slots(slot_count),
        queue(layout),
        ticket_limit(header.ticket_limit()),
        few_requests(header.encode({.qsize = slots})) {
    CHECK(slot_count >= 1 && (layout == QueueLayout::ring || slot_count >= members));
    const std::uint64_t versions = std::uint64_t{0xFFFF} * slots;
    if (queue == QueueLayout::ring && versions < ticket_limit.value) ticket_limit = Ticket{versions};
    early_ticket = header.encode({.ticket = Ticket{ticket_limit.value - slots}});
  }

  // Ring: how often the ring was traversed before this ticket, plus one. An entry has 16 bits for it.
  constexpr std::uint64_t ring_version(Ticket ticket) const { return ticket.value / slots + 1; }

  // Does this header, for sure, give the lock at once to a request that finds it? Quicker than cql::verdict_on(), which says the
  // same of its fields, and tells the other cases apart.
  constexpr bool surely_gives(std::uint64_t word, Mode mode) const {
    return header.admits(word, mode) && word < early_ticket && header.requests_in(word) < few_requests;
  }

  // What a releaser reads: header and slots.
  constexpr std::uint32_t queue_words() const { return 1 + slots; }
  constexpr std::uint64_t bytes() const { return (queue_words() + 1) * std::uint64_t{8}; }

  constexpr RemoteAddr slot_addr(RemoteAddr lock, std::uint32_t slot) const {
    return lock + 8 * (1 + std::uint64_t{slot});
  }
  constexpr RemoteAddr wraps_addr(RemoteAddr lock) const {
    return lock + std::uint64_t{8} * queue_words();
  }
};

}  // namespace declock
