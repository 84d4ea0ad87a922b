// What is explored: a program, on which lock, and what may go wrong meanwhile.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cql/cql.h"
#include "explore/mutants.h"
#include "explore/program.h"
#include "layout/lock_shape.h"
#include "locks/family.h"

namespace declock::explore {

// How many of each may happen, at any moment. Of the locks with a queue, whose members are the compute nodes of a
// declock- lock, or the clients of `cql`.
struct Mishaps {
  unsigned faults = 0;    // members crash, or are taken for dead wrongly
  unsigned resets = 0;    // somebody resets the lock for nothing
  unsigned breaks = 0;    // a member's connection to the memory node breaks: outcomes are unknown
  unsigned restarts = 0;  // the memory node restarts, with fresh memory
  unsigned losses = 0;    // a message between members is lost; no fabric does that
  unsigned repeats = 0;   // a message arrives twice; the same
  bool operator==(const Mishaps&) const = default;
};

struct Scenario {
  Program program;
  std::string lock = "cql";
  QueueLayout layout = QueueLayout::owner;
  unsigned slots = 4;  // of the queue
  Protocol protocol{};
  cql::ReleaseRead release_read = cql::ReleaseRead::adaptive;
  bool piggyback = false;  // sections use an object, with the lock's doorbells
  // As in shared memory: clients lock and unlock in one step where they can (hier/at_once.h).
  bool at_once = false;
  Mishaps mishaps{};
  unsigned joins = 0;  // so many members, the last ones, join at some moment
  // So many members, the last ones, join one after the other, each in the slot of the one before it once that has left.
  unsigned heirs = 0;
  // For tests: a lock that is not in the list.
  std::function<std::unique_ptr<locks::LockFamily>()> family{};

  // Does who is alive change, or what the members know of each other?
  bool failing() const { return mishaps != Mishaps{} || joins > 0 || heirs > 0; }
  // Does each compute node, rather than each client, have a slot in the queue?
  bool hierarchical() const { return lock.starts_with("declock-"); }
  bool has_queue() const { return hierarchical() || lock == "cql"; }
  std::size_t members() const { return hierarchical() ? program.size() : client_count(program); }
  LockShape shape() const { return {static_cast<unsigned>(members()), slots, layout}; }
};

}  // namespace declock::explore
