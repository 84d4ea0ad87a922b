#include "torture/client.h"

namespace declock::torture {

// After the healing each client takes every lock once, and is done.
std::uint32_t Client::next_wanted() {
  if (!work_.rounds_wanted) return static_cast<std::uint32_t>(random_.below(work_.plan.locks));
  for (std::uint32_t i = 0; i < served_.size(); ++i) {
    if (!served_[i]) return i;
  }
  return work_.plan.locks;
}

Task<void> Client::run() {
  for (;;) {
    co_await endpoint_.worker().sleep_for(Duration{static_cast<std::int64_t>(random_.below(60'000))});
    const bool wanted = work_.rounds_wanted;
    const std::uint32_t number = next_wanted();
    if (number == work_.plan.locks || leaving_) co_return;
    const Mode mode = random_.unit() < work_.plan.read_ratio ? Mode::shared : Mode::exclusive;
    const Result<void> done = co_await section(number, mode);
    if (done && wanted) served_[number] = true;
    if (!done && done.error() == Errc::evicted) co_return;
  }
}

Task<Result<Hold>> Client::acquire(RemoteAddr addr, Mode mode, Op* object) {
  if (!work_.rounds_wanted && random_.one_in(8)) return lock_->try_acquire(addr, mode);
  if (!work_.rounds_wanted && random_.one_in(8)) {
    const Duration patience{static_cast<std::int64_t>(random_.below(3'000'000))};
    return lock_->acquire_until(addr, mode, endpoint_.worker().now() + patience);
  }
  return lock_->acquire(addr, mode, object);
}

// How an update ended: done, certainly not, or not known, of which the ledger hears nothing.
void Client::outcome(std::uint32_t number, audit::Ledger::Update update, const Result<void>& written) {
  if (written) {
    work_.ledger.done(number, update);
  } else if (written.error() != Errc::outcome_unknown) {
    work_.ledger.certainly_not_done(number, update);
  }
}

Task<Result<void>> Client::section(std::uint32_t number, Mode mode) {
  const RemoteAddr addr = work_.lock(number);
  std::uint64_t counter = 0;
  Op read = Op::read(work_.counter(number), {&counter, 1}, Purpose::data);
  read.whole = work_.plan.piggyback;
  const Result<Hold> hold = co_await acquire(addr, mode, work_.plan.piggyback ? &read : nullptr);
  if (!hold) co_return Failure{hold.error()};
  audit::Ledger& ledger = work_.ledger;
  ledger.enter(number, who_, node_, mode, hold->mn_incarnation);
  const std::uint32_t only = work_.protocol.restart_voids_holds ? hold->mn_incarnation : 0;
  Result<void> used;
  if (!hold->object_read) {
    read.incarnation = only;
    used = co_await post_until_known(endpoint_, read);
  }
  if (used && !hold->object_open) ledger.read(number, who_, counter);
  co_await endpoint_.worker().sleep_for(Duration{static_cast<std::int64_t>(random_.below(20'000))});
  counter += 1;
  Op write = Op::write(work_.counter(number), {&counter, 1}, Purpose::data);
  write.incarnation = only;
  write.whole = work_.plan.piggyback;
  const bool writes = used && mode == Mode::exclusive;
  const bool along = writes && work_.plan.piggyback;
  audit::Ledger::Update update{};
  if (writes) {
    const Result<Token> token = co_await lock_->token(*hold);
    if (token) ledger.token(number, who_, *token);
    update = ledger.writes(number, who_);
    if (!along) {
      used = co_await post_until_known(endpoint_, write);
      outcome(number, update, used);
    }
  }
  ledger.leave(number, who_);
  const Result<void> released = co_await lock_->release(*hold, along ? &write : nullptr);
  if (along) outcome(number, update, released);
  if (!released) co_return released;
  co_return used;
}

}  // namespace declock::torture
