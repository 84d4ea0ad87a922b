#include "peers/ideal.h"

#include <algorithm>

namespace declock::peers {

bool IdealLocks::try_enter(RemoteAddr lock, Mode mode) {
  State& state = states_[lock.packed()];
  if (state.writer) return false;
  if (mode == Mode::exclusive) {
    if (state.readers > 0) return false;
    state.writer = true;
    return true;
  }
  const bool writer_waits = !state.waiting_writers.empty();
  if (writer_waits && state.joined_until == 0) return false;
  state.readers += 1;
  if (!writer_waits && readers_join()) state.joined_until = state.readers;
  return true;
}

void IdealLocks::wait(RemoteAddr lock, Mode mode, Waiter waiter) {
  State& state = states_[lock.packed()];
  (mode == Mode::exclusive ? state.waiting_writers : state.waiting_readers).push_back(waiter);
}

void IdealLocks::let_readers_in(State& state) const {
  for (const Waiter& reader : state.waiting_readers) {
    state.readers += 1;
    reader.worker->make_ready(reader.coroutine);
  }
  state.waiting_readers.clear();
  if (readers_join()) state.joined_until = state.readers;
}

void IdealLocks::let_a_writer_in(State& state) {
  const Waiter writer = state.waiting_writers.front();
  state.waiting_writers.pop_front();
  state.writer = true;
  writer.worker->make_ready(writer.coroutine);
}

void IdealLocks::leave(RemoteAddr lock, Mode mode) {
  const auto at = states_.find(lock.packed());
  State& state = at->second;
  if (mode == Mode::shared) {
    state.readers -= 1;
    if (state.joined_until > 0) state.joined_until -= 1;
    if (state.readers > 0) return;
  } else {
    state.writer = false;
    if (state.turns_left > 0) {
      state.turns_left -= 1;
      return let_a_writer_in(state);  // it waited when the phase began
    }
    let_readers_in(state);
  }
  if (state.readers == 0 && !state.waiting_writers.empty()) {
    const auto waiting = static_cast<std::uint32_t>(state.waiting_writers.size());
    state.turns_left = std::min(waiting, writers_in_a_row_max_) - 1;
    let_a_writer_in(state);
  }
  if (state.readers == 0 && !state.writer) states_.erase(at);
}

Task<Result<Hold>> IdealLock::acquire(RemoteAddr lock, Mode mode, Op*) {
  struct Turn {
    IdealLock& self;
    RemoteAddr lock;
    Mode mode;
    bool await_ready() const { return self.locks_.try_enter(lock, mode); }
    void await_suspend(std::coroutine_handle<> me) const {
      self.locks_.wait(lock, mode, {&self.endpoint_.worker(), me});
    }
    void await_resume() const {}
  };
  co_await Turn{*this, lock, mode};
  co_return Hold{.lock = lock, .mode = mode};
}

Task<Result<void>> IdealLock::release(Hold hold, Op* object) {
  if (object != nullptr) {
    const Result<void> posted = co_await endpoint_.post(object);
    if (!posted) co_return posted;
  }
  locks_.leave(hold.lock, hold.mode);
  co_return Result<void>{};
}

}  // namespace declock::peers
