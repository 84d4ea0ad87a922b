// What a compute node knows of one lock: its place in the queue on the memory node (src/cql decides over it), and which of its
// clients hold the lock or wait here (src/hier does). The node is one member of the queue: it has at most one request there
// at a time (I4, H34).
#pragma once

#include <coroutine>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cql/carried.h"
#include "cql/messages.h"
#include "cql/token.h"
#include "declock/task.h"
#include "layout/lock_shape.h"
#include "lock/lock.h"
#include "runtime/thread_wait.h"
#include "runtime/worker.h"

namespace declock::cql {

// ---------------------------------------------------------------- the place in the queue

// The node waits for a grant; lives in a coroutine's frame.
struct Waiting {
  GrantKey key;
  Mode mode{};
  Worker* worker = nullptr;  // resumes it
  std::coroutine_handle<> coroutine{};
  enum class State : std::uint8_t {
    waits,
    leaves,  // nobody wants the lock any more: the coroutine is awake, and sees whether it can leave the queue
    granted,
    aborted,
    left,
  } state = State::waits;
  std::optional<RemoteWait> waiting_since{};  // once granted
  // The token lock: nobody has sent it anything yet, so the header still tells whether its turn has come (T3).
  bool fresh = true;
  // How it was granted the lock, and what the token said then.
  bool freed = false;  // only readers were left, and the token has ended
  bool in_phase = false;
  std::optional<Ticket> base{};
  std::uint32_t sequence = 0;
  // Looks whether anybody is left who can end the wait (watch.cc): when next, and what it has seen so far.
  struct Watch {
    Task<void> task{};
    Time next{};
    std::optional<Header> header{};
    // No member would move this ticket, with these hops: a grant may have been under way just then.
    std::optional<std::pair<Ticket, std::uint32_t>> nobody_at{};
  } watch{};

  bool is_over() const { return state != State::waits && state != State::leaves; }
  // Ends the wait, or wakes it up, unless it is over. True: its coroutine is asleep, and is to be resumed.
  bool become(State next) {
    if (is_over()) return false;
    const bool asleep = state == State::waits && coroutine;
    state = next;
    return asleep;
  }
};

// What a node has to do with a lock's token.
struct Turns {
  std::uint32_t hop = 0;  // of the last message that was for its place in the ring; 0: none came yet
  std::optional<LockToken> token{};  // it has the token, and holds the lock or waits for answers
  // Its readers have the lock in a phase: whom to tell when they are done, unless the token is here.
  struct Phase {
    RingPlace next;
    std::uint32_t hop;
  };
  std::optional<Phase> phase{};
  // Answers that came before the token that they are for.
  struct Answer {
    std::uint32_t hop;
    RingPlace from;
  };
  std::vector<Answer> early{};
};

// A reset that somebody claimed, and to whom an answer is owed.
struct Claim {
  EndpointId claimant;
  member::Incarnation incarnation;
  Era era;

  constexpr bool operator==(const Claim&) const = default;
};

// ---------------------------------------------------------------- the clients of the node

// Of clients that hold a lock, for whoever wants to know; under the mutex of the requests.
struct HoldCounts {
  std::uint32_t now = 0;
  std::uint32_t handed = 0;  // that were granted it by another client of the node
};

// A client that waits; lives in its coroutine's frame, or on its thread's stack.
struct LocalWaiter {
  RemoteAddr addr{};
  Mode mode = Mode::shared;
  Asked asked{};
  Worker* worker = nullptr;  // resumes it
  std::coroutine_handle<> coroutine{};
  ThreadWait* thread = nullptr;  // of a thread that runs no worker: it is woken instead
  HoldCounts* counts = nullptr;  // one more, once it is granted
  Op* object = nullptr;          // to be read along, should somebody acquire the CQL lock for it
  bool may_give_up = false;
  bool waiting = false;   // neither granted nor refused
  bool is_late = false;   // its time is over; it is refused unless the lock turns out to be free
  Hold hold{};            // once granted
  Hold behind{};          // whose hold it waits behind, if it is to look for remote waiters
  Errc error = Errc::ok;  // once refused
  LocalWaiter* next = nullptr;
};

// A client whose WRITE another's will stand for, and that waits until that one has landed. Lives in its coroutine's frame.
struct Landing {
  Worker* worker = nullptr;
  std::coroutine_handle<> coroutine{};
  bool landed = false;
  Result<void> result{};
  Landing* next = nullptr;
};

struct LocalLock {
  enum class State : std::uint8_t { absent, acquiring, held, releasing };
  State state = State::absent;
  Mode asked_for = Mode::shared;  // state acquiring
  bool unanswered = false;        // state acquiring: the lock may be free
  bool looking = false;           // a prefetch is under way
  Mode held_as =
      Mode::shared;  // by the clients; under `slack` readers may share what the node has exclusively
  WorkerId releasing_worker{};  // state releasing
  std::uint32_t holders = 0;
  std::uint32_t in_a_row = 0;  // local hand-overs since the CQL lock was acquired
  std::uint32_t gate = 0;      // of the token lock: writers that may yet have it in this visit
  bool passing = false;        // state releasing, of the token lock: nobody may ask behind the release
  std::uint32_t joins = 0;     // readers that joined since somebody looked at the queue
  LocalWaiter* asker = nullptr;  // state acquiring: for whom; null: that client gave up
  LocalWaiter* first = nullptr;  // of those who wait, in the order of arrival
  LocalWaiter* last = nullptr;
  // The object as whoever holds the lock has it, if that is known; and those whose WRITEs of it wait for another's.
  Carried object{};
  Landing* unlanded = nullptr;
  Hold hold;    // of the CQL lock. Its mode is the mode that is released, whoever releases it (H11).
  Time since;   // when the first of the holders got it; 0: nobody has looked at the time yet
  Time looked;  // when somebody looked at the queue
  // The remote client that has waited longest, and since when anybody remote is known to wait.
  std::optional<RemoteWait> remote;
  std::optional<Era> reset;  // the last that began; a hold of that era must not be passed on

  // A client got it with a hold that the CQL lock has given to the node. `now`: 0 if nobody has looked at the time.
  void begin(const Hold& granted, Mode as, Time now) {
    state = State::held;
    asker = nullptr;
    hold = granted;
    hold.object_read = false;
    held_as = as;
    holders = 1;
    in_a_row = gate = 0;
    remote = granted.waiting_since;
    joins = 0;
    since = looked = now;
  }
  // As whoever holds it now has it.
  Hold hold_now() const {
    Hold now = hold;
    now.local_sequence = in_a_row;
    return now;
  }
  // Its only client has released it, and nobody else is here.
  void end() {
    state = State::absent;
    holders = 0;
    looking = false;  // what it sees is void
    reset.reset();
  }
  bool may_be_passed_on() const {
    return !reset || reset->epoch != hold.epoch || reset->mn_incarnation != hold.mn_incarnation;
  }
};

// What the clients of the node wait for.
inline void note_wishes(RingPlace& place, const LocalLock& lock) {
  place.writers = place.readers = false;
  const auto note = [&](const LocalWaiter* w) {
    if (w != nullptr) (w->mode == Mode::exclusive ? place.writers : place.readers) = true;
  };
  if (lock.state == LocalLock::State::acquiring) note(lock.asker);
  for (const LocalWaiter* w = lock.first; w != nullptr; w = w->next) note(w);
}

// ---------------------------------------------------------------- both

struct Record {
  RemoteAddr lock;
  // What whoever locks and unlocks in one step, again and again, leaves here: all there is to know of the lock, until somebody
  // else looks at the record and unfolds it.
  enum class Folded : std::uint8_t { no, free, shared, exclusive };
  Folded folded = Folded::no;
  std::uint64_t found = 0;           // the header that whoever holds it found
  std::uint32_t of_incarnation = 0;  // of its memory node, which never restarts
  const LockShape* shape = nullptr;
  std::uint32_t users = 0;        // coroutines that have a reference to this
  std::uint32_t keepers = 0;      // who want it to stay, whatever it says
  std::uint32_t outstanding = 0;  // operations that were posted and may yet take effect
  std::optional<Ticket> held{};
  std::uint32_t handing_over = 0;  // releases that look for whom to grant the lock to
  bool resetting = false;          // this member runs a reset of it
  Era era{};                       // in which the member entered the queue
  Waiting* waiting = nullptr;
  Turns turns{};
  // No client here wants the lock that the member asks for, exclusively (leave.cc).
  bool unwanted = false;
  std::optional<Era> reset_of{};  // a reset of this era was signalled, and has not been seen to be over
  std::vector<Claim> unanswered{};
  // How often the tickets of the lock have started again, as somebody here has read in this era: only a reset changes it.
  struct Wraps {
    Era era;
    std::uint64_t count;
  };
  std::optional<Wraps> wraps{};
  LocalLock local{};

  void unfold() {
    const Folded as = std::exchange(folded, Folded::no);
    if (as == Folded::no || as == Folded::free) return;
    hold_at_once(as == Folded::shared ? Mode::shared : Mode::exclusive, shape->header.decode(found),
                 of_incarnation);
  }
  // The fetch-and-add of a request has found this, and that gives the node the lock.
  Hold note_held(Mode mode, const Header& seen, std::uint32_t incarnation) {
    held = seen.end();
    era = {seen.epoch, incarnation};
    turns = {};
    local.object.forget();
    return {.lock = lock,
            .mode = mode,
            .epoch = seen.epoch,
            .ticket = seen.end(),
            .mn_incarnation = incarnation};
  }
  // The same where the request is that of one client.
  void hold_at_once(Mode mode, const Header& seen, std::uint32_t incarnation) {
    local.begin(note_held(mode, seen, incarnation), mode, Time{});
  }

  // Holds the lock, or waits for it. `era` says in which life of the lock.
  bool in_queue() const {
    return held || (waiting != nullptr && waiting->state != Waiting::State::aborted &&
                    waiting->state != Waiting::State::left);
  }
  bool is_of(const Era& other) const {
    return era.epoch == other.epoch && is_of_incarnation(other.mn_incarnation);
  }
  // As messages carry it.
  bool is_of_incarnation(std::uint32_t mn_incarnation) const {
    return ((era.mn_incarnation ^ mn_incarnation) & kIncarnationMask) == 0;
  }
  std::optional<std::uint64_t> wraps_in(const Era& other) const {
    return wraps && wraps->era == other ? std::optional{wraps->count} : std::nullopt;
  }
  bool quiet() const { return outstanding == 0 && !held && waiting == nullptr; }
  bool is_used() const {
    return users > 0 || handing_over > 0 || !quiet() || local.state != LocalLock::State::absent;
  }
  // Not worth remembering. A reset that this member has answered may go on: whoever asks for the lock meanwhile finds that
  // in its header.
  bool idle() const { return !is_used() && !resetting && unanswered.empty(); }
};

}  // namespace declock::cql
