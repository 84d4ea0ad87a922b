// How a compute node's clients lock and unlock (paper section 5.2); hier.h declares it.
#include "hier/hier.h"

namespace declock::hier {

namespace {

// A free lock is had also by a client that has less time than a round trip takes. That its memory node does not answer is no
// reason to wait for long.
constexpr Duration kGrace = milliseconds(100);

}  // namespace

// co_await: until a queued client is granted the lock or refused.
struct HierWorker::Granted {
  LocalLocks& locals;
  LocalWaiter& waiter;
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> me) const { return locals.suspend(waiter, me); }
  void await_resume() const noexcept {}
};

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

// co_await: until the WRITE that stands for this client's has landed.
struct HierWorker::Landed {
  LocalLocks& locals;
  Landing& landing;
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> me) const { return locals.suspend(landing, me); }
  Result<void> await_resume() const { return landing.result; }
};

LocalWaiter HierWorker::request(RemoteAddr addr, Mode mode, Time now) const {
  return {.addr = addr,
          .mode = mode,
          .asked = {timestamp_of(clock_.corrected(now)), now},
          .worker = &endpoint_.worker()};
}

// at_once.h
bool HierWorker::acquire_at_once(RemoteAddr addr, Mode mode, Hold& hold) {
  if (!is_at_once_ || self_.membership.evicted()) return false;
  const std::lock_guard guard{self_.requests.mutex()};
  cql::Record& record = self_.requests.find_or_insert(addr);
  const std::uint32_t incarnation = endpoint_.incarnation(addr.mn);
  if (!hier::acquire_at_once(record, cql::EndpointWords{endpoint_, addr}, cql_.shape(), cql_.rules(),
                             incarnation, mode))
    return false;
  hold = record.local.hold;
  return true;
}

Released HierWorker::release_at_once(const Hold& hold, cql::Owing& owing) {
  if (!is_at_once_ || self_.membership.evicted()) return Released::no;
  const std::lock_guard guard{self_.requests.mutex()};
  cql::Record* record = self_.requests.find(hold.lock);
  if (record == nullptr) return Released::no;
  // Where somebody may be waiting elsewhere, a release reads the queue along (cql/release.cc), on every fabric.
  const bool watched = endpoint_.may_watch() && !cql_.has_tokens();
  if (!watched && (record->local.remote || record->local.hold.expect_waiters)) return Released::no;
  const Released released = hier::release_at_once(*record, cql::EndpointWords{endpoint_, hold.lock},
                                                  cql_.shape(), cql_.rules(), watched, owing);
  self_.requests.reclaim(*record);
  return released;
}

Task<Result<Hold>> HierWorker::lock(LocalWaiter& me, RemoteAddr addr, Mode mode, Op* object) {
  if (object == nullptr && acquire_at_once(addr, mode, me.hold)) co_return me.hold;
  const Time now = endpoint_.worker().now();
  me = request(addr, mode, now);
  me.object = object;
  const Entry entry = locals_.enter(me, self_.worker, now);
  if (entry == Entry::look_and_go) behind_.spawn(look(me.behind));
  if (entry == Entry::joined || entry == Entry::look_and_go) co_return me.hold;
  if (entry == Entry::acquire) co_await acquire(addr, mode, me.asked.stamp, object);
  if (entry == Entry::look_and_wait) behind_.spawn(look(me.behind));
  const Task<void> looks = watch(me, entry);
  co_return co_await wait(me);
}

// The CQL lock is acquired behind the client's back, who may leave meanwhile.
Task<Result<Hold>> HierWorker::lock_until(LocalWaiter& me, RemoteAddr addr, Mode mode, Time deadline) {
  if (acquire_at_once(addr, mode, me.hold)) co_return me.hold;
  const Time now = endpoint_.worker().now();
  me = request(addr, mode, now);
  me.may_give_up = true;
  const Entry entry = locals_.enter(me, self_.worker, now);
  if (entry == Entry::look_and_go) behind_.spawn(look(me.behind));
  if (entry == Entry::joined || entry == Entry::look_and_go) co_return me.hold;
  if (entry == Entry::acquire) behind_.spawn(acquire(addr, mode, me.asked.stamp, nullptr));
  if (entry == Entry::look_and_wait) behind_.spawn(look(me.behind));
  const Task<void> looks = watch(me, entry);
  Task<void> alarm = expire(me, deadline);
  alarm.start();
  co_return co_await wait(me);
}

Task<void> HierWorker::expire(LocalWaiter& waiter, Time deadline) {
  Worker& worker = endpoint_.worker();
  co_await worker.sleep_for(deadline - worker.now());
  if (locals_.time_out(waiter)) co_return;
  co_await worker.sleep_for(kGrace);
  locals_.give_up(waiter, Errc::timed_out);
}

Task<Result<Hold>> HierWorker::lock_entered(LocalWaiter& me, Result<Place> entered) {
  const cql::RecordUse record{self_.requests, me.addr};
  self_.requests.change(*record, [&](const cql::Record&) {
    me.worker = &endpoint_.worker();
    me.thread = nullptr;
  });
  co_await acquire(me.addr, me.mode, me.asked.stamp, nullptr, entered);
  co_return co_await wait(me);
}

Task<Result<Hold>> HierWorker::wait(LocalWaiter& me) {
  co_await Granted{locals_, me};
  if (me.error != Errc::ok) co_return Failure{me.error};
  co_return me.hold;
}

Task<Result<Hold>> HierWorker::try_lock(LocalWaiter& me, RemoteAddr addr, Mode mode) {
  if (acquire_at_once(addr, mode, me.hold)) co_return me.hold;
  me = request(addr, mode, endpoint_.worker().now());
  me.may_give_up = true;
  bool asked = false;
  for (
      ;
      ;) {  // each answer comes at most once, but for `look_first`, where readers come and go meanwhile
    switch (locals_.try_enter(me, asked, self_.worker, endpoint_.worker().now())) {
      case LocalLocks::Try::joined:
        co_return me.hold;
      case LocalLocks::Try::busy:
        co_return Failure{Errc::busy};
      case LocalLocks::Try::look_first:
        co_await look(me.behind);
        continue;
      case LocalLocks::Try::ask_first: {
        const Result<bool> free = co_await cql_.looks_free(addr, mode);
        if (!free) co_return Failure{free.error()};
        if (!*free) co_return Failure{Errc::busy};
        asked = true;
        continue;
      }
      case LocalLocks::Try::acquire:
        break;
    }
    break;
  }
  const Result<Place> place = co_await cql_.enter(addr, mode);
  if (place && place->held) {
    const LocalLocks::Leave leave =
        locals_.acquired(*place->held, self_.worker, endpoint_.worker().now(), &self_.membership);
    if (leave.kind == LocalLocks::Leave::Kind::release) (void)co_await give_back(leave, nullptr);
  } else {
    // Somebody was faster, and this CN is in the queue now, or may be. Whoever asks here next takes that over.
    locals_.must_wait(addr);
    locals_.give_up(me, Errc::busy);
    behind_.spawn(acquire(addr, mode, me.asked.stamp, nullptr, place));
  }
  co_return co_await wait(me);
}

Task<void> HierWorker::acquire(RemoteAddr addr, Mode mode, Timestamp asked, Op* object,
                               std::optional<Result<Place>> entered) {
  if (entered && *entered && (*entered)->in_ring) locals_.must_wait(addr);
  if (!entered) {
    entered.emplace(co_await cql_.enter(addr, mode, object));
    if (!*entered || !(*entered)->held) locals_.must_wait(addr);
  }
  const Result<Hold> hold = co_await cql_.acquire_since(addr, mode, asked, object, entered);
  if (!hold) {
    if (hold.error() == Errc::cancelled) {
      acquire_for(addr, locals_.left(addr));
    } else {
      locals_.failed(addr, hold.error());
    }
    co_return;
  }
  const LocalLocks::Leave leave =
      locals_.acquired(*hold, self_.worker, endpoint_.worker().now(), &self_.membership);
  // Nobody is left to be told of an error; whoever asks for the lock next runs into it as well.
  if (leave.kind == LocalLocks::Leave::Kind::release) (void)co_await give_back(leave, nullptr);
}

void HierWorker::acquire_for(RemoteAddr addr, LocalLocks::Successor successor,
                             std::optional<Result<Place>> entered) {
  if (successor.waiter == nullptr) return;
  behind_.spawn(acquire(addr, successor.mode, successor.asked, successor.object, entered));
}

Task<void> HierWorker::look(Hold hold) {
  const Result<std::optional<Timestamp>> seen = co_await cql_.waiting_since(hold);
  locals_.looked(hold, seen, endpoint_.worker().now());
}

// Nothing, where there is nothing to look for.
Task<void> HierWorker::watch(LocalWaiter& me, Entry entry) {
  if (entry == Entry::acquire || me.mode == Mode::exclusive || !cql_.patrols()) return {};
  Task<void> looks = look_now_and_then(me);
  looks.start();
  return looks;
}

// A writer elsewhere that keeps this reader out may give up, or die, and nobody says so.
Task<void> HierWorker::look_now_and_then(LocalWaiter& me) {
  Worker& worker = endpoint_.worker();
  // Until it waits no more, and with it this.
  for (Duration pause = cql_.first_look();; pause = cql_.next_look(pause)) {
    co_await worker.sleep_for(pause);
    if (locals_.looks_again(me, pause, worker.now())) behind_.spawn(look_past_the_dead(me.behind));
  }
}

Task<void> HierWorker::look_past_the_dead(Hold hold) {
  co_await cql_.pass_over_the_dead_behind(hold);
  co_await look(hold);
}

Task<Result<Token>> HierWorker::token(Hold hold) {
  const cql::RecordUse record{self_.requests, hold.lock};
  const cql::Era era{hold.epoch, hold.mn_incarnation};
  std::optional<std::uint64_t> wraps =
      self_.requests.change(*record, [&](const cql::Record& r) { return r.wraps_in(era); });
  if (!wraps) {
    const Result<std::uint64_t> read = co_await cql_.wraps(hold.lock);
    if (!read) co_return Failure{read.error()};
    wraps = *read;
    self_.requests.change(*record, [&](cql::Record& r) { r.wraps = {era, *wraps}; });
  }
  co_return cql_.token(hold, *wraps);
}

Task<Result<void>> HierWorker::unlock(Hold hold, Op* object) {
  cql::Owing owing;
  switch (object == nullptr ? release_at_once(hold, owing) : Released::no) {
    case Released::yes:
      co_return Result<void>{};
    case Released::owing:
      co_return co_await cql_.hand_over_behind(hold, owing);
    case Released::no:
      break;
  }
  Carried left;
  Op for_others{};
  if (object == nullptr && cql_.has_tokens()) left = locals_.left_to_write(hold.lock);
  if (left.size > 0) {
    for_others = Op::write(left.addr, left.value(), Purpose::data);
    for_others.incarnation = hold.mn_incarnation;
    for_others.whole = true;
    object = &for_others;
  }
  Landing mine{.worker = &endpoint_.worker()};
  LocalLocks::Leave leave = locals_.leave(hold.lock, self_.worker, object != nullptr,
                                          endpoint_.worker().now(), object, &mine);
  if (leave.kind == LocalLocks::Leave::Kind::combined) co_return co_await Landed{locals_, mine};
  Result<void> written;
  const bool wrote_first = leave.kind == LocalLocks::Leave::Kind::write_first;
  if (wrote_first) {
    written = co_await post_until_known(endpoint_, *object);
    locals_.landed(leave.others, written);
    const Op* as_written = written ? object : nullptr;
    object = nullptr;
    leave = locals_.leave(hold.lock, self_.worker, false, endpoint_.worker().now(), as_written);
  }
  Result<void> released;
  Landing* const others = leave.others;
  if (leave.kind == LocalLocks::Leave::Kind::release) released = co_await give_back(leave, object);
  locals_.landed(others, released);
  if (!written) co_return written;
  if (released || !wrote_first) co_return released;
  // What was written stays so, although this compute node is evicted before it has released the lock; and others may have
  // seen it before the memory node restarted.
  if (released.error() == Errc::evicted) co_return written;
  co_return Failure{released.error() == Errc::mn_restarted ? Errc::outcome_unknown : released.error()};
}

Task<Result<void>> HierWorker::give_back(LocalLocks::Leave leave, Op* object) {
  Completion done;
  const bool stays = cql_.stays_in_ring(leave.hold);
  // Whoever stays waits there before the token is gone, as it may come back at once.
  if (stays) acquire_for(leave.hold.lock, leave.successor, cql::CqlLock::place_behind(leave.hold));
  behind_.spawn(release_cql(leave.hold, object, leave.successor.waiter == nullptr, done));
  if (!stays) acquire_for(leave.hold.lock, leave.successor);
  co_return co_await done;
}

Task<void> HierWorker::release_cql(Hold hold, Op* object, bool last, Completion& done) {
  const Result<void> released = co_await cql_.release(hold, object);
  if (last) acquire_for(hold.lock, locals_.released(hold));
  done.complete(released, endpoint_.worker());
}

}  // namespace declock::hier
