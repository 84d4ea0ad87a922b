// What a client of an exploration does: its program, operation by operation.
#include <fmt/format.h>

#include "explore/world.h"

namespace declock::explore {

Task<void> World::Client::run() {
  for (const Operation& operation : operations) {
    number += 1;
    world.between_operations(*this);
    inside = true;
    const Result<void> finished = co_await operate(operation);
    inside = false;
    if (!finished && party.removed) co_return;  // it was told so
    if (!finished) {
      world.report(Violation::Kind::stuck,
                   fmt::format("client {} gives up: {}", index, to_string(finished.error())));
      co_return;
    }
  }
  number = 0;
  world.between_operations(*this);
  done = true;
  if (!party.removed) world.unfinished_ -= 1;
  world.tell("is done");
}

Task<Result<Hold>> World::Client::acquire(Operation operation, Op* object) {
  using Patience = Operation::Patience;
  if (operation.patience == Patience::waits) return lock->acquire(kLock, operation.mode, object);
  auto& timed = dynamic_cast<TimedLockClient&>(*lock);
  if (operation.patience == Patience::tries) return timed.try_acquire(kLock, operation.mode);
  return acquire_or_cancel(timed, operation.mode);
}

Task<Result<Hold>> World::Client::acquire_or_cancel(TimedLockClient& timed, Mode mode) {
  Task<void> impatience = cancel_some_time(timed);
  impatience.start();
  co_return co_await timed.acquire_until(kLock, mode, endpoint().worker().now() + seconds(1));
}

Task<void> World::Client::cancel_some_time(TimedLockClient& timed) {
  co_await world.engine_->pause(static_cast<std::uint8_t>(index + kImpatience), endpoint().id());
  timed.cancel();
}

Task<Result<void>> World::Client::operate(Operation operation) {
  const bool writes = world.scenario_.piggyback && operation.mode == Mode::exclusive;
  std::uint64_t value = 0;
  Op read = Op::read(world.object(), {&value, 1}, Purpose::data);
  Op write = Op::write(world.object(), {&value, 1}, Purpose::data);

  read.whole = write.whole = world.scenario_.piggyback;
  // Other clients may come before the call.
  if (world.scenario_.at_once)
    co_await world.engine_->pause(static_cast<std::uint8_t>(index + kCall), endpoint().id());
  world.fairness_->called(0, index, operation.mode);
  const Result<Hold> hold = co_await acquire(operation, world.scenario_.piggyback ? &read : nullptr);
  if (!hold && (hold.error() == Errc::busy || hold.error() == Errc::cancelled)) {
    world.fairness_->gave_up(index);
    world.tell(hold.error() == Errc::busy ? "finds it busy" : "gives up waiting");
    co_return Result<void>{};
  }
  if (!hold) co_return Failure{hold.error()};
  world.enter(*this, operation.mode, *hold);
  if (!hold->object_read) value = world.engine_->memory(MnId{0}).load(world.object().offset);
  if (world.scenario_.piggyback && value != world.updates_) {
    world.report(Violation::Kind::stale_read,
                 fmt::format("client {} reads {} after {} updates", index, value, world.updates_));
  }
  co_await use_object(*hold);
  world.leave(*this);
  world.tell("leaves");
  if (writes) {
    value += 1;
    world.updates_ += 1;
  }
  if (world.scenario_.piggyback && !writes && lock->may_release_behind(operation.mode)) {
    behind.spawn(release_behind(*hold));
    co_return Result<void>{};
  }
  co_return co_await release(*hold, writes ? &write : nullptr);
}

// The critical section. Where the memory node may restart, it looks at the object at some moment, and hears of it.
Task<void> World::Client::use_object(Hold hold) {
  co_await world.engine_->pause(static_cast<std::uint8_t>(index), endpoint().id());
  if (world.scenario_.mishaps.restarts == 0) co_return;
  std::uint64_t value = 0;
  Op read = Op::read(world.object(), {&value, 1}, Purpose::data);
  if (world.scenario_.protocol.rules.restart_voids_holds) read.incarnation = hold.mn_incarnation;
  const Result<void> used = co_await post_until_known(endpoint(), read);
  if (!used) world.tell("hears that what it held is gone");
}

Task<Result<void>> World::Client::release(Hold hold, Op* object) {
  const Result<void> released = co_await lock->release(hold, object);
  // What it held is gone, and it was told so.
  if (!released && released.error() == Errc::mn_restarted && world.is_void(hold))
    co_return Result<void>{};
  co_return released;
}

Task<void> World::Client::release_behind(Hold hold) {
  const Result<void> released = co_await release(hold, nullptr);
  if (!released) {
    world.report(Violation::Kind::stuck, fmt::format("client {} cannot hand the lock over: {}", index,
                                                     to_string(released.error())));
  }
}

}  // namespace declock::explore
