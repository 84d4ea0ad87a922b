// A worker: one thread that runs many coroutine clients. Time, timers, randomness and frames come
// from here, never from globals; each kind of fabric brings its own worker.
#pragma once

#include <coroutine>
#include <cstdint>

#include "base/prng.h"
#include "base/time.h"
#include "runtime/frame_pool.h"

namespace declock {

// A coroutine that waits for a moment; lives in its frame.
struct Timer {
  std::coroutine_handle<> waiter;
  std::uint64_t armed_as = 0;  // the worker's name for it while it is armed, otherwise 0
  Time when;                   // for the worker
};

class Worker {
 public:
  explicit Worker(Prng random) : random_(random) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  virtual ~Worker() = default;

  virtual Time now() const = 0;
  // Resumes `timer.waiter` at `when`, unless disarmed before.
  virtual void arm(Timer& timer, Time when) = 0;
  virtual void disarm(Timer& timer) = 0;
  // Resumes `coroutine` soon, from the run loop: never inside the caller.
  virtual void make_ready(std::coroutine_handle<> coroutine) = 0;
  // It is about to be destroyed: if it was made ready, nobody resumes it any more. From this worker's thread.
  virtual void forget(std::coroutine_handle<> coroutine) = 0;

  Prng& random() { return random_; }
  FramePool& frames() { return frames_; }

  // co_await worker.sleep_for(d)
  class Sleep {
   public:
    Sleep(Worker& worker, Duration d) : worker_(worker), duration_(d) {}
    Sleep(const Sleep&) = delete;
    Sleep& operator=(const Sleep&) = delete;
    ~Sleep() {
      if (timer_.armed_as != 0) worker_.disarm(timer_);
    }
    bool await_ready() const noexcept { return duration_.ns <= 0; }
    void await_suspend(std::coroutine_handle<> waiter) {
      timer_.waiter = waiter;
      worker_.arm(timer_, worker_.now() + duration_);
    }
    void await_resume() const noexcept {}

   private:
    Worker& worker_;
    Duration duration_;
    Timer timer_;
  };
  Sleep sleep_for(Duration d) { return {*this, d}; }

  // co_await worker.yield(): everything else that is ready goes first.
  struct Yield {
    Worker& worker;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> me) const { worker.make_ready(me); }
    void await_resume() const noexcept {}
  };
  Yield yield() { return {*this}; }

 private:
  FramePool frames_;
  Prng random_;
};

}  // namespace declock
