// What one member has to do with which lock: everything that a reset must know before it may say that the member
// is out of the way (H3, H8, H9). A member has at most one request per lock (I4).
//
// All workers of a member share one of these; every call is short and under its mutex.
#pragma once

#include <coroutine>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/pooled_table.h"
#include "base/short_lock.h"
#include "cql/messages.h"
#include "declock/task.h"
#include "layout/header.h"
#include "lock/lock.h"
#include "runtime/worker.h"

namespace declock::cql {

// A client that waits for a grant; lives in its coroutine's frame.
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
  // Looks whether anybody is left who can end the wait (watch.cc): when next, and what it has seen so far.
  struct Watch {
    Task<void> task{};
    Time next{};
    std::optional<Header> header{};
    std::optional<Ticket>
        nobody_at{};  // no member would move this ticket: a grant may have been under way just then
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

// A reset that somebody claimed, and to whom an answer is owed.
struct Claim {
  EndpointId claimant;
  member::Incarnation incarnation;
  Era era;

  constexpr bool operator==(const Claim&) const = default;
};

// A member's dealings with one lock.
struct Record {
  RemoteAddr lock;
  std::uint32_t users = 0;        // coroutines that have a reference to this
  std::uint32_t keepers = 0;      // who want it to stay, whatever it says (near_lock.h)
  std::uint32_t outstanding = 0;  // operations that were posted and may yet take effect
  std::optional<Ticket> held{};
  std::uint32_t handing_over = 0;  // releases that look for whom to grant the lock to
  bool resetting = false;          // this member runs a reset of it
  Era era{};                       // in which the member entered the queue
  Waiting* waiting = nullptr;
  // No client here wants the lock that the member asks for, exclusively (cql/leave.cc). The local locks see to it.
  bool unwanted = false;
  std::optional<Era> reset_of{};  // a reset of this era was signalled, and has not been seen to be over
  std::vector<Claim> unanswered{};
  // at_once.cc: a client of this member holds the lock, and no other knows of it; what is not in `held` and `era`.
  struct Lone {
    Mode mode;
    bool expect_waiters = false;
    std::optional<RemoteWait> waiting_since{};
  };
  std::optional<Lone> lone{};
  // at_once.cc: a client of this member has entered the queue in this mode, and is about to tell the others here.
  std::optional<Mode> entered{};

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
  // Nobody here has to do with the lock.
  bool untouched() const { return idle() && !reset_of; }
  bool quiet() const { return outstanding == 0 && !held && waiting == nullptr; }
  // Not worth remembering. A reset that this member has answered may go on: whoever asks for the lock meanwhile finds that
  // in its header.
  bool idle() const { return users == 0 && quiet() && !resetting && unanswered.empty() && !entered; }
};

// Told that a lock is being reset, or its memory node is gone: nobody may be let in on the strength of what the
// member has of it.
class LockLossListener {
 public:
  virtual ~LockLossListener() = default;
  virtual void on_reset_of(RemoteAddr lock, const Era& era) = 0;
};

class Requests {
 public:
  void set_listener(LockLossListener* listener) { listener_ = listener; }
  LockLossListener* listener() const { return listener_; }

  Record& use(RemoteAddr lock) {
    const std::lock_guard guard{mutex_};
    Record& record = find_or_insert(lock);
    record.users += 1;
    return record;
  }
  void end_use(Record& record) {
    const std::lock_guard guard{mutex_};
    record.users -= 1;
    reclaim(record);
  }

  // A record that stays although nobody uses it.
  Record& keep(RemoteAddr lock) {
    const std::lock_guard guard{mutex_};
    Record& record = find_or_insert(lock);
    record.keepers += 1;
    return record;
  }
  void keep_no_longer(Record& record) {
    const std::lock_guard guard{mutex_};
    record.keepers -= 1;
    reclaim(record);
  }

  // fn(record), for what is known of the lock.
  template <class Fn>
  auto change(Record& record, Fn fn) {
    const std::lock_guard guard{mutex_};
    return fn(record);
  }
  Waiting::State state_of(const Waiting& waiting) {
    const std::lock_guard guard{mutex_};
    return waiting.state;
  }
  bool is_over(const Waiting& waiting) {
    const std::lock_guard guard{mutex_};
    return waiting.is_over();
  }
  bool is_resetting(Record& record) {
    return change(record, [](const Record& r) { return r.resetting; });
  }
  // No client of this member wants the lock any more that it waits for, or one does again. From any thread.
  void set_unwanted(Record& record, bool unwanted) {
    const std::lock_guard guard{mutex_};
    record.unwanted = unwanted;
    if (unwanted && record.waiting != nullptr) wake_to_leave(*record.waiting);
  }
  // REQUIRES: the mutex is held.
  static void wake_to_leave(Waiting& waiting) {
    if (waiting.become(Waiting::State::leaves)) waiting.worker->make_ready(waiting.coroutine);
  }
  template <class Fn>
  void for_each(Fn fn) {
    const std::lock_guard guard{mutex_};
    records_.for_each(fn);
  }

  // This member is no more: it answers nobody.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }
  // As if nothing had been asked for yet. REQUIRES: nobody uses a record.
  void clear() { records_ = {}; }

  // For those who do several things in one step.
  ShortLock& mutex() { return mutex_; }
  // REQUIRES, for these three: the mutex is held.
  Record* find(RemoteAddr lock) { return records_.find(lock.packed()); }
  Record& find_or_insert(RemoteAddr lock) {
    Record* record = find(lock);
    if (record == nullptr) {
      record = &records_.insert(lock.packed());
      record->lock = lock;
    }
    return *record;
  }
  // Whoever used a lock lately is likely to use it again: some idle records stay.
  void reclaim(Record& record) {
    if (records_.size() > kIdleKept && record.idle() && record.keepers == 0) records_.erase(record.lock.packed());
  }

 private:
  static constexpr std::size_t kIdleKept = 1024;

  ShortLock mutex_;
  PooledTable<Record> records_;  // by address
  LockLossListener* listener_ = nullptr;
  bool closed_ = false;
};

// A reference that keeps a record.
class RecordUse {
 public:
  RecordUse(Requests& requests, RemoteAddr lock) : requests_(requests), record_(requests.use(lock)) {}
  RecordUse(const RecordUse&) = delete;
  RecordUse& operator=(const RecordUse&) = delete;
  ~RecordUse() { requests_.end_use(record_); }
  Record& operator*() const { return record_; }
  Record* operator->() const { return &record_; }

 private:
  Requests& requests_;
  Record& record_;
};

}  // namespace declock::cql
