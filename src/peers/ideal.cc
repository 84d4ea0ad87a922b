#include "peers/ideal.h"

namespace declock::peers {

bool IdealLocks::try_enter(RemoteAddr lock, Mode mode) {
  State& state = states_[lock.packed()];
  if (state.writer) return false;
  if (mode == Mode::exclusive) {
    if (state.readers > 0) return false;
    state.writer = true;
    return true;
  }
  if (!state.waiting_writers.empty()) return false;
  state.readers += 1;
  return true;
}

void IdealLocks::wait(RemoteAddr lock, Mode mode, Waiter waiter) {
  State& state = states_[lock.packed()];
  (mode == Mode::exclusive ? state.waiting_writers : state.waiting_readers).push_back(waiter);
}

void IdealLocks::leave(RemoteAddr lock, Mode mode) {
  const auto at = states_.find(lock.packed());
  State& state = at->second;
  if (mode == Mode::shared) {
    state.readers -= 1;
    if (state.readers > 0) return;
  } else {
    state.writer = false;
    for (const Waiter& reader : state.waiting_readers) {
      state.readers += 1;
      reader.worker->make_ready(reader.coroutine);
    }
    state.waiting_readers.clear();
  }
  if (state.readers == 0 && !state.waiting_writers.empty()) {
    const Waiter writer = state.waiting_writers.front();
    state.waiting_writers.pop_front();
    state.writer = true;
    writer.worker->make_ready(writer.coroutine);
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
