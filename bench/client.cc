#include "bench/client.h"

#include <algorithm>

namespace declock::bench {

Task<void> Client::run() {
  ScratchWords object{frames(), workload.placement.object_words()};
  std::fill(object.words().begin(), object.words().end(), 0);
  const auto think_max = static_cast<std::uint64_t>(workload.config.nic.think_max_ns);
  const bool thinks = workload.config.fabric == Fabric::sim;
  for (;;) {
    if (thinks) {
      co_await worker.sleep_for(Duration{static_cast<std::int64_t>(random.below(think_max + 1))});
    } else {
      co_await worker.yield();  // the others of this worker get their turn
    }
    if (failed || host.over()) co_return;
    const Result<void> done = co_await operate(object.words());
    if (done || done.error() == Errc::mn_restarted) continue;
    give_up(done.error());
    co_return;
  }
}

void Client::give_up(Errc error) {
  failed = true;
  host.gave_up(*this, error);
}

// One operation: lock, use the object, unlock. An exclusive section adds one to a plain counter in the
// object, so that a section which ran beside another shows as a lost update.
Task<Result<void>> Client::operate(std::span<std::uint64_t> object) {
  const MicroConfig& config = workload.config;
  const std::uint64_t which = workload.zipf.draw(random);
  const Mode mode = random.unit() < config.read_ratio ? Mode::shared : Mode::exclusive;
  const RemoteAddr addr = workload.placement.object(which);
  const bool writes = mode == Mode::exclusive && config.cs_ops > 0;
  std::uint32_t reads = config.cs_ops - (writes ? 1 : 0);
  Op read = Op::read(addr, object, Purpose::data);
  Op write = Op::write(addr, object, Purpose::data);

  const Time called = worker.now();
  host.called(*this, which, mode);
  // Where objects travel with the lock, a section of one WRITE learns the counter from there.
  const bool learns = config.piggyback && writes && config.cs_ops == 1 && lock->carries_objects();
  read.if_carried = learns;
  const bool read_along = config.piggyback && (reads > 0 || learns);
  read.whole = write.whole =
      config.piggyback && config.cs_ops <= 2;  // no other access to it in between
  const Result<Hold> granted =
      co_await lock->acquire(workload.placement.lock(which), mode, read_along ? &read : nullptr);
  if (!granted) co_return Failure{granted.error()};
  const Hold& hold = *granted;
  const Time entered = worker.now();
  host.entered(*this, which, mode, hold, entered - called);

  if (hold.object_read && reads > 0) reads -= 1;
  write.incarnation = config.kill ? hold.mn_incarnation : 0;
  Result<void> posted = co_await read_object(addr, object, reads, Purpose::data);
  if (writes && posted && config.cs_ops == 1 && !hold.object_read) {
    // A section of one WRITE has no READ to learn the counter from.
    const std::optional<std::uint64_t> counter = host.look(addr);
    if (counter) object[0] = *counter;
    if (!counter) posted = co_await read_object(addr, object, 1, Purpose::verify);
  }
  if (writes && posted) {
    object[0] += 1;
    if (!config.piggyback) posted = co_await post_until_known(endpoint, write);
  }
  const Time leaving = worker.now();
  host.leaves(*this);
  if (!posted) {  // the memory node was lost; the hold is void, and release says so
    const Result<void> released = co_await lock->release(hold);
    co_return released ? posted : released;
  }

  const bool write_along = config.piggyback && writes;
  if (config.piggyback && !writes && lock->may_release_behind(mode)) {
    behind.spawn(release_behind(hold));
  } else {
    posted = co_await lock->release(hold, write_along ? &write : nullptr);
    if (!posted) co_return posted;
  }
  if (writes) host.updated(*this);
  const Time done = worker.now();
  host.finished(*this, done - called, leaving - entered, done - leaving);
  co_return Result<void>{};
}

Task<Result<void>> Client::read_object(RemoteAddr addr, std::span<std::uint64_t> object,
                                       std::uint32_t times, Purpose purpose) {
  for (std::uint32_t i = 0; i < times; ++i) {
    Op read = Op::read(addr, object, purpose);
    const Result<void> posted = co_await post_until_known(endpoint, read);
    if (!posted) co_return posted;
  }
  co_return Result<void>{};
}

Task<void> Client::release_behind(Hold hold) {
  const Result<void> released = co_await lock->release(hold);
  if (!released && released.error() != Errc::mn_restarted) give_up(released.error());
}

}  // namespace declock::bench
