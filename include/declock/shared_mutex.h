// SharedMutex: a lock of a cluster with the interface of std::shared_timed_mutex. std::unique_lock, std::shared_lock,
// std::scoped_lock over several, std::lock and std::condition_variable_any work with it.
#ifndef DECLOCK_SHARED_MUTEX_H
#define DECLOCK_SHARED_MUTEX_H

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "declock/cluster.h"
#include "declock/config.h"
#include "declock/deadline.h"
#include "declock/lock_ref.h"
#include "declock/result.h"

namespace declock {

// Thread-safety: every member function may be called from any thread at any time. As with std::shared_timed_mutex, a
// thread must not lock what it holds, and only who holds it unlocks it; that may be another thread than the one that
// locked it. Unlocking what nobody holds through this object ends the program, with a line that says so. Other
// SharedMutex objects of the same lock, in this process or another, are the same lock.
//
// Errors of locking are std::system_error with an Errc as code: evicted, mn_restarted, closed, invalid_argument.
// A time-out is never early.
class DECLOCK_EXPORT SharedMutex {
 public:
  SharedMutex(const Cluster& cluster, LockRef lock);
  // By name: after a restart of its memory node it is looked up again, and free. Throws std::system_error.
  SharedMutex(Cluster& cluster, std::string_view name, MnId mn = {});
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;
  ~SharedMutex();  // REQUIRES: nobody holds it through this object

  void lock() { acquire(Mode::exclusive, {}, {}); }
  bool try_lock() { return acquire_if(Mode::exclusive, true, {}); }
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& duration) {
    return try_lock_until(detail::moment_after(duration));
  }
  template <class Clock, class Duration>
  bool try_lock_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return until(deadline, Mode::exclusive);
  }
  // Does not wait for the memory node, nor for whoever is next. If the hold was void, Options::on_release_error says so.
  void unlock() noexcept { release(Mode::exclusive); }

  void lock_shared() { acquire(Mode::shared, {}, {}); }
  bool try_lock_shared() { return acquire_if(Mode::shared, true, {}); }
  template <class Rep, class Period>
  bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& duration) {
    return try_lock_shared_until(detail::moment_after(duration));
  }
  template <class Clock, class Duration>
  bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration>& deadline) {
    return until(deadline, Mode::shared);
  }
  void unlock_shared() noexcept { release(Mode::shared); }

  // The lock and what it protects with one message to the memory node where nobody is in the way: two round trips less.
  // When they return the words are those of the moment, as with lock() and read().
  void lock_and_read(RemoteAddr from, std::span<std::uint64_t> words) {
    acquire(Mode::exclusive, from, words);
  }
  void lock_shared_and_read(RemoteAddr from, std::span<std::uint64_t> words) {
    acquire(Mode::shared, from, words);
  }
  // The words are written before anybody else gets the lock; waits for that. The lock is released in any case. ok: they
  // were written. evicted, mn_restarted, closed, invalid_argument: they were certainly not. outcome_unknown: whether they
  // were is not known.
  Result<void> write_and_unlock(RemoteAddr to, std::span<const std::uint64_t> words) {
    return release_checked(Mode::exclusive, to, words);
  }
  // As unlock(), but waits until the memory node has confirmed it. An error: the hold was void.
  Result<void> unlock_checked() { return release_checked(Mode::exclusive, {}, {}); }
  Result<void> unlock_shared_checked() { return release_checked(Mode::shared, {}, {}); }

  // Of the exclusive holder. REQUIRES: held exclusively through this object. Throws as lock() does.
  Token token();
  LockRef ref() const;

 private:
  template <class Clock, class Duration>
  bool until(const std::chrono::time_point<Clock, Duration>& deadline, Mode mode) {
    // Another clock may be set meanwhile: asked again, it must have passed its deadline.
    for (;;) {
      if (acquire_if(mode, false, detail::moment_at(deadline).time_since_epoch())) return true;
      if (detail::has_passed(deadline)) return false;
    }
  }
  void acquire(Mode mode, RemoteAddr from, std::span<std::uint64_t> words);
  // `at_once`: it is not waited for; otherwise until that time of the steady clock.
  bool acquire_if(Mode mode, bool at_once, std::chrono::nanoseconds deadline);
  void release(Mode mode) noexcept;
  Result<void> release_checked(Mode mode, RemoteAddr to, std::span<const std::uint64_t> words);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace declock

#endif
