// What a releaser sees of a lock: the header and the slots, read in one READ that may be torn. Slots of
// requests that came and went, or whose entry is on its way, hold something old; a view shows only the
// entries that belong to the tickets asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "cql/rules.h"
#include "layout/entry.h"
#include "layout/lock_shape.h"
#include "layout/timestamp.h"

namespace declock::cql {

// A waiter that has written its entry, granted perhaps; or a writer that has left the queue before its turn, and still ends a
// group of readers (leave.cc).
struct Waiter {
  Ticket ticket{};
  Mode mode;
  Slot owner;
  WorkerId worker{};
  Timestamp asked;
  bool odd;  // incarnation of the owner

  bool has_left() const { return worker == kNobody; }
  bool is_granted() const { return worker == kGranted || worker == kGrantedLast; }  // in its entry
  bool may_be_granted() const { return !has_left() && !is_granted(); }
  bool watches() const { return worker == kWatching; }
};

class QueueView {
 public:
  // Looks for the tickets [begin, end) of one epoch in `words`: the header, then the slots, or those up to the last that was ever
  // used.
  QueueView(const Rules& rules, const LockShape& shape, std::span<const std::uint64_t> words,
            Epoch epoch, Ticket begin, Ticket end)
      : rules_(rules), shape_(shape), words_(words), epoch_(epoch), begin_(begin), end_(end) {}

  const Rules& rules() const { return rules_; }
  Header header() const { return shape_.header.decode(words_[0]); }
  Ticket begin() const { return begin_; }
  Ticket end() const { return end_; }

  // Calls fn(const Waiter&) for every waiter in sight, in no particular order.
  template <class Fn>
  void for_each(Fn fn) const {
    if (shape_.queue == QueueLayout::owner) {
      for (std::uint32_t slot = 0; slot + 1 < words_.size(); ++slot) see_owner_slot(slot, fn);
    } else {
      for (Ticket t = begin_; t < end_; t.value += 1) see_ring_slot(t, fn);
    }
  }

  // Its entry. Owner layout only.
  std::uint64_t word_of(const Waiter& w) const { return words_[1u + w.owner.value]; }

  // When the first of the waiters in sight from this ticket on asked.
  std::optional<Timestamp> waiting_since(Ticket from) const {
    std::optional<Timestamp> first;
    for_each([&](const Waiter& w) {
      if (w.ticket >= from && w.may_be_granted() && (!first || is_earlier(w.asked, *first)))
        first = w.asked;
    });
    return first;
  }

  // Ring only: a later request has written over an entry that is still needed.
  bool overwritten() const {
    if (shape_.queue == QueueLayout::owner) return false;
    for (Ticket t = begin_; t < end_; t.value += 1) {
      const Entry entry = ring_entry(t);
      const bool later = RingTag::unpack(entry.tag).version > shape_.ring_version(t);
      if (entry.epoch == epoch_ && later) return true;
    }
    return false;
  }

 private:
  template <class Fn>
  void see_owner_slot(std::uint32_t slot, Fn& fn) const {
    const std::uint64_t word = words_[1 + slot];
    if (word == 0) return;
    const Entry entry = decode_entry(word);
    if (rules_.epochs_match && entry.epoch != epoch_) return;  // H6
    Ticket ticket{entry.tag};
    if (!rules_.tickets_match) ticket = begin_;
    if (ticket < begin_ || ticket >= end_) return;
    fn(Waiter{ticket, entry.mode, Slot{static_cast<std::uint16_t>(slot)}, entry.worker, entry.timestamp,
              entry.odd});
  }

  template <class Fn>
  void see_ring_slot(Ticket t, Fn& fn) const {
    const Entry entry = ring_entry(t);
    const RingTag tag = RingTag::unpack(entry.tag);
    if (entry.epoch != epoch_ || tag.version != shape_.ring_version(t)) return;
    fn(Waiter{t, entry.mode, tag.owner, entry.worker, entry.timestamp, entry.odd});
  }

  Entry ring_entry(Ticket t) const { return decode_entry(words_[1 + t.value % shape_.slots]); }

  const Rules& rules_;
  const LockShape& shape_;
  std::span<const std::uint64_t> words_;
  Epoch epoch_;
  Ticket begin_;
  Ticket end_;
};

}  // namespace declock::cql
