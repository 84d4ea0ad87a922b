// Events in the order of their time; those of one instant in the order in which they were added.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/time.h"

namespace declock::sim {

enum class EventKind : std::uint32_t {
  arrive,     // a chain reaches the MN's NIC
  free_slot,  // the slot that processing units wait for is free again
  tear,       // the second half of a torn read
  complete,   // a chain's completion reaches the client
  deliver,    // a message reaches its endpoint
  timer,
};

struct Event {
  std::int64_t at_ns;
  std::uint64_t sequence;
  EventKind kind;
  std::uint32_t index;  // of the flight, slot, letter or timer
};

// A heap with four children per node: half the depth of a binary one, and the children of a node lie
// side by side in memory.
class EventHeap {
 public:
  bool empty() const { return events_.empty(); }
  const Event& top() const { return events_.front(); }

  void push(Time at, EventKind kind, std::uint32_t index) {
    const Event event{at.ns, next_sequence_++, kind, index};
    std::size_t hole = events_.size();
    events_.push_back(event);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (!before(event, events_[parent])) break;
      events_[hole] = events_[parent];
      hole = parent;
    }
    events_[hole] = event;
  }

  void pop() {
    const Event last = events_.back();
    events_.pop_back();
    const std::size_t size = events_.size();
    if (size == 0) return;
    std::size_t hole = 0;
    for (;;) {
      const std::size_t first = 4 * hole + 1;
      if (first >= size) break;
      std::size_t least = first;
      const std::size_t end = first + 4 < size ? first + 4 : size;
      for (std::size_t child = first + 1; child < end; ++child) {
        if (before(events_[child], events_[least])) least = child;
      }
      if (!before(events_[least], last)) break;
      events_[hole] = events_[least];
      hole = least;
    }
    events_[hole] = last;
  }

 private:
  static bool before(const Event& a, const Event& b) {
    return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.sequence < b.sequence;
  }

  std::vector<Event> events_;
  std::uint64_t next_sequence_ = 0;
};

}  // namespace declock::sim
