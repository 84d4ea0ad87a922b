// Client: locks in coroutines. Many coroutines of one client wait at the same time, on one thread.
//
//   declock::Task<void> add(declock::Client& client, declock::LockRef lock, declock::RemoteAddr counter) {
//     std::uint64_t n = 0;
//     auto guard = co_await client.lock_and_read(lock, counter, {&n, 1});
//     if (!guard) co_return;  // guard.error() says why
//     n += 1;
//     (void)co_await guard->write_and_unlock(counter, {&n, 1});
//   }
//   ...
//   client.run(add(client, lock, counter));
//
// With g++ 12 do not await inside a conditional expression, `c ? co_await a : co_await b`: the compiler loses a temporary, and with
// it a guard. An if statement is fine.
#ifndef DECLOCK_CLIENT_H
#define DECLOCK_CLIENT_H

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>

#include "declock/config.h"
#include "declock/deadline.h"
#include "declock/lock_ref.h"
#include "declock/result.h"
#include "declock/task.h"

namespace declock {

namespace client {
class Core;
struct Lane;
struct Held;
}  // namespace client

// Something that a client can wait for: begins when it is awaited. REQUIRES: awaited once, inside Client::run().
template <class Make>
class [[nodiscard]] Operation {
 public:
  explicit Operation(Make make) : make_(std::move(make)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  auto operator co_await() && {
    task_ = make_();
    return std::move(task_).begun();
  }

 private:
  Make make_;
  decltype(std::declval<Make&>()()) task_;
};

// A lock that is held. Releases it when destroyed, without waiting: if the hold was void, Options::on_release_error
// says so.
//
// Thread-safety: one thread at a time. Its operations are awaited inside its client's run(); it may be destroyed
// anywhere, also after its client, before or after the cluster is closed.
class [[nodiscard]] DECLOCK_EXPORT Guard {
 public:
  Guard() = default;  // holds nothing
  Guard(Guard&& other) noexcept;
  Guard& operator=(Guard&& other) noexcept;
  ~Guard();

  bool owns_lock() const { return core_ != nullptr; }
  // REQUIRES, for the rest: owns_lock().
  const LockRef& lock() const { return lock_; }
  Mode mode() const;

  // Result<void>: waits until the memory node has confirmed it. An error: the hold was void (evicted, mn_restarted).
  auto unlock() {
    return Operation{[this] { return release({}, {}); }};
  }
  // Does not wait; as the destructor.
  void unlock_behind() noexcept;
  // Result<void>: the words are written before anybody else gets the lock, with one message to the memory node; waits
  // for that. The lock is released in any case. ok: they were written. evicted, mn_restarted, closed, invalid_argument: they
  // were certainly not. outcome_unknown: whether they were is not known.
  auto write_and_unlock(RemoteAddr to, std::span<const std::uint64_t> words) {
    return Operation{[this, to, words] { return release(to, words); }};
  }
  // Result<void>: memory that this lock protects. mn_restarted: the hold is void, and nothing was read or written.
  auto read(RemoteAddr from, std::span<std::uint64_t> words) {
    return Operation{[this, from, words] { return start_read(from, words); }};
  }
  auto write(RemoteAddr to, std::span<const std::uint64_t> words) {
    return Operation{[this, to, words] { return start_write(to, words); }};
  }
  // Result<Token>. REQUIRES: mode() is exclusive. One read the first time, then nothing.
  auto token() {
    return Operation{[this] { return start_token(); }};
  }

 private:
  friend class Client;
  friend struct client::Lane;
  Guard(std::shared_ptr<client::Core> core, client::Lane& lane, const LockRef& lock,
        const client::Held& held);
  Task<Result<void>> release(RemoteAddr to, std::span<const std::uint64_t> words);
  Task<Result<void>> start_read(RemoteAddr from, std::span<std::uint64_t> words);
  Task<Result<void>> start_write(RemoteAddr to, std::span<const std::uint64_t> words);
  Task<Result<Token>> start_token();

  client::Held& held();
  const client::Held& held() const;

  std::shared_ptr<client::Core> core_;  // null: holds nothing
  client::Lane* lane_ = nullptr;
  LockRef lock_{};
  alignas(8) std::array<std::byte, 128> held_{};  // a client::Held
};

// Thread-safety: one thread at a time may be inside run(), run_all() or spawn(), and coroutines run nowhere else; other
// clients, and locks of the same cluster by other ways, may be used at the same time. Code inside run() should not block: other
// coroutines of the client wait meanwhile, and so may other processes.
class DECLOCK_EXPORT Client {
  enum class Patience : std::uint8_t { none, until, forever };
  struct Request {
    LockRef lock;
    Mode mode;
    Patience patience;
    std::int64_t deadline_ns;
    std::stop_token stop;
    RemoteAddr from;
    std::span<std::uint64_t> words;
  };

  auto locking(Request request) {
    return Operation{[this, request = std::move(request)] { return start_lock(request); }};
  }
  static std::int64_t ns_of(std::chrono::steady_clock::time_point t) {
    return std::chrono::nanoseconds(t.time_since_epoch()).count();
  }
  template <class Done>
  void drive(Done done) {
    drive_until([](void* fn) { return (*static_cast<Done*>(fn))(); }, &done);
  }

 public:
  Client(Client&& other) noexcept;
  Client& operator=(Client&& other) noexcept;
  // As std::jthread: waits for what was spawned, which goes on meanwhile, and drops what it throws. What waits for a lock
  // can be cancelled by its stop token.
  ~Client();

  // Runs a coroutine on this thread, and what else was spawned beside it. What it gives, or throws.
  template <class T>
  T run(Task<T> task) {
    bool started = false;
    drive([&] {
      if (!std::exchange(started, true)) task.start();
      return task.done();
    });
    return task.take();
  }
  // A coroutine that nobody awaits, run by run() and run_all(). Not begun yet when this returns. What it throws,
  // run_all() throws.
  void spawn(Task<void> task);
  // Until all that was spawned is done.
  void run_all();

  // Result<Guard>. Errors of all: evicted, mn_restarted, closed, invalid_argument; with a stop token, cancelled: as soon
  // as a stop is requested, from any thread.
  auto lock(LockRef lock, std::stop_token stop = {}) {
    return locking({lock, Mode::exclusive, Patience::forever, 0, std::move(stop), {}, {}});
  }
  auto lock_shared(LockRef lock, std::stop_token stop = {}) {
    return locking({lock, Mode::shared, Patience::forever, 0, std::move(stop), {}, {}});
  }
  // And busy: somebody else has it.
  auto try_lock(LockRef lock) {
    return locking({lock, Mode::exclusive, Patience::none, 0, {}, {}, {}});
  }
  auto try_lock_shared(LockRef lock) {
    return locking({lock, Mode::shared, Patience::none, 0, {}, {}, {}});
  }
  // And timed_out, at the deadline and not before.
  auto try_lock_until(LockRef lock, std::chrono::steady_clock::time_point deadline,
                      std::stop_token stop = {}) {
    return locking({lock,
                    Mode::exclusive,
                    Patience::until,
                    ns_of(detail::moment_at(deadline)),
                    std::move(stop),
                    {},
                    {}});
  }
  auto try_lock_shared_until(LockRef lock, std::chrono::steady_clock::time_point deadline,
                             std::stop_token stop = {}) {
    return locking({lock,
                    Mode::shared,
                    Patience::until,
                    ns_of(detail::moment_at(deadline)),
                    std::move(stop),
                    {},
                    {}});
  }
  template <class Rep, class Period>
  auto try_lock_for(LockRef lock, std::chrono::duration<Rep, Period> d, std::stop_token stop = {}) {
    return try_lock_until(lock, detail::moment_after(d), std::move(stop));
  }
  template <class Rep, class Period>
  auto try_lock_shared_for(LockRef lock, std::chrono::duration<Rep, Period> d,
                           std::stop_token stop = {}) {
    return try_lock_shared_until(lock, detail::moment_after(d), std::move(stop));
  }

  // The lock and what it protects with one message to the memory node where nobody is in the way: two round trips less.
  // With a guard, the words are those of the moment. They must stay until then.
  auto lock_and_read(LockRef lock, RemoteAddr from, std::span<std::uint64_t> words) {
    return locking({lock, Mode::exclusive, Patience::forever, 0, {}, from, words});
  }
  auto lock_shared_and_read(LockRef lock, RemoteAddr from, std::span<std::uint64_t> words) {
    return locking({lock, Mode::shared, Patience::forever, 0, {}, from, words});
  }

  // Result<void>: memory, without regard to locks; as Cluster::read() and write().
  auto read(RemoteAddr from, std::span<std::uint64_t> words) {
    return Operation{[this, from, words] { return start_read(from, words); }};
  }
  auto write(RemoteAddr to, std::span<const std::uint64_t> words) {
    return Operation{[this, to, words] { return start_write(to, words); }};
  }
  // Others go on meanwhile.
  template <class Rep, class Period>
  auto sleep_for(std::chrono::duration<Rep, Period> d) {
    return Operation{
        [this, until_ns = ns_of(detail::moment_after(d))] { return start_sleep(until_ns); }};
  }

 private:
  friend class Cluster;
  Client(std::shared_ptr<client::Core> core, client::Lane& lane);
  void drive_until(bool (*done)(void*), void* argument);
  Task<Result<Guard>> start_lock(Request request);
  Task<Result<void>> start_read(RemoteAddr from, std::span<std::uint64_t> words);
  Task<Result<void>> start_write(RemoteAddr to, std::span<const std::uint64_t> words);
  Task<void> start_sleep(std::int64_t until_ns);
  void give_back();

  std::shared_ptr<client::Core> core_;
  client::Lane* lane_ = nullptr;
};

}  // namespace declock

#endif
