#include "net/worker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

namespace declock::net {

NetWorker::NetWorker(Prng random, std::function<void(Time)> on_away)
    : ThreadWorker(random, word_),
      rung_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      on_away_(std::move(on_away)) {}

NetWorker::~NetWorker() {
  if (rung_ >= 0) close(rung_);
}

void NetWorker::post(std::function<void()> job) {
  {
    const std::lock_guard guard{jobs_mutex_};
    jobs_.push_back(std::move(job));
    any_jobs_.store(true);
  }
  wake();
}

bool NetWorker::poll() {
  bool any = false;
  if (any_jobs_.load(std::memory_order_relaxed)) {  // a hint; the mutex orders what is in them
    std::vector<std::function<void()>> jobs;
    {
      const std::lock_guard guard{jobs_mutex_};
      jobs.swap(jobs_);
      any_jobs_.store(false);
    }
    for (const auto& job : jobs) job();
    any = !jobs.empty();
  }
  return (port_ != nullptr && port_->poll()) || any;
}

// There is no way to look without taking. What is taken is handed out at once: nobody looks from inside a coroutine, as
// nothing here completes at once.
bool NetWorker::anything_arrived() const {
  return any_jobs_.load() || (port_ != nullptr && port_->poll());
}

Time NetWorker::look_again() const {
  if (port_ == nullptr) return kNever;
  if (port_->anything_unsent()) return now() + microseconds(100);
  return port_->transport().may_wait() ? kNever : now();
}

void NetWorker::sleep(Time until) {
  pollfd waits[] = {{rung_, POLLIN, 0},
                    {port_ == nullptr ? -1 : port_->transport().wait_descriptor(), POLLIN, 0}};
  timespec timeout{};
  const bool bounded = until < kNever;
  if (bounded) {
    const std::int64_t left_ns = std::max<std::int64_t>((until - now()).ns, 0);
    timeout = {left_ns / 1'000'000'000, left_ns % 1'000'000'000};
  }
  // The transport must be asked anew before each wait for its descriptor.
  if (port_ != nullptr && !port_->transport().may_wait()) return;
  (void)::ppoll(waits, 2, bounded ? &timeout : nullptr, nullptr);
  std::uint64_t count = 0;
  if (waits[0].revents != 0) (void)!read(rung_, &count, sizeof count);
}

bool NetWorker::ring_bell() {
  switch (static_cast<Bell>(word_.load())) {
    case Bell::running:
      return true;
    case Bell::asleep:
      (void)eventfd_write(rung_, 1);
      return true;
    case Bell::away:
      break;
  }
  return false;
}

}  // namespace declock::net
