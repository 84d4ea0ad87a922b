#include "client/lane.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "client/core.h"

namespace declock::client {
namespace {

// A coroutine that belongs to nobody: it destroys itself when it is done.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

Detached call(std::function<void()> fn) {
  fn();
  co_return;
}

}  // namespace

void run_on(ThreadWorker& worker, std::function<void()> fn) {
  worker.make_ready(call(std::move(fn)).handle);
}

bool Lane::is_behind(MnId mn) const {
  const std::uint32_t meant = core.meant(mn);
  return meant != member::Node::kNoIncarnation && endpoint.incarnation(mn) < meant;
}

std::uint32_t Lane::incarnation_of(RemoteAddr addr) {
  core.meet(addr.mn, membership.known().incarnation(addr.mn));
  return core.incarnation_of(addr);
}

Result<std::uint32_t> Lane::incarnation_under(const std::optional<Hold>& hold, RemoteAddr addr) {
  const std::uint32_t meant = incarnation_of(addr);
  if (!hold) return meant;
  // The lock's memory node has restarted: somebody else may hold the lock by now, wherever the memory lies.
  const MnId mn = hold->lock.mn;
  const std::uint32_t last =
      std::max({endpoint.incarnation(mn), membership.known().incarnation(mn), core.newest(mn)});
  const bool is_void = last > hold->mn_incarnation;
  if (is_void || (addr.mn == mn && meant != hold->mn_incarnation)) return Failure{Errc::mn_restarted};
  return meant;
}

Task<Result<Held>> Lane::acquire(Lane& lane, Wanted wanted, hier::HierLock& client) {
  const Time called = lane.worker.now();
  lane.recorder.begins();
  // Only with the lock in one message if they are on one memory node, and only where it is not given up.
  Op look = Op::read(wanted.from, wanted.words, Purpose::data);
  look.incarnation = wanted.words.empty() ? 0 : lane.incarnation_of(wanted.from);
  const bool along = !wanted.words.empty() && wanted.from.mn == wanted.lock.at.mn;
  Result<Hold> hold = Failure{Errc::mn_restarted};
  // First it is counted, then it looks (Core::mean_only() does the opposite): either it finds out that it came too late,
  // or it is waited for.
  lane.waiting_[wanted.lock.at.mn.value].fetch_add(1);
  if (lane.core.is_current(wanted.lock.at) &&
      (wanted.words.empty() || lane.core.is_current(wanted.from))) {
    if (lane.is_behind(wanted.lock.at.mn)) (void)co_await lane.endpoint.reconnect(wanted.lock.at.mn);
    // Most wait for ever; one coroutine less for them.
    if (wanted.patience == Wanted::Patience::forever && !wanted.stop.stop_possible()) {
      hold = co_await client.acquire({wanted.lock.at.mn, wanted.lock.at.offset}, wanted.mode,
                                     along ? &look : nullptr);
    } else {
      hold = co_await wait(lane, wanted, client);
    }
  }
  lane.waiting_[wanted.lock.at.mn.value].fetch_sub(1);
  if (!hold) {
    lane.recorder.gave_up(wanted.lock, hold.error());
    co_return Failure{hold.error()};
  }
  Held held{*hold};
  const bool waited = hold->expect_waiters || hold->local_sequence > 0;
  lane.recorder.acquired(wanted.lock, held, called.ns, lane.worker.now().ns, 1, waited);
  Errc error = Errc::ok;
  const std::uint32_t meant = lane.incarnation_of(wanted.lock.at);
  if (meant != 0 && meant != hold->mn_incarnation) {
    error = Errc::mn_restarted;
  } else if (!wanted.words.empty() && !(along && hold->object_read)) {
    const Result<void> done = co_await read(lane, wanted.from, wanted.words, *hold);
    if (!done) error = done.error();
  }
  if (error == Errc::ok) co_return held;
  (void)co_await release(lane, wanted.lock, held, {});  // the caller hears of the first error
  co_return Failure{error};
}

Task<Result<Hold>> Lane::wait(Lane& lane, const Wanted& wanted, hier::HierLock& client) {
  const RemoteAddr at{wanted.lock.at.mn, wanted.lock.at.offset};
  const bool has_passed =
      wanted.patience == Wanted::Patience::until && wanted.deadline <= lane.worker.now();
  if (wanted.patience == Wanted::Patience::none || has_passed) {
    const Result<Hold> tried = co_await client.try_acquire(at, wanted.mode);
    if (!tried && tried.error() == Errc::busy && has_passed) co_return Failure{Errc::timed_out};
    co_return tried;
  }
  const bool for_ever = wanted.patience == Wanted::Patience::forever;
  if (wanted.stop.stop_requested()) co_return Failure{Errc::cancelled};
  const Time deadline = for_ever ? ThreadWorker::kNever : wanted.deadline;
  // A stop is requested from any thread, and carried out on this worker, if the client waits then.
  const auto cancel = std::make_shared<hier::HierLock*>(&client);
  const std::stop_callback on_stop{wanted.stop, [&lane, cancel] {
                                     run_on(lane.worker, [cancel] {
                                       if (*cancel != nullptr) (*cancel)->cancel();
                                     });
                                   }};
  const Result<Hold> hold = co_await client.acquire_until(at, wanted.mode, deadline);
  *cancel = nullptr;
  co_return hold;
}

Task<Result<void>> Lane::release(Lane& lane, LockRef lock, Held held, Write write) {
  const std::int64_t began_ns = lane.worker.now().ns;
  lane.recorder.release_begins(lock, held, began_ns);
  const bool same_mn = !write.words.empty() && write.to.mn == lock.at.mn;
  Result<void> written;
  if (same_mn) {
    const Result<std::uint32_t> meant = lane.incarnation_under(held.hold, write.to);
    if (!meant) written = Failure{meant.error()};
  } else if (!write.words.empty()) {
    written = co_await Lane::write(lane, write.to, write.words, held.hold);
  }
  Op store = Op::write(write.to, write.words, Purpose::data);
  store.incarnation = held.hold.mn_incarnation;
  hier::HierLock client{lane.locks};
  const Result<void> released =
      co_await client.release(held.hold, same_mn && written ? &store : nullptr);
  lane.recorder.release_ends(lock, held, began_ns, lane.worker.now().ns,
                             released ? Errc::ok : released.error());
  if (!written) co_return written;
  // What another memory node has confirmed is written. If this one has restarted, somebody else may have held the lock
  // by then, and written as well.
  if (released || write.words.empty() || same_mn) co_return released;
  if (released.error() == Errc::mn_restarted) co_return Failure{Errc::outcome_unknown};
  co_return Result<void>{};
}

Task<void> Lane::release_alone(Lane& lane, LockRef lock, Held held) {
  const Result<void> released = co_await release(lane, lock, held, {});
  if (!released) lane.core.release_failed(lock, released.error());
}

// It was released by then, and what is left to do for others is theirs if this fails.
Task<void> Lane::hand_over(Lane& lane, Hold hold, cql::Owing owing) {
  (void)co_await lane.locks.cql().hand_over_behind(hold, owing);
}

Task<Result<void>> Lane::read(Lane& lane, RemoteAddr from, std::span<std::uint64_t> words,
                              std::optional<Hold> under) {
  const Result<std::uint32_t> meant = lane.incarnation_under(under, from);
  if (!meant) co_return Failure{meant.error()};
  if (lane.is_behind(from.mn)) (void)co_await lane.endpoint.reconnect(from.mn);
  Op look = Op::read(from, words, Purpose::data);
  look.incarnation = *meant;
  co_return co_await post_until_known(lane.endpoint, look);
}

Task<Result<void>> Lane::write(Lane& lane, RemoteAddr to, std::span<const std::uint64_t> words,
                               std::optional<Hold> under) {
  const Result<std::uint32_t> meant = lane.incarnation_under(under, to);
  if (!meant) co_return Failure{meant.error()};
  if (lane.is_behind(to.mn)) (void)co_await lane.endpoint.reconnect(to.mn);
  Op store = Op::write(to, words, Purpose::data);
  store.incarnation = *meant;
  co_return co_await post_until_known(lane.endpoint, store);
}

Task<Result<Token>> Lane::token(Lane& lane, Hold hold) {
  co_return co_await lane.locks.token(hold);
}

}  // namespace declock::client
