// Whom a releaser must grant the lock to: the decision alone, with no I/O (paper sections 4.2 and 4.3).
//
// The view covers [h, T): h is the ticket after the one that this release finished, T is one past the
// last in the queue, both from the release's own fetch-and-add.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cql/queue_view.h"
#include "lock/lock.h"

namespace declock::cql {

// What the fetch-and-add of a release found.
inline bool owes_nothing(const Hold& hold, const Header& found) {
  if (found.reset_id != ResetId{0}) return true;  // the reset cleans up
  if (found.qsize == 1) return true;              // nobody else is there
  if (hold.mode == Mode::exclusive) return false;
  // Nobody waits for a reader. Or: readers are interchangeable, the ticket after the one that we finished is our own, and
  // it is a reader's.
  return found.wcnt == 0 || found.ticket.value + 1 == hold.ticket.value;
}

// When the first of those who wait behind this hold asked: of all of them if it is exclusive; if it is shared, of those from
// the first writer on, since the readers up to there hold the lock as well.
inline std::optional<Timestamp> waiting_behind(const Hold& hold, const Rules& rules,
                                               const LockShape& shape,
                                               std::span<const std::uint64_t> queue) {
  const Ticket behind{hold.ticket.value + 1};
  const QueueView view{rules,      shape,  queue,
                       hold.epoch, behind, std::max(behind, shape.header.decode(queue[0]).end())};
  Ticket from = behind;
  if (hold.mode == Mode::shared) {
    from = view.end();
    view.for_each([&](const Waiter& w) {
      if (w.mode == Mode::exclusive && !w.has_left()) from = std::min(from, w.ticket);
    });
  }
  return view.waiting_since(from);
}

struct Decision {
  Ticket grant_end;  // grant the lock to all of [h, grant_end)
  bool settled;      // nothing more is owed; otherwise the view does not tell yet: refetch
};

// The end of the run of readers in sight that begins at h. Of the token lock; otherwise only for protocols without H27 or H29.
inline Ticket end_of_visible_run(const QueueView& view) {
  Ticket end = view.begin();
  for (bool found = true; found;) {
    found = false;
    view.for_each([&](const Waiter& w) {
      if (w.ticket == end && w.mode == Mode::shared) found = true;
    });
    if (found) end.value += 1;
  }
  return end;
}

// The token lock: whose turn it is where the queue begins with the view, up to the first who is not in sight: one writer, or all
// readers ahead of the next. `readers_hold`: no writer, as readers ahead hold the lock.
inline Ticket end_of_turn(const QueueView& view, bool readers_hold) {
  const Ticket readers = end_of_visible_run(view);
  if (readers > view.begin() || readers_hold) return readers;
  bool writer = false;
  view.for_each([&](const Waiter& w) { writer = writer || w.ticket == view.begin(); });
  return writer ? Ticket{view.begin().value + 1} : view.begin();
}

// A release in one step that leaves something to do: what it found, and, if that is decided already, the end of those whom it grants
// the lock. Some of them may have been granted it: so nobody may decide anew (H29).
struct Owing {
  Header found{};
  std::optional<Ticket> grant_end{};
};

// A writer leaves: everything in [h, T) waits, and h is next, alone if it is a writer, with the whole
// group of readers up to the next writer if it is a reader. `readers_hold`: it leaves before its turn, while readers
// hold the lock (leave.cc); then the next writer has to wait for them.
inline Decision after_writer(const QueueView& view, bool readers_hold = false) {
  const Ticket h = view.begin();
  // H28: the ticket may pass a waiting reader, because readers that came later can leave first. It
  // proves nothing to a writer.
  if (!view.rules().writer_owes_its_successor && view.header().ticket > h) return {h, true};

  Ticket next_writer = view.end();
  view.for_each([&](const Waiter& w) {
    if (w.mode == Mode::exclusive) next_writer = std::min(next_writer, w.ticket);
  });
  if (next_writer == h) return {readers_hold ? h : Ticket{h.value + 1}, true};

  std::uint64_t readers = 0;
  view.for_each([&](const Waiter& w) {
    if (w.ticket < next_writer) readers += 1;
  });
  if (readers == next_writer.value - h.value) return {next_writer, true};

  // H27: a missing entry is not the end of the group. Whoever it belongs to waits as well.
  if (!view.rules().gap_is_not_the_end) {
    const Ticket end = end_of_visible_run(view);
    if (end > h) return {end, true};
  }
  // H29: the group is granted at once or not yet. Its first reader may let a writer in, and after that
  // the rest of the group could not be told from what came later.
  if (!view.rules().group_at_once) return {end_of_visible_run(view), false};
  return {h, false};
}

// A reader leaves: of those behind it only a writer can be waiting for this release. `wcnt` is the
// number of writers in [h, T).
inline Decision after_reader(const QueueView& view, std::uint32_t wcnt) {
  const Ticket h = view.begin();
  // H2: others have finished the job. Only readers may think so.
  if (view.rules().passed_ticket_frees_reader && view.header().ticket > h) return {h, true};

  bool reader_is_next = false;
  bool writer_is_next = false;
  std::uint32_t writers = 0;
  view.for_each([&](const Waiter& w) {
    if (w.mode == Mode::exclusive) writers += 1;
    if (w.ticket == h) (w.mode == Mode::exclusive ? writer_is_next : reader_is_next) = true;
  });
  if (writer_is_next) return {Ticket{h.value + 1}, true};
  // Readers that hold the lock at once write no entry. With all writers in sight, whoever is missing is
  // a reader. A writer that left before its turn (leave.cc) may be in sight and not be counted; then it has only readers ahead.
  const bool all_writers_seen = writers >= wcnt || !view.rules().writers_are_counted;
  return {h, reader_is_next || all_writers_seen};
}

// A writer that holds the lock is the first in the queue: found.ticket is its own. One that leaves before its turn is not.
inline Ticket first_owed(const Hold& hold, const Header& found) {
  return Ticket{(hold.mode == Mode::exclusive ? hold.ticket : found.ticket).value + 1};
}

// What the release of `hold`, which found this, is to look at: those whom it may owe the lock.
inline QueueView behind_release(const Hold& hold, const Header& found, const Rules& rules,
                                const LockShape& shape, std::span<const std::uint64_t> queue) {
  return {rules, shape, queue, found.epoch, first_owed(hold, found), found.end()};
}
// The lock is being reset, or was: nothing is owed any more.
inline bool is_void(const QueueView& view, const Header& found) {
  return view.header().reset_id != ResetId{0} || view.header().epoch != found.epoch;
}
inline Decision whom_to_grant(const QueueView& view, const Hold& hold, const Header& found) {
  return hold.mode == Mode::exclusive ? after_writer(view, found.ticket < hold.ticket)
                                      : after_reader(view, found.wcnt);
}

}  // namespace declock::cql
