#include "declock/shared_mutex.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "base/short_lock.h"
#include "client/core.h"

namespace declock {
namespace {

using client::Held;
using client::Wanted;

[[noreturn]] void fail(Errc code, const std::string& what) {
  throw std::system_error{make_error_code(code), what};
}

}  // namespace

struct SharedMutex::State {
  State(std::shared_ptr<client::Core> core_of, const LockRef& at)
      : core(std::move(core_of)), near(core->near(at)) {
    exclusive.hold.mn_incarnation = 0;
    set_ref(at);
  }
  ~State() {
    if (near) core->forget(*near);
  }

  const std::shared_ptr<client::Core> core;
  const std::unique_ptr<client::NearLock> near;
  std::string name;  // empty: not by name

  Held exclusive;             // of who holds it so, and nobody else's; incarnation 0: nobody does
  ShortLock mutex;            // of what follows
  std::deque<LockRef> found;  // where it was looked up; once more after each restart of its memory node
  // Of readers of one process any releases for any: they share one place in the lock's queue.
  std::vector<Held> shared;
  std::atomic<const LockRef*> lock{nullptr};  // the last of `found`

  const LockRef& ref() const { return *lock.load(); }
  void set_ref(const LockRef& to) {
    const std::lock_guard guard{mutex};
    lock.store(&found.emplace_back(to));
  }
  Errc lock_as(Wanted wanted);  // with a worker
  void keep(Mode mode, const Held& held);
  Held take(Mode mode);
  // Nobody can go on safely: whoever believes that it holds the lock does not.
  [[noreturn]] void misused(std::string_view how) const;
};

SharedMutex::SharedMutex(const Cluster& cluster, LockRef lock)
    : state_(std::make_unique<State>(cluster.core(), lock)) {}

SharedMutex::SharedMutex(Cluster& cluster, std::string_view name, MnId mn) {
  const auto lock = cluster.named_lock(name, mn);
  if (!lock) fail(lock.error().code, lock.error().message);
  state_ = std::make_unique<State>(cluster.core(), *lock);
  state_->name = name;
}

SharedMutex::~SharedMutex() = default;

LockRef SharedMutex::ref() const {
  return state_->ref();
}

// `mode`: of the client; what this process has of the lock may be more.
void SharedMutex::State::keep(Mode mode, const Held& held) {
  if (mode == Mode::exclusive) {
    exclusive = held;
    return;
  }
  const std::lock_guard guard{mutex};
  shared.push_back(held);
}

Errc SharedMutex::State::lock_as(Wanted wanted) {
  for (;;) {  // again only if the memory node has restarted, and the name is somewhere else
    wanted.lock = ref();
    const Result<Held> held = core->acquire(wanted);
    if (held) {
      keep(wanted.mode, *held);
      return Errc::ok;
    }
    if (held.error() != Errc::mn_restarted || name.empty()) return held.error();
    const auto again = core->named_lock(name, wanted.lock.at.mn);
    // If the lock lies where it lay, what is to be read along is what a restart has taken away.
    if (!again || again->at == wanted.lock.at) return held.error();
    set_ref(*again);
    if (!wanted.words.empty() && !core->is_current(wanted.from)) return held.error();
  }
}

void SharedMutex::State::misused(std::string_view how) const {
  fmt::print(stderr,
             "declock: the lock '{}' {} through this SharedMutex; lock it first, and unlock it once\n",
             name.empty() ? core->label(ref().at) : name, how);
  std::abort();
}

Held SharedMutex::State::take(Mode mode) {
  if (mode == Mode::exclusive && exclusive.hold.mn_incarnation != 0) {
    const Held held = exclusive;
    exclusive.hold.mn_incarnation = 0;
    return held;
  }
  if (mode == Mode::shared) {
    const std::lock_guard guard{mutex};
    if (!shared.empty()) {
      const Held held = shared.back();
      shared.pop_back();
      return held;
    }
  }
  const std::optional<Held> held = near ? near->take(mode) : std::nullopt;
  if (!held) {
    misused(mode == Mode::exclusive ? "was unlocked, but nobody holds it exclusively"
                                    : "was unlocked, but nobody holds it shared");
  }
  return *held;
}

void SharedMutex::acquire(Mode mode, RemoteAddr from, std::span<std::uint64_t> words) {
  Errc error = Errc::busy;
  if (state_->near && words.empty()) error = state_->near->lock(mode);
  if (error == Errc::busy) error = state_->lock_as({.mode = mode, .from = from, .words = words});
  if (error != Errc::ok) fail(error, state_->core->explained("declock::SharedMutex::lock"));
}

bool SharedMutex::acquire_if(Mode mode, bool at_once, std::chrono::nanoseconds deadline) {
  if (state_->near && state_->near->try_lock(mode)) return true;
  const Errc error =
      state_->lock_as({.mode = mode,
                       .patience = at_once ? Wanted::Patience::none : Wanted::Patience::until,
                       .deadline = Time{deadline.count()}});
  if (error == Errc::busy || error == Errc::timed_out) return false;
  if (error != Errc::ok) fail(error, state_->core->explained("declock::SharedMutex::try_lock"));
  return true;
}

void SharedMutex::release(Mode mode) noexcept {
  if (state_->core->was_closed_here()) return;  // closing has given the lock up
  if (state_->near && state_->near->unlock(mode)) return;
  const Held held = state_->take(mode);
  state_->core->release_behind({held.hold.lock, state_->ref().table}, held);
}

Result<void> SharedMutex::release_checked(Mode mode, RemoteAddr to,
                                          std::span<const std::uint64_t> words) {
  if (state_->core->was_closed_here()) return Failure{Errc::closed};
  const Held held = state_->take(mode);
  return state_->core->release({held.hold.lock, state_->ref().table}, held, {to, words});
}

Token SharedMutex::token() {
  if (state_->core->was_closed_here())
    fail(Errc::closed, state_->core->explained("declock::SharedMutex::token"));
  std::optional<Hold> hold;
  if (state_->exclusive.hold.mn_incarnation != 0) hold = state_->exclusive.hold;
  if (!hold && state_->near) hold = state_->near->hold();
  if (!hold) state_->misused("was asked for a token, but nobody holds it exclusively");
  const Result<Token> token = state_->core->token(*hold);
  if (!token) fail(token.error(), state_->core->explained("declock::SharedMutex::token"));
  return *token;
}

}  // namespace declock
