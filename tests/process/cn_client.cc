#include "process/cn_client.h"

namespace declock::process {

Task<void> Client::run() {
  if (life_.holds) {
    co_await hold_to_the_end();
  } else {
    co_await do_sections();
  }
  life_.at_work.fetch_sub(1);
}

Task<void> Client::hold_to_the_end() {
  const Result<Hold> hold = co_await lock_->acquire({life_.mn, kHeldLock}, Mode::exclusive);
  if (!hold) co_return note(hold.error());
  life_.station.operations.fetch_add(1);
  while (!is_over()) {
    co_await endpoint_.worker().sleep_for(milliseconds(100));
    // Whoever was evicted finds out by an operation alone.
    std::uint64_t word = 0;
    const Result<void> read =
        co_await post(Op::read({life_.mn, kHeldLock}, {&word, 1}, Purpose::verify), *hold);
    if (!read) note(read.error());
  }
  (void)co_await release(*hold);
}

Task<Result<void>> Client::take_wide() {
  const RemoteAddr lock{life_.mn, kWide + kStride * random_.below(kWideLocks)};
  const Result<Hold> hold = co_await lock_->acquire(lock, Mode::exclusive);
  if (!hold) {
    note(hold.error());
    co_return Failure{hold.error()};
  }
  co_return co_await release(*hold);
}

Task<void> Client::do_sections() {
  for (std::uint64_t i = 0; (life_.sections == 0 || i < life_.sections) && !is_over(); ++i) {
    if (life_.wide) (void)co_await take_wide();
    const std::uint64_t which = random_.below(kLocks);
    const Mode mode = random_.one_in(3) ? Mode::shared : Mode::exclusive;
    const Result<Hold> hold = co_await acquire({life_.mn, which * kStride}, mode);
    if (!hold) {
      note(hold.error());
      continue;
    }
    const Result<void> done = co_await use_and_release(which, mode, *hold);
    if (done) life_.station.operations.fetch_add(1);
    co_await endpoint_.worker().yield();
  }
}

Task<Result<Hold>> Client::acquire(RemoteAddr lock, Mode mode) {
  if (random_.one_in(8)) {
    const Duration patience = microseconds(static_cast<std::int64_t>(random_.below(2000)));
    co_return co_await lock_->acquire_until(lock, mode, endpoint_.worker().now() + patience);
  }
  co_return co_await lock_->acquire(lock, mode);
}

Task<Result<void>> Client::use_and_release(std::uint64_t which, Mode mode, Hold hold) {
  if (mode == Mode::exclusive && life_.is_tallied() && random_.one_in(2)) {
    co_return co_await add_by_release(which, hold);
  }
  const Result<void> done =
      mode == Mode::exclusive ? co_await update(which, hold) : co_await look_twice(which, hold);
  if (!done) note(done.error());
  const Result<void> released = co_await release(hold);
  if (!released || !done) co_return released ? done : released;
  if (mode == Mode::exclusive) life_.station.acknowledged[memory_of(hold)][which].fetch_add(1);
  co_return done;
}

Task<Result<void>> Client::release(Hold hold) {
  const Result<void> released = co_await lock_->release(hold);
  if (!released) note(released.error());
  co_return released;
}

Task<Result<void>> Client::update(std::uint64_t which, const Hold& hold) {
  const RemoteAddr object{life_.mn, kObjects + 64 * which};
  std::array<std::uint64_t, 2> words{};
  Result<void> done = co_await post(Op::read(object, words, Purpose::data), hold);
  if (!done) co_return done;
  if (words[0] != words[1]) {
    control_.repairs.fetch_add(1);
    words[0] = words[1];
  }
  const std::uint64_t next = words[1] + 1;
  done = co_await post(Op::write(object, {&next, 1}, Purpose::data), hold);
  if (!done) co_return done;
  co_await linger(300);
  done = co_await post(Op::read(object, words, Purpose::data), hold);
  if (!done) co_return done;
  if (words[0] != next || words[1] != next - 1) control_.violations.fetch_add(1);
  co_return co_await post(Op::write(object + 8, {&next, 1}, Purpose::data), hold);
}

Task<Result<void>> Client::look_twice(std::uint64_t which, const Hold& hold) {
  const RemoteAddr object{life_.mn, kObjects + 64 * which};
  std::array<std::uint64_t, 2> before{};
  std::array<std::uint64_t, 2> after{};
  Result<void> done = co_await post(Op::read(object, before, Purpose::data), hold);
  if (!done) co_return done;
  co_await linger(300);
  done = co_await post(Op::read(object, after, Purpose::data), hold);
  if (done && before != after) control_.violations.fetch_add(1);
  co_return done;
}

Task<Result<void>> Client::add_by_release(std::uint64_t which, Hold hold) {
  const RemoteAddr tally{life_.mn, kTallies + 8 * kTallyWords * which};
  Bounds& bounds = life_.station.bounds[memory_of(hold)][number_][which];
  const Result<void> read = co_await post(Op::read(tally, words_, Purpose::data), hold);
  if (!read) {
    note(read.error());
    (void)co_await release(hold);
    co_return read;
  }
  const std::uint64_t before = words_[life_.number() * kClients + number_];
  if (!bounds.allow(before)) control_.misjudged.fetch_add(1);
  bounds.at_least.store(before);  // what was not known is known now
  bounds.at_most.store(before);
  co_await linger(5000);  // whoever is stopped here beyond its lease writes too late
  words_[life_.number() * kClients + number_] = before + 1;
  Op write = Op::write(tally, words_, Purpose::data);
  write.incarnation = hold.mn_incarnation;
  bounds.at_most.store(before + 1);
  const Result<void> released = co_await lock_->release(hold, &write);
  if (released) {
    bounds.at_least.store(before + 1);
    control_.done.fetch_add(1);
  } else if (released.error() == Errc::outcome_unknown) {
    control_.not_known.fetch_add(1);
  } else {
    bounds.at_most.store(before);
    control_.certainly_not.fetch_add(1);
    note(released.error());
  }
  co_return released;
}

}  // namespace declock::process
