#include "runtime/thread_worker.h"

#include <sched.h>

#include <algorithm>

#include "base/check.h"
#include "base/futex.h"

namespace declock {
namespace {

// Which worker this thread runs: what it makes ready itself needs no lock and no bell.
thread_local ThreadWorker* t_running = nullptr;

// To sleep and to be woken takes about this long.
constexpr Duration kNotWorthSleeping = microseconds(50);

constexpr std::uint32_t word(Bell bell) {
  return static_cast<std::uint32_t>(bell);
}

}  // namespace

bool ring(BellWord& bell) {
  switch (static_cast<Bell>(bell.load())) {
    case Bell::running:
      return true;
    case Bell::asleep:
      futex_clear_and_wake(bell, kAsleepBit);
      return true;
    case Bell::away:
      break;
  }
  return false;
}

ThreadWorker::Running::Running(ThreadWorker& worker, std::unique_lock<std::mutex> guard, Time& next)
    : worker_(worker),
      guard_(std::move(guard)),
      next_(next),
      outer_(std::exchange(t_running, &worker)) {
  // Release is enough: who still sees it away rings for the dispatcher, which finds that it is not.
  worker_.bell().store(word(Bell::running), std::memory_order_release);
}

ThreadWorker::Running::~Running() {
  t_running = outer_;
  worker_.bell().store(word(Bell::away));
  // What came before the bell said so was told to nobody.
  next_ = worker_.anything_to_do() ? Time{} : worker_.next_deadline();
}

Time ThreadWorker::now() const {
  return monotonic_now();
}

void ThreadWorker::arm(Timer& timer, Time when) {
  timer.when = when;
  timer.armed_as = ++timers_armed_;
  timers_.emplace(std::pair{when.ns, timer.armed_as}, &timer);
}

void ThreadWorker::disarm(Timer& timer) {
  timers_.erase({timer.when.ns, timer.armed_as});
  timer.armed_as = 0;
}

void ThreadWorker::forget(std::coroutine_handle<> coroutine) {
  const std::coroutine_handle<> nobody = std::noop_coroutine();
  std::replace(ready_.begin(), ready_.end(), coroutine, nobody);
  std::replace(resuming_.begin(), resuming_.end(), coroutine, nobody);
  const std::lock_guard guard{inbox_mutex_};
  std::replace(inbox_.begin(), inbox_.end(), coroutine, nobody);
}

void ThreadWorker::make_ready(std::coroutine_handle<> coroutine) {
  if (t_running == this) {
    ready_.push_back(coroutine);
    return;
  }
  {
    const std::lock_guard guard{inbox_mutex_};
    inbox_.push_back(coroutine);
    inbox_filled_.store(true);
  }
  wake();
}

void ThreadWorker::wake() {
  if (!ring_bell()) on_away(Time{});
}

bool ThreadWorker::is_run_here() const {
  return t_running == this;
}

bool ThreadWorker::turn() {
  bool busy = run_ready();
  busy = poll() || busy;
  // The clock costs more than a turn does.
  if (!timers_.empty() && ++turns_ % kTurnsBetweenClocks == 0) busy = fire_timers() || busy;
  return busy;
}

bool ThreadWorker::run_ready() {
  if (inbox_filled_.load(std::memory_order_relaxed)) {  // a hint; the mutex orders what is in it
    const std::lock_guard guard{inbox_mutex_};
    ready_.insert(ready_.end(), inbox_.begin(), inbox_.end());
    inbox_.clear();
    inbox_filled_.store(false);
  }
  if (ready_.empty()) return false;
  resuming_.swap(ready_);
  for (const std::coroutine_handle<> coroutine : resuming_) coroutine.resume();
  resuming_.clear();
  return true;
}

bool ThreadWorker::fire_timers() {
  const std::int64_t now_ns = now().ns;
  bool fired = false;
  while (!timers_.empty() && timers_.begin()->first.first <= now_ns) {
    Timer& timer = *timers_.begin()->second;
    timers_.erase(timers_.begin());
    timer.armed_as = 0;
    timer.waiter.resume();
    fired = true;
  }
  return fired;
}

Time ThreadWorker::next_deadline() const {
  const Time timer = timers_.empty() ? kNever : Time{timers_.begin()->first.first};
  return std::min(timer, look_again());
}

// Looks for a while, then sleeps: what others do to a lock takes less time than to be woken.
void ThreadWorker::rest() {
  const Time until = next_deadline();
  if (until < kNever && until - now() < kNotWorthSleeping) {
    // Somebody polls: whoever it waits for may need this core.
    while (!anything_to_do() && !fire_timers()) sched_yield();
    return;
  }
  if (looking_.look([this] { return anything_to_do(); }, looks_max())) return;
  BellWord& bell = this->bell();
  bell.store(word(Bell::asleep));
  // Whoever has sent something before it could see that.
  if (&bell == bell_.load() && !anything_to_do()) sleep(next_deadline());
  this->bell().store(word(Bell::running));
  (void)fire_timers();
}

void ThreadWorker::sleep(Time until) {
  futex_wait(bell(), word(Bell::asleep), until);
}

void ThreadWorker::part_with_bell() {
  BellWord* before = bell_.exchange(&own_bell_);
  if (before != &own_bell_) futex_clear_and_wake(*before, kAsleepBit);
}

Time ThreadWorker::progress() {
  std::unique_lock guard{running_, std::try_to_lock};
  // Whoever runs it looks for itself; but it may just be leaving, and have looked already.
  if (!guard.owns_lock()) return bell().load() == word(Bell::away) ? now() + kNotWorthSleeping : kNever;
  Time next;
  {
    const Running here{*this, std::move(guard), next};
    while (turn() ||
           fire_timers()) {  // ends: what arrives meanwhile is little, and others wait for answers
    }
  }
  return next;
}

}  // namespace declock
