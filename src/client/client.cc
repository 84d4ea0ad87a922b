#include "declock/client.h"

#include <fmt/format.h>

#include <cstdlib>
#include <new>
#include <string_view>

#include "client/core.h"

namespace declock {
namespace {

using client::Core;
using client::Held;
using client::Lane;

static_assert(std::is_trivially_copyable_v<Held>);

// For as long as an operation of a client is under way: closing, and the client's end, wait for it.
class Operating {
 public:
  explicit Operating(Lane& lane) : lane_(lane) { lane_.operations += 1; }
  Operating(const Operating&) = delete;
  Operating& operator=(const Operating&) = delete;
  ~Operating() { lane_.operations -= 1; }

 private:
  Lane& lane_;
};

// A coroutine that a client awaits: work() on its lane, and then inside its run().
template <class T, class Work>
Task<T> operate(Lane& lane, Work work) {
  std::optional<T> result;
  {
    const Operating under_way{lane};
    result.emplace(co_await work(lane));
  }
  co_await lane.inside();
  co_return std::move(*result);
}

// Without a lane: the cluster may be closed, and its workers gone.
template <class T>
Task<T> refuse(Errc why) {
  co_return Failure{why};
}

// Misuse ends the program.
[[noreturn]] void misused(std::string_view how) {
  fmt::print(stderr, "declock: {}\n", how);
  std::abort();
}

void need_lock(const Guard& guard) {
  if (!guard.owns_lock())
    misused("a Guard was used that holds no lock: it was released, or moved from");
}

void need_run(const Lane& lane) {
  if (!lane.worker.is_run_here())
    misused("a Client, or a Guard of it, was used outside of its run(): call it in a coroutine there");
}

}  // namespace

// ---------------------------------------------------------------- guards

Guard::Guard(std::shared_ptr<Core> core, Lane& lane, const LockRef& lock, const Held& held)
    : core_(std::move(core)), lane_(&lane), lock_(lock) {
  static_assert(sizeof(Held) <= sizeof held_ && alignof(Held) <= 8);
  new (held_.data()) Held{held};
}

Guard::Guard(Guard&& other) noexcept
    : core_(std::move(other.core_)), lane_(other.lane_), lock_(other.lock_), held_(other.held_) {}

Guard& Guard::operator=(Guard&& other) noexcept {
  if (this == &other) return *this;
  unlock_behind();
  core_ = std::move(other.core_);
  lane_ = other.lane_;
  lock_ = other.lock_;
  held_ = other.held_;
  return *this;
}

Guard::~Guard() {
  unlock_behind();
}

Held& Guard::held() {
  return *std::launder(reinterpret_cast<Held*>(held_.data()));
}
const Held& Guard::held() const {
  return *std::launder(reinterpret_cast<const Held*>(held_.data()));
}

Mode Guard::mode() const {
  return held().hold.mode;
}

void Guard::unlock_behind() noexcept {
  const std::shared_ptr<Core> core = std::move(core_);
  core_ = nullptr;
  if (core == nullptr || core->is_closed()) return;
  if (!lane_->worker.is_run_here()) return core->release_behind(lock_, held());
  lane_->release_behind(lock_, held());
}

Task<Result<void>> Guard::release(RemoteAddr to, std::span<const std::uint64_t> words) {
  need_lock(*this);
  const std::shared_ptr<Core> core = std::move(core_);
  core_ = nullptr;
  if (core->is_closed()) return refuse<Result<void>>(Errc::closed);
  need_run(*lane_);
  const Errc bad = words.empty() ? Errc::ok : core->check(to, words.size());
  return operate<Result<void>>(
      *lane_, [lock = lock_, held = held(), to, words, bad](Lane& lane) -> Task<Result<void>> {
        return [](Lane& on, LockRef l, Held h, Lane::Write write, Errc wrong) -> Task<Result<void>> {
          if (wrong != Errc::ok) write = {};  // released in any case
          const Result<void> released = co_await Lane::release(on, l, h, write);
          if (wrong != Errc::ok) co_return Failure{wrong};
          co_return released;
        }(lane, lock, held, {to, words}, bad);
      });
}

Task<Result<void>> Guard::start_read(RemoteAddr from, std::span<std::uint64_t> words) {
  need_lock(*this);
  const Errc bad = core_->check(from, words.size());
  if (bad != Errc::ok) return refuse<Result<void>>(bad);
  need_run(*lane_);
  return operate<Result<void>>(*lane_, [from, words, hold = held().hold](Lane& lane) {
    return Lane::read(lane, from, words, hold);
  });
}

Task<Result<void>> Guard::start_write(RemoteAddr to, std::span<const std::uint64_t> words) {
  need_lock(*this);
  const Errc bad = core_->check(to, words.size());
  if (bad != Errc::ok) return refuse<Result<void>>(bad);
  need_run(*lane_);
  return operate<Result<void>>(*lane_, [to, words, hold = held().hold](Lane& lane) {
    return Lane::write(lane, to, words, hold);
  });
}

Task<Result<Token>> Guard::start_token() {
  need_lock(*this);
  if (mode() != Mode::exclusive) misused("a Guard was asked for a token, but it holds its lock shared");
  if (core_->is_closed()) return refuse<Result<Token>>(Errc::closed);
  need_run(*lane_);
  return operate<Result<Token>>(*lane_,
                                [hold = held().hold](Lane& lane) { return Lane::token(lane, hold); });
}

// ---------------------------------------------------------------- clients

Client::Client(std::shared_ptr<Core> core, Lane& lane) : core_(std::move(core)), lane_(&lane) {}

Client::Client(Client&& other) noexcept
    : core_(std::move(other.core_)), lane_(std::exchange(other.lane_, nullptr)) {}

Client& Client::operator=(Client&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  core_ = std::move(other.core_);
  lane_ = std::exchange(other.lane_, nullptr);
  return *this;
}

Client::~Client() {
  give_back();
}

void Client::give_back() {
  Lane* lane = std::exchange(lane_, nullptr);
  if (lane == nullptr || core_->is_closed()) return;
  lane_ = lane;
  drive([&] { return lane->fresh.empty() && lane->spawned.running() == 0; });
  lane_ = nullptr;
  lane->worker.run_until([&] {
    lane->spawned.clear();
    lane->thrown = nullptr;
    return true;
  });
  lane->is_of_client.store(false);
}

void Client::spawn(Task<void> task) {
  lane_->fresh.push_back(std::move(task));
}

namespace {

// What a spawned coroutine throws is kept for run_all().
Task<void> keep_what_it_throws(Lane& lane, Task<void> task) {
  try {
    const Task<void> mine = std::move(task);  // destroyed as soon as it is done
    co_await std::move(const_cast<Task<void>&>(mine));
  } catch (...) {
    if (lane.thrown == nullptr) lane.thrown = std::current_exception();
  }
}

}  // namespace

void Client::drive_until(bool (*done)(void*), void* argument) {
  Lane& lane = *lane_;
  if (core_->is_closed()) {
    // Nothing can be waited for any more: every operation is over at once.
    lane.fresh.clear();
    while (!done(argument)) {
    }
    return;
  }
  lane.worker.run_until([&] {
    lane.is_inside_run = true;
    std::vector<std::coroutine_handle<>> ready;
    ready.swap(lane.ready);
    for (const std::coroutine_handle<> coroutine : ready) coroutine.resume();
    bool is_done = false;
    do {  // who is begun here may spawn others
      std::vector<Task<void>> fresh;
      fresh.swap(lane.fresh);
      for (Task<void>& task : fresh) lane.spawned.spawn(keep_what_it_throws(lane, std::move(task)));
      is_done = done(argument);
    } while (!lane.fresh.empty());
    lane.is_inside_run = !is_done;
    return is_done;
  });
}

void Client::run_all() {
  drive([&] { return lane_->fresh.empty() && lane_->spawned.running() == 0; });
  if (lane_->thrown != nullptr) std::rethrow_exception(std::exchange(lane_->thrown, nullptr));
}

namespace {

Task<Result<Guard>> lock_on(Lane& lane, std::shared_ptr<Core> core, client::Wanted wanted,
                            Guard (*make)(std::shared_ptr<Core>, Lane&, const LockRef&, const Held&)) {
  hier::HierLock client{lane.locks};
  const Result<Held> held = co_await Lane::acquire(lane, wanted, client);
  if (!held) co_return Failure{held.error()};
  co_return make(core, lane, wanted.lock, *held);
}

}  // namespace

Task<Result<Guard>> Client::start_lock(Request request) {
  Errc bad = core_->check(request.lock);
  if (bad == Errc::ok && !request.words.empty()) bad = core_->check(request.from, request.words.size());
  if (bad != Errc::ok) return refuse<Result<Guard>>(bad);
  need_run(*lane_);
  client::Wanted wanted{.lock = request.lock,
                        .mode = request.mode,
                        .patience = static_cast<client::Wanted::Patience>(request.patience),
                        .deadline = Time{request.deadline_ns},
                        .stop = request.stop,
                        .from = request.from,
                        .words = request.words};
  const auto make = [](std::shared_ptr<Core> core, Lane& lane, const LockRef& lock, const Held& held) {
    return Guard{std::move(core), lane, lock, held};
  };
  return operate<Result<Guard>>(
      *lane_, [core = core_, wanted, make](Lane& lane) { return lock_on(lane, core, wanted, make); });
}

Task<Result<void>> Client::start_read(RemoteAddr from, std::span<std::uint64_t> words) {
  const Errc bad = core_->check(from, words.size());
  if (bad != Errc::ok) return refuse<Result<void>>(bad);
  need_run(*lane_);
  return operate<Result<void>>(*lane_, [=](Lane& lane) { return Lane::read(lane, from, words, {}); });
}

Task<Result<void>> Client::start_write(RemoteAddr to, std::span<const std::uint64_t> words) {
  const Errc bad = core_->check(to, words.size());
  if (bad != Errc::ok) return refuse<Result<void>>(bad);
  need_run(*lane_);
  return operate<Result<void>>(*lane_, [=](Lane& lane) { return Lane::write(lane, to, words, {}); });
}

namespace {

Task<bool> sleep_on(Lane& lane, std::int64_t until_ns) {
  co_await lane.worker.sleep_for(Time{until_ns} - lane.worker.now());
  co_return true;
}
Task<void> sleep_not(std::int64_t) {
  co_return;
}
Task<void> sleep_inside(Lane& lane, std::int64_t until_ns) {
  (void)co_await operate<bool>(lane, [until_ns](Lane& on) { return sleep_on(on, until_ns); });
}

}  // namespace

Task<void> Client::start_sleep(std::int64_t until_ns) {
  if (core_->is_closed()) return sleep_not(until_ns);
  need_run(*lane_);
  return sleep_inside(*lane_, until_ns);
}

}  // namespace declock
