// A worker of real time: a thread that runs coroutines, fires timers and handles what arrives, and sleeps in the
// kernel when there is nothing to do.
//
// It runs inside run_until(), on the caller's thread. Between two calls, while that thread is busy elsewhere, another
// may run it with progress(): so messages are answered even when every client is busy in its own code.
//
// The bell says where the worker is, to those who have something for it:
//
//   running  it looks by itself
//   asleep   make that `running`, and wake it
//   away     nobody runs it: tell the node's dispatcher (on_away)
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/looking.h"
#include "declock/task.h"
#include "runtime/worker.h"

namespace declock {

// Asleep is running with a bit more: whoever rings clears that bit, and leaves a worker that has gone away meanwhile alone.
inline constexpr std::uint32_t kAsleepBit = 2;
enum class Bell : std::uint32_t { away = 0, running = 1, asleep = running | kAsleepBit };
using BellWord = std::atomic<std::uint32_t>;

// True: the worker behind the bell is awake now. False: it is away.
bool ring(BellWord& bell);

class ThreadWorker : public Worker {
 public:
  ThreadWorker(Prng random, BellWord& bell) : Worker(random), bell_(&bell) {}

  Time now() const override;
  void arm(Timer& timer, Time when) override;
  void disarm(Timer& timer) override;
  // From any thread.
  void make_ready(std::coroutine_handle<> coroutine) override;
  void forget(std::coroutine_handle<> coroutine) override;

  // Until done() holds, which is asked after every turn.
  template <class Done>
  void run_until(Done done) {
    run_holding(std::unique_lock{running_}, done);
  }
  // The same, unless another thread runs this worker: then false, and nothing was done.
  template <class Done>
  bool try_run_until(Done done) {
    std::unique_lock guard{running_, std::try_to_lock};
    if (!guard.owns_lock()) return false;
    run_holding(std::move(guard), done);
    return true;
  }
  // Does the calling thread run it?
  bool is_run_here() const;
  // Runs the coroutine that make() gives, Task<T>, from its first to its last step, as this worker: nobody else may touch
  // its frames and timers meanwhile. Its result.
  template <class Make>
  auto run(Make make) {
    using T = decltype(make().take());
    Task<T> task;
    bool started = false;
    std::optional<std::conditional_t<std::is_void_v<T>, std::monostate, T>> result;
    run_until([&] {
      if (!std::exchange(started, true)) {
        task = make();
        task.start();
      }
      if (!task.done()) return false;
      if constexpr (!std::is_void_v<T>) result.emplace(task.take());
      task = {};
      return true;
    });
    if constexpr (!std::is_void_v<T>) return std::move(*result);
  }
  // Does what there is to do and does not wait, unless another thread runs this worker. The next moment at which
  // there will be something to do by itself.
  Time progress();

  // From any thread: there is something to do.
  void wake();

  // Something was sent that its receiver may never get if this process ends now.
  virtual bool anything_unsaid() const { return false; }

  static constexpr Time kNever{std::int64_t{1} << 62};

 protected:
  // Handles what has arrived. True: there was something.
  virtual bool poll() = 0;
  // May be wrong if something arrives at this moment.
  virtual bool anything_arrived() const = 0;
  // When to look again, although nothing arrives: something could not be sent yet. Otherwise kNever.
  virtual Time look_again() const = 0;
  // No thread is in run_until() any more, and something is to be done at this time, or nothing by itself: kNever.
  virtual void on_away(Time when) = 0;
  // For workers that wait for more than a futex: sleeps until somebody rings, something arrives, or `until`.
  virtual void sleep(Time until);
  // True: awake now. False: away.
  virtual bool ring_bell() { return ring(bell()); }
  // How often to look before sleeping, at most.
  virtual std::uint32_t looks_max() const { return Looking::kLooksMax; }
  BellWord& bell() { return *bell_.load(); }
  // Somebody else is about to get the bell. From now on nobody outside this process wakes this worker.
  void part_with_bell();

 private:
  // As long as it lives this thread runs the worker.
  class Running {
   public:
    // At its end `next` is when there is something to do again.
    Running(ThreadWorker& worker, std::unique_lock<std::mutex> guard, Time& next);
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running();

   private:
    ThreadWorker& worker_;
    std::unique_lock<std::mutex> guard_;
    Time& next_;
    ThreadWorker* outer_;
  };

  template <class Done>
  void run_holding(std::unique_lock<std::mutex> guard, Done& done) {
    Time next;
    {
      const Running here{*this, std::move(guard), next};
      while (!done()) {
        if (!turn()) rest();
      }
    }
    on_away(next);
  }
  bool turn();
  void rest();
  bool fire_timers();
  bool run_ready();
  // Looking may hand out what has arrived, and so make something ready: that last.
  bool anything_to_do() const { return inbox_filled_.load() || anything_arrived() || !ready_.empty(); }
  Time next_deadline() const;

  static constexpr std::uint32_t kTurnsBetweenClocks = 32;

  std::atomic<BellWord*> bell_;
  BellWord own_bell_{0};  // once it has parted with the one that it was given
  std::mutex running_;    // held by the thread that runs this worker
  std::vector<std::coroutine_handle<>> ready_;
  std::vector<std::coroutine_handle<>> resuming_;
  std::map<std::pair<std::int64_t, std::uint64_t>, Timer*> timers_;  // by when, and which
  std::uint64_t timers_armed_ = 0;
  std::uint32_t turns_ = 0;
  Looking looking_;

  std::mutex inbox_mutex_;
  std::vector<std::coroutine_handle<>> inbox_;  // made ready by other threads
  std::atomic<bool> inbox_filled_{false};
};

}  // namespace declock
