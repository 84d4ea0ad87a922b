// The token: what whoever holds a lock exclusively knows of everybody who waits, and hands over with the lock. So a lock that
// many want moves from compute node to compute node by messages alone (ours; the paper's lock asks the memory node each time).
// This is the decision alone, with no I/O; token.cc acts on it.
//
//   born      with a writer whose turn the header shows: everybody ahead of it has left.
//   ring      the nodes that wait, in the order in which they will be visited. The token learns of new ones by a look at the
//             queue: in the order of their tickets, and without a gap.
//   visit     the node that has the token lets a number of its writers have the lock, then it passes the token on to the
//             next node that has writers. If its own clients still wait it goes to the end of the ring.
//   phase     once per rotation all readers of all nodes have the lock together. Each node is told who is next, and tells
//             that node when its readers are done, and whether it stays in the ring.
//   ends      when nobody waits: with one fetch-and-add that takes out of the header everybody the token has accounted for.
//
// Invariants, while a token lives in an era of the lock:
//   T1  There is one, and the header's ticket is its base. The header counts at least one writer: so whoever asks waits.
//   T2  It accounts for all requests from the base to known_end(), and for no others. Each of them is in the ring, or has left
//       (and stays in the header's counts until somebody settles them), or is the one of whoever has the token.
//   T3  Of those in the ring, whoever has not been heard of since it wrote its entry (not `met`) may yet look at the header and
//       take its turn. So the base stays below their tickets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cql/carried.h"
#include "cql/queue_view.h"
#include "layout/ids.h"

namespace declock::cql {

// A node that waits, and what it waits for.
struct RingPlace {
  Slot slot{};
  bool odd = false;  // incarnation of the node
  WorkerId worker{};
  std::uint32_t ticket = 0;
  bool writers = false;  // writers wait there, as far as is known,
  bool readers = false;  // and readers
  bool visited = false;  // in this rotation
  bool met = false;      // T3
  bool awaited = false;  // readers there have the lock: the holder of the token waits for its answer

  bool waits() const { return writers || readers; }
  bool operator==(const RingPlace&) const = default;

  constexpr std::uint64_t packed() const {
    return std::uint64_t{ticket} | std::uint64_t{slot.value} << 32 | std::uint64_t{worker.value} << 42 |
           std::uint64_t{odd} << 50 | std::uint64_t{writers} << 51 | std::uint64_t{readers} << 52 |
           std::uint64_t{visited} << 53 | std::uint64_t{met} << 54 | std::uint64_t{awaited} << 55;
  }
  static constexpr RingPlace unpack(std::uint64_t word) {
    return {Slot{static_cast<std::uint16_t>(word >> 32 & 0x3FF)},
            (word >> 50 & 1) != 0,
            WorkerId{static_cast<std::uint8_t>(word >> 42)},
            static_cast<std::uint32_t>(word),
            (word >> 51 & 1) != 0,
            (word >> 52 & 1) != 0,
            (word >> 53 & 1) != 0,
            (word >> 54 & 1) != 0,
            (word >> 55 & 1) != 0};
  }
};

// What happens when a visit is over.
struct Move {
  enum class Kind : std::uint8_t {
    end,   // nobody waits
    free,  // only readers wait: they get the lock, and the token ends
    pass,  // `next` gets the token
  };
  Kind kind = Kind::end;
  RingPlace next{};
  bool phase = false;  // all readers come first
};

struct LockToken {
  // Bounds what travels: who does not fit is found by a later look.
  static constexpr std::size_t kRingMax = 100;
  // From here on the base is to grow, so that the sequence begins anew: fencing tokens grow for ever (H24).
  static constexpr std::uint32_t kSequenceMax = std::uint32_t{1} << 31;

  Ticket base{};
  std::uint32_t accounted = 1;  // requests
  std::uint32_t writers = 1;    // of these, as the header counts them
  std::uint32_t sequence = 0;   // exclusive holders since it was born
  std::uint32_t hop = 1;        // how often it has moved: tells its messages apart
  std::uint32_t unseen = 0;     // moves since somebody looked at the queue
  Carried object{};             // as the last writer left it, if that is known
  bool no_phase = false;        // the last rotation ended without one: no readers were known
  std::vector<RingPlace> ring{};

  Ticket known_end() const { return Ticket{base.value + accounted}; }
  // Requests that have left, without the one of whoever has the token.
  std::uint32_t departed() const { return accounted - 1 - static_cast<std::uint32_t>(ring.size()); }
  bool wants_a_new_base() const { return sequence >= kSequenceMax; }
  bool is_awaiting() const {
    return std::any_of(ring.begin(), ring.end(), [](const RingPlace& p) { return p.awaited; });
  }

  // Takes in those who have come since, from what was read of the queue.
  void merge(const QueueView& view) {
    unseen = 0;
    std::vector<RingPlace> seen;
    view.for_each([&](const Waiter& w) {
      const bool writes = w.mode == Mode::exclusive;
      seen.push_back({.slot = w.owner,
                      .odd = w.odd,
                      .worker = w.worker,
                      .ticket = static_cast<std::uint32_t>(w.ticket.value),
                      .writers = writes,
                      .readers = !writes || w.asked == kReadersToo});
    });
    std::sort(seen.begin(), seen.end(),
              [](const RingPlace& a, const RingPlace& b) { return a.ticket < b.ticket; });
    for (const RingPlace& place : seen) {
      const bool is_next = place.ticket == static_cast<std::uint32_t>(known_end().value);
      if (!is_next && view.rules().ring_has_no_gaps) return;
      if (ring.size() == kRingMax) return;
      ring.push_back(place);
      accounted += 1;
      writers += place.writers ? 1 : 0;
    }
  }

  // Decides what comes next, and prepares it: afterwards `ring` is without the next one, and says whose answers are awaited.
  Move move_on() {
    if (ring.empty()) return {};
    if (std::none_of(ring.begin(), ring.end(), [](const RingPlace& p) { return p.writers; })) {
      return {Move::Kind::free, {}, true};
    }
    // Whoever comes anew is behind those who wait, visited or not: nodes that leave and ask again keep nobody waiting.
    const auto next =
        std::find_if(ring.begin(), ring.end(), [](const RingPlace& p) { return p.writers; });
    const bool over = next->visited;  // the rotation
    const bool readers =
        std::any_of(ring.begin(), ring.end(), [](const RingPlace& p) { return p.readers; });
    const bool reader_first = readers && !ring.front().writers;
    // Nobody knew of readers at the end of the last rotation: those who wait now may have waited since its beginning.
    const bool late = readers && no_phase;
    const bool phase = readers && (over || reader_first || late);
    if (over || phase) {
      no_phase = !phase;
      for (RingPlace& p : ring) p.visited = false;
    }
    const Move move{Move::Kind::pass, *next, phase};
    ring.erase(next);
    if (phase) {
      for (RingPlace& p : ring) p.awaited = true;
    }
    hop += 1;
    unseen += 1;
    return move;
  }

  // The node in this slot has answered: its readers are done. False: nobody awaits that.
  bool take_answer(const RingPlace& answer) {
    const auto place = std::find_if(ring.begin(), ring.end(),
                                    [&](const RingPlace& p) { return p.slot == answer.slot; });
    if (place == ring.end() || !place->awaited || place->ticket != answer.ticket) return false;
    if (!answer.waits()) {
      ring.erase(place);
      return true;
    }
    const bool visited = place->visited;
    *place = answer;
    place->visited = visited;
    place->met = true;
    return true;
  }

  // How many of those who have left can be taken out of the header now, while the token lives on. REQUIRES: no answer is awaited.
  std::uint32_t may_settle(const Rules& rules) const {
    std::uint64_t below = known_end().value;
    for (const RingPlace& p : ring) {
      if (!p.met && rules.base_below_unmet) below = std::min<std::uint64_t>(below, p.ticket);
    }
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(departed(), below - 1 - base.value));
  }
  // As so many of them may count as writers: one stays (T1).
  std::uint32_t writers_among(std::uint32_t settled) const { return std::min(settled, writers - 1); }
  // They were taken out. What was seen of the queue meanwhile may have changed the rest.
  void settled(std::uint32_t requests, std::uint32_t of_writers) {
    base.value += requests;
    accounted -= requests;
    writers -= of_writers;
    sequence = 0;  // the base has grown
  }
};

}  // namespace declock::cql
