// The local locks of one compute node (CN): who of its clients holds or waits for which lock, and whether
// the CN as a whole has it (paper section 5.1). A CN is one member of a lock's queue on the memory node; it
// has at most one request there at a time (H34).
//
// Nothing here waits: every call decides under the table's mutex and says what is to be done, so no mutex
// is ever held across a suspension (H22). The operations themselves are in hier.h.
//
//   state      the CN                                 holders   waiting
//   ---------  -------------------------------------  --------  ----------------------------------
//   (absent)   has nothing to do with the lock        -         -
//   acquiring  waits for the CQL lock                 0         those behind the one who asked for it
//   held       holds the CQL lock in mode hold.mode   >= 1      those who must wait
//   releasing  has released it, not yet confirmed     0         those who came meanwhile
//
// A client that met nobody holds the CQL lock without an entry here (cql/at_once.cc). Whoever comes next finds that, and
// makes the entry that it would have had.
//
// A client may give up waiting. If it is the one who asked for the CQL lock, the request stays in the queue on
// the memory node: the next client of the same mode takes it over, or it is released as soon as it is granted. A
// writer's, which nobody here takes over, is withdrawn as soon as only readers are ahead of it (cql/leave.cc).
#pragma once

#include <coroutine>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/pooled_table.h"
#include "base/short_lock.h"
#include "cql/requests.h"
#include "hier/policy.h"
#include "lock/lock.h"
#include "runtime/thread_wait.h"

namespace declock::hier {

// A client that waits; lives in its coroutine's frame.
struct LocalWaiter {
  RemoteAddr addr{};
  Mode mode = Mode::shared;
  Asked asked{};
  Worker* worker = nullptr;  // resumes it
  std::coroutine_handle<> coroutine{};
  ThreadWait* thread = nullptr;  // of a thread that runs no worker: it is woken instead
  Op* object = nullptr;          // to be read along, should somebody acquire the CQL lock for it
  bool may_give_up = false;
  bool waiting = false;   // neither granted nor refused
  bool is_late = false;   // its time is over; it is refused unless the lock turns out to be free
  Hold hold{};            // once granted
  Hold behind{};          // whose hold it waits behind, if it is to look for remote waiters
  Errc error = Errc::ok;  // once refused
  LocalWaiter* next = nullptr;
};

struct LocalLock {
  enum class State : std::uint8_t { acquiring, held, releasing };
  RemoteAddr addr;
  cql::Record* record = nullptr;  // in use as long as this exists
  State state = State::acquiring;
  LocalWaiter* asker = nullptr;   // state acquiring: for whom; null: that client gave up
  Mode asked_for = Mode::shared;  // state acquiring
  bool unanswered = false;        // state acquiring: the lock may be free
  bool may_be_passed_on() const {
    return !reset || reset->epoch != hold.epoch || reset->mn_incarnation != hold.mn_incarnation;
  }
  Hold hold;  // of the CQL lock. Its mode is the mode that is released, whoever releases it (H11).
  std::uint32_t holders = 0;
  Mode held_as =
      Mode::shared;  // by the clients; under `slack` readers may share what the CN has exclusively
  std::uint32_t in_a_row = 0;  // local hand-overs since the CQL lock was acquired
  // The remote client that has waited longest, and since when anybody remote is known to wait.
  std::optional<RemoteWait> remote;
  bool looking = false;  // a prefetch is under way
  struct Reset {
    Epoch epoch;
    std::uint32_t mn_incarnation;
  };
  std::optional<Reset> reset;    // the last that began; a hold of that epoch must not be passed on
  Time since;                    // when the first of the holders got it
  std::uint32_t joins = 0;       // readers that joined since somebody looked at the queue
  Time looked;                   // when that was
  WorkerId releasing_worker;     // state releasing
  LocalWaiter* first = nullptr;  // in the order of arrival
  LocalWaiter* last = nullptr;
};

// Told of every local hand-over: when the client that got the lock had asked, and when the first remote one had
// that was known to wait. For checkers.
class HandOverObserver {
 public:
  virtual ~HandOverObserver() = default;
  virtual void handed_over(const Asked& asked, const std::optional<RemoteWait>& remote) = 0;
};

class LocalLocks {
 public:
  // `at_once`: operations take no time.
  LocalLocks(const Policy& policy, cql::Requests& requests, bool at_once,
             HandOverObserver* observer = nullptr);

  // What a client that wants the lock does next.
  enum class Entry : std::uint8_t {
    acquire,        // it was free: acquire the CQL lock, then call acquired() or failed()
    joined,         // the client is a holder now, with waiter.hold
    wait,           // it is queued: suspend
    look_and_wait,  // queued as well, and it is this client's turn to look for remote waiters: call looked()
  };
  Entry enter(LocalWaiter& waiter, WorkerId worker, Time now);
  // For a thread that runs no worker: joined or queued behind a hold of this CN's. Nothing: it is to come as a client of a
  // worker, and nothing was done.
  std::optional<Entry> enter_here(LocalWaiter& waiter, Time now);
  // For a client that has entered the CQL lock's queue by itself: it waits, whoever else came meanwhile.
  void enter_queued(LocalWaiter& waiter, Time now);
  // Suspends a queued client until it is granted or refused. False: it was, meanwhile.
  bool suspend(LocalWaiter& waiter, std::coroutine_handle<> coroutine);

  // The same for a client that does not want to wait.
  enum class Try : std::uint8_t {
    ask_first,  // nobody here has to do with the lock: see whether it looks free, then come again
    acquire,
    joined,
    look_first,  // look for remote waiters, call looked(), then come again
    busy,
  };
  Try try_enter(LocalWaiter& waiter, bool asked, WorkerId worker, Time now);

  // This epoch of the lock is being reset, or the memory node's incarnation is gone: whoever holds it may finish,
  // nobody else is let in with what the CN has of it (H8).
  void reset_begins(RemoteAddr addr, Epoch epoch, std::uint32_t mn_incarnation);

  // `seen`: when the first of the remote clients that wait behind this hold asked.
  void looked(const Hold& behind, const Result<std::optional<Timestamp>>& seen, Time now);
  // A reader waits for nobody but a remote client, which may have given up or died since anybody looked, `after` ago or
  // earlier. True: it is this client's turn to look; call looked().
  bool looks_again(LocalWaiter& waiter, Duration after, Time now);

  // A waiter for whom the CQL lock is to be acquired now, in this mode; nobody if null.
  struct Successor {
    const LocalWaiter* waiter =
        nullptr;  // it may give up, and be gone, at any time; what is needed of it:
    Mode mode = Mode::shared;
    Timestamp asked{};
    Op* object = nullptr;
  };

  // What the last holder does next.
  struct Leave {
    enum class Kind : std::uint8_t {
      nothing,      // others hold the lock, or it was handed over
      write_first,  // a local client is next: write the object, then leave again
      release,      // release the CQL lock with `hold`; then call released(), or
                    // acquire it again for `successor`, behind the release on the same endpoint
    };
    Kind kind = Kind::nothing;
    Hold hold{};
    Successor successor{};
  };

  // The CQL lock came, for the client that asked for it; others may be let in with it. If that client has
  // given up, and nobody else may have the lock, it is to be released.
  Leave acquired(const Hold& hold, WorkerId worker, Time now);
  // The same, if operations take no time and the client that asked for it is the only one here: as if it had met nobody.
  // False: it is not so, and nothing has changed.
  bool acquired_alone(const Hold& hold);
  // It did not come: everybody who waits is told.
  void failed(RemoteAddr addr, Errc error);
  // The request was withdrawn, as nobody wanted it. The successor is a client that came meanwhile.
  Successor left(RemoteAddr addr);

  // A client that waits, and may give up, does so and is told why.
  void give_up(LocalWaiter& waiter, Errc why);
  // Its time is over. False: the lock may yet turn out to be free, and then the client gets it; must_wait() refuses it.
  bool time_out(LocalWaiter& waiter);
  // The CQL lock is not free.
  void must_wait(RemoteAddr addr);

  // `unwritten`: a WRITE of the object is still to be posted. It may ride along with a release, but must
  // complete before a local client, which uses another queue pair, gets the lock.
  Leave leave(RemoteAddr addr, WorkerId worker, bool unwritten, Time now);

  // For a thread that runs no worker. Not if the CQL lock is to be released: then nothing was done, or the hold is a lone
  // one now, as if nobody else here had ever come (cql/at_once.cc).
  enum class LeftHere : std::uint8_t { done, not_done, alone };
  LeftHere leave_here(RemoteAddr addr, Time now);

  // The release is confirmed. The successor is a client that came meanwhile.
  Successor released(const Hold& hold);

  // How often the tickets of a lock that is held have started again, as somebody here has read before. Only
  // a reset changes it, and with it the epoch.
  std::optional<std::uint64_t> known_wraps(const Hold& hold);
  void remember_wraps(const Hold& hold, std::uint64_t wraps);

  std::size_t bytes_max() const { return bytes_max_; }
  bool is_locked() const { return mutex_.is_taken(); }
  std::size_t in_use() const { return locks_.size(); }

 private:
  struct Choice {
    LocalWaiter* candidate = nullptr;
    bool stays = false;  // it gets the lock locally
  };

  LocalLock* find(RemoteAddr addr) { return locks_.find(addr.packed()); }
  struct Found {
    LocalLock* lock;
    bool is_new;
  };
  Found find_or_make(RemoteAddr addr, Time now);
  LocalLock& insert(RemoteAddr addr);
  void erase(LocalLock& lock);

  static void ask(LocalLock& lock, LocalWaiter& waiter, Mode mode);
  void give_up_locked(LocalWaiter& waiter, Errc why);
  static void append(LocalLock& lock, LocalWaiter& waiter);
  static void unlink(LocalLock& lock, LocalWaiter& waiter);
  static LocalWaiter* first_of(const LocalLock& lock, Mode mode);
  static void grant(LocalWaiter& waiter, const LocalLock& lock, bool object_read = false);
  static void refuse(LocalWaiter& waiter, Errc why);
  static void resume(LocalWaiter& waiter);
  Choice choose(const LocalLock& lock) const;
  static bool could_join(const LocalLock& lock, const LocalWaiter& waiter);
  bool may_join(const LocalLock& lock, const LocalWaiter& waiter) const;
  static bool may_follow_release(const LocalLock& lock, WorkerId worker);
  static bool time_to_look(const LocalLock& lock, Time now);
  static void join(LocalLock& lock, LocalWaiter& waiter);
  void join_those_who_may(LocalLock& lock);
  void let_readers_in(LocalLock& lock);
  Entry enter_held(LocalLock& lock, LocalWaiter& waiter, Time now);
  void note_section(std::uint32_t holders, Time since, Time now);
  Leave leave_locked(LocalLock& lock, WorkerId worker, bool unwritten, Time now);
  Successor take_successor(LocalLock& lock, LocalWaiter& waiter);
  Successor ask_for(LocalLock& lock, LocalWaiter& waiter);

  Policy policy_;
  cql::Requests& requests_;
  bool at_once_;
  HandOverObserver* observer_;
  ShortLock mutex_;
  PooledTable<LocalLock> locks_;  // by address
  struct Wraps {
    Epoch epoch;
    std::uint32_t mn_incarnation;
    std::uint64_t count;
  };
  std::unordered_map<std::uint64_t, Wraps> wraps_;  // by address
  Duration section_{};  // how long clients hold a lock, on the average of late
  std::size_t bytes_max_ = 0;
};

}  // namespace declock::hier
