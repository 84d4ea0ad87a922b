#include "member_zk/zk_loop.h"

#include <chrono>

namespace declock::member {

ZkLoop::ZkLoop(wire::Hub& hub, const ZkAddress& at, const wire::Secret& secret, Look look)
    : hub_(hub),
      look_(std::move(look)),
      session_(at, secret, [this] { wake(); }),
      thread_([this] { run(); }) {}

ZkLoop::~ZkLoop() {
  {
    const std::lock_guard guard{mutex_};
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  *is_alive_ = false;
}

void ZkLoop::wake() {
  const std::lock_guard guard{mutex_};
  is_woken_ = true;
  changed_.notify_all();
}

void ZkLoop::tell(std::function<void()> event) {
  hub_.post([is_alive = is_alive_, event = std::move(event)] {
    if (*is_alive) event();
  });
}

void ZkLoop::run() {
  std::unique_lock guard{mutex_};
  while (!is_stopping_) {
    is_woken_ = false;
    guard.unlock();
    const Duration pause = look_();
    guard.lock();
    changed_.wait_for(guard, std::chrono::nanoseconds{pause.ns},
                      [&] { return is_woken_ || is_stopping_; });
  }
  guard.unlock();
  session_.close();
}

}  // namespace declock::member
