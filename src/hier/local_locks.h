// The local locks of one compute node (CN): who of its clients holds or waits for which lock, and whether
// the CN as a whole has it (paper section 5.1). They are in the records of the CN's requests (cql/record.h).
//
// Nothing here waits: every call decides under the mutex of the requests and says what is to be done, so no mutex
// is ever held across a suspension (H22). The operations themselves are in hier.h, and in at_once.h for a client that meets
// nobody where operations take no time.
//
//   state      the CN                                 holders   waiting
//   ---------  -------------------------------------  --------  ----------------------------------
//   absent     has nothing to do with the lock        -         -
//   acquiring  waits for the CQL lock                 0         those behind the one who asked for it
//   held       holds the CQL lock in mode hold.mode   >= 1      those who must wait
//   releasing  has released it, not yet confirmed     0         those who came meanwhile
//
// A client may give up waiting. If it is the one who asked for the CQL lock, the request stays in the queue on
// the memory node: the next client of the same mode takes it over, or it is released as soon as it is granted. A
// writer's, which nobody here takes over, is withdrawn as soon as only readers are ahead of it (cql/leave.cc).
#pragma once

#include <optional>

#include "cql/requests.h"
#include "hier/policy.h"

namespace declock::hier {

using cql::Carried;
using cql::Landing;
using cql::LocalLock;
using cql::LocalWaiter;

// Told of every local hand-over: when the client that got the lock had asked, and when the first remote one had
// that was known to wait. For checkers.
class HandOverObserver {
 public:
  virtual ~HandOverObserver() = default;
  virtual void handed_over(const Asked& asked, const std::optional<RemoteWait>& remote) = 0;
};

class LocalLocks {
 public:
  LocalLocks(const Policy& policy, cql::Requests& requests, HandOverObserver* observer = nullptr);

  // What a client that wants the lock does next.
  enum class Entry : std::uint8_t {
    acquire,        // it was free: acquire the CQL lock, then call acquired() or failed()
    joined,         // the client is a holder now, with waiter.hold
    wait,           // it is queued: suspend
    look_and_wait,  // queued as well, and it is this client's turn to look for remote waiters: call looked()
    look_and_go,  // a holder, and it is its turn to look all the same
  };
  Entry enter(LocalWaiter& waiter, WorkerId worker, Time now);
  // For a thread that runs no worker; the mutex of the requests must be held.
  //
  // Joined or queued behind others of this CN. Nothing: it is to come as a client of a worker, and nothing was done.
  std::optional<Entry> enter_here(cql::Record& record, LocalWaiter& waiter, Time now);
  void looked_here(cql::Record& record, const std::optional<Timestamp>& remote, Time now);
  // It finds nobody here, and has entered the queue on the memory node; then it is granted the lock.
  static void ask_here(LocalLock& lock, LocalWaiter& waiter);
  void acquired_here(cql::Record& record, const Hold& hold);
  // `now`: 0 if nobody has looked at the time; that is enough where LocalLock::since is 0, as only some sections are measured.
  // False: the CQL lock is to be released, and nothing was done.
  bool leave_here(cql::Record& record, Time now);
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
      combined,     // it was handed over, and another's WRITE will stand for this one: wait for `mine`
      release,      // release the CQL lock with `hold`; then call released(), or
                    // acquire it again for `successor`, behind the release on the same endpoint
    };
    Kind kind = Kind::nothing;
    Landing* others = nullptr;  // whose WRITEs this one stands for; tell them
    Hold hold{};
    Successor successor{};
  };

  // The CQL lock came, for the client that asked for it; others may be let in with it. If that client has
  // given up, and nobody else may have the lock, it is to be released.
  // `member`: to be asked whether the object that came along may be given to those who wait.
  Leave acquired(const Hold& hold, WorkerId worker, Time now,
                 const member::Membership* member = nullptr);
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
  // `object`: that WRITE. `mine`: another client's may stand for it.
  Leave leave(RemoteAddr addr, WorkerId worker, bool unwritten, Time now, const Op* object = nullptr,
              Landing* mine = nullptr);
  // Has the client that leaves without a WRITE to make one for others?
  Carried left_to_write(RemoteAddr addr);
  // False: it has landed meanwhile.
  bool suspend(Landing& landing, std::coroutine_handle<> coroutine);
  void landed(Landing* all, const Result<void>& result);

  // The release is confirmed. The successor is a client that came meanwhile.
  Successor released(const Hold& hold);

 private:
  struct Choice {
    LocalWaiter* candidate = nullptr;
    bool stays = false;  // it gets the lock locally
  };

  // The record of a lock that this CN has to do with, as those who come later must find it.
  cql::Record& met(RemoteAddr addr, Time now);
  cql::Record& record_of(RemoteAddr addr) { return *requests_.find(addr); }
  void forget(cql::Record& record);

  static void ask(LocalLock& lock, LocalWaiter& waiter, Mode mode);
  Entry enter_locked(cql::Record& record, LocalWaiter& waiter, WorkerId worker, Time now);
  Leave acquired_locked(cql::Record& record, const Hold& hold, WorkerId worker, Time now);
  void give_up_locked(LocalWaiter& waiter, Errc why);
  Leave begin_turn(cql::Record& record, const Hold& hold, WorkerId worker, Time now);
  static void append(LocalLock& lock, LocalWaiter& waiter);
  static void prepend(LocalLock& lock, LocalWaiter& waiter);
  static void unlink(LocalLock& lock, LocalWaiter& waiter);
  static LocalWaiter* first_of(const LocalLock& lock, Mode mode);
  static void grant(LocalWaiter& waiter, const LocalLock& lock, bool object_read = false);
  static bool give_object(const LocalWaiter& waiter, const LocalLock& lock);
  static void note_object(LocalLock& lock, const Op* written);
  bool may_combine(const LocalLock& lock, const LocalWaiter& next, const Op* object) const;
  static void refuse(LocalWaiter& waiter, Errc why);
  static void resume(LocalWaiter& waiter);
  Choice choose(const LocalLock& lock) const;
  static bool could_join(const LocalLock& lock, const LocalWaiter& waiter);
  bool may_join(const LocalLock& lock, const LocalWaiter& waiter) const;
  static bool may_follow_release(const LocalLock& lock, WorkerId worker);
  static bool time_to_look(const LocalLock& lock, Time now);
  static void join(LocalLock& lock, LocalWaiter& waiter);
  static void end_look(LocalLock& lock, Time now);
  void join_those_who_may(LocalLock& lock);
  void let_readers_in(LocalLock& lock);
  Entry enter_held(LocalLock& lock, LocalWaiter& waiter, Time now);
  void note_section(std::uint32_t holders, Time since, Time now);
  Leave leave_locked(cql::Record& record, WorkerId worker, bool unwritten, Time now,
                     const Op* object = nullptr, Landing* mine = nullptr);
  Successor take_successor(LocalLock& lock, LocalWaiter& waiter);
  Successor ask_for(LocalLock& lock, LocalWaiter& waiter);

  Policy policy_;
  cql::Requests& requests_;
  HandOverObserver* observer_;
  Duration section_{};  // how long clients hold a lock, on the average of late
};

}  // namespace declock::hier
