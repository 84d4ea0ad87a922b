#include "hier/hier.h"

namespace declock::hier {
namespace {

// co_await: until granted.
struct Granted {
  LocalWaiter& waiter;
  bool await_ready() const noexcept { return waiter.granted; }
  void await_suspend(std::coroutine_handle<> me) const noexcept { waiter.coroutine = me; }
  void await_resume() const noexcept {}
};

}  // namespace

// One coroutine waits for another that nobody awaits.
struct HierWorker::Completion {
  bool done = false;
  Result<void> result;
  std::coroutine_handle<> waiter;

  void complete(Result<void> r, Worker& worker) {
    done = true;
    result = r;
    if (waiter) worker.make_ready(waiter);
  }
  bool await_ready() const noexcept { return done; }
  void await_suspend(std::coroutine_handle<> me) noexcept { waiter = me; }
  Result<void> await_resume() const { return result; }
};

Task<Result<Hold>> HierWorker::lock(RemoteAddr addr, Mode mode, Op* object) {
  LocalWaiter me{.mode = mode, .asked = now(), .worker = &endpoint_.worker(), .object = object};
  for (;;) {  // at most twice: `look` comes only where nobody has looked for a while
    const LocalLocks::Entry entry = locals_.enter(addr, me, self_.worker, endpoint_.worker().now());
    switch (entry) {
      case LocalLocks::Entry::acquire:
        co_return co_await acquire(addr, mode, mode, me.asked, object);
      case LocalLocks::Entry::joined:
        co_return me.hold;
      case LocalLocks::Entry::look:
        co_await look(me.hold);
        continue;
      case LocalLocks::Entry::look_and_wait:
        behind_.spawn(look(me.hold));
        break;
      case LocalLocks::Entry::wait:
        break;
    }
    co_await Granted{me};
    if (me.error != Errc::ok) co_return Failure{me.error};
    co_return me.hold;
  }
}

Task<Result<Hold>> HierWorker::acquire(RemoteAddr addr, Mode mode, Mode as, Timestamp asked,
                                       Op* object) {
  const Result<Hold> hold = co_await cql_.acquire_since(addr, mode, asked, object);
  if (hold) {
    locals_.acquired(*hold, as, endpoint_.worker().now());
  } else {
    locals_.failed(addr, hold.error());
  }
  co_return hold;
}

void HierWorker::acquire_for(RemoteAddr addr, LocalLocks::Successor successor) {
  if (successor.waiter != nullptr)
    behind_.spawn(acquire_and_grant(addr, *successor.waiter, successor.mode));
}

Task<void> HierWorker::acquire_and_grant(RemoteAddr addr, LocalWaiter& waiter, Mode mode) {
  const Result<Hold> hold = co_await acquire(addr, mode, waiter.mode, waiter.asked, waiter.object);
  if (!hold) waiter.error = hold.error();
  LocalLocks::grant(waiter, hold ? *hold : Hold{});
}

Task<void> HierWorker::look(Hold hold) {
  const Result<std::optional<Timestamp>> seen = co_await cql_.waiting_since(hold);
  locals_.looked(hold.lock, seen ? *seen : std::nullopt, endpoint_.worker().now());
}

Task<Result<void>> HierWorker::unlock(Hold hold, Op* object) {
  LocalLocks::Leave leave = locals_.leave(hold.lock, self_.worker, object != nullptr);
  if (leave.kind == LocalLocks::Leave::Kind::write_first) {
    const Result<void> written = co_await endpoint_.post(object);
    if (!written) co_return written;
    object = nullptr;
    leave = locals_.leave(hold.lock, self_.worker, false);
  }
  if (leave.kind == LocalLocks::Leave::Kind::nothing) co_return Result<void>{};
  Completion done;
  behind_.spawn(release_cql(leave.hold, object, leave.successor.waiter == nullptr, done));
  acquire_for(hold.lock, leave.successor);
  co_return co_await done;
}

Task<void> HierWorker::release_cql(Hold hold, Op* object, bool last, Completion& done) {
  const Result<void> released = co_await cql_.release(hold, object);
  if (last) acquire_for(hold.lock, locals_.released(hold.lock));
  done.complete(released, endpoint_.worker());
}

}  // namespace declock::hier
