#include "hier/local_locks.h"

#include <algorithm>

#include "base/mix.h"

namespace declock::hier {
namespace {

// H25: a stream of local readers that overlap for ever would never see a remote writer. After so many of
// them, or so long, one looks at the queue before it joins.
constexpr std::uint32_t kJoinsBetweenLooks = 16;
constexpr Duration kTimeBetweenLooks = microseconds(50);

}  // namespace

LocalLocks::LocalLocks(const Policy& policy) : policy_(policy), buckets_(64) {}

LocalLocks::Entry LocalLocks::enter(RemoteAddr addr, LocalWaiter& waiter, WorkerId worker, Time now) {
  const std::lock_guard guard{mutex_};
  LocalLock* lock = find(addr);
  if (lock == nullptr) {
    insert(addr).state = LocalLock::State::acquiring;
    return Entry::acquire;
  }
  if (lock->state == LocalLock::State::releasing && lock->first == nullptr &&
      lock->releasing_worker == worker) {
    // Behind the release, on the same endpoint: operations take effect in order (H34).
    lock->state = LocalLock::State::acquiring;
    return Entry::acquire;
  }
  if (may_join(*lock, waiter)) {
    const bool time_to_look =
        lock->joins >= kJoinsBetweenLooks || now - lock->looked > kTimeBetweenLooks;
    if (time_to_look && !lock->looking) {
      waiter.hold = lock->hold;
      lock->looking = true;
      return Entry::look;
    }
    lock->joins += 1;
    lock->holders += 1;
    waiter.hold = lock->hold;
    return Entry::joined;
  }
  append(*lock, waiter);
  if (lock->state != LocalLock::State::held || lock->remote || lock->looking) return Entry::wait;
  waiter.hold = lock->hold;
  lock->looking = true;
  return Entry::look_and_wait;
}

bool LocalLocks::may_join(const LocalLock& lock, const LocalWaiter& waiter) const {
  return lock.state == LocalLock::State::held && lock.held_as == Mode::shared &&
         waiter.mode == Mode::shared && first_of(lock, Mode::exclusive) == nullptr &&
         policy_.in_time(waiter.asked, lock.remote);
}

void LocalLocks::looked(RemoteAddr addr, std::optional<Timestamp> remote, Time now) {
  const std::lock_guard guard{mutex_};
  LocalLock* lock = find(addr);
  if (lock == nullptr || !lock->looking) return;  // released meanwhile: what was seen is void
  lock->looking = false;
  lock->joins = 0;
  lock->looked = now;
  if (remote && (!lock->remote || is_earlier(*remote, *lock->remote))) lock->remote = remote;
}

void LocalLocks::acquired(const Hold& hold, Mode as, Time now) {
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find(hold.lock);
  CHECK(lock.state == LocalLock::State::acquiring && lock.holders == 0);
  lock.state = LocalLock::State::held;
  lock.hold = hold;
  lock.hold.object_read = false;
  lock.holders = 1;
  lock.in_a_row = 0;
  lock.remote = hold.waiting_since;
  lock.joins = 0;
  lock.looked = now;
  lock.held_as = as;
  if (as == Mode::shared) let_readers_in(lock);
}

// Others share a shared lock: task-fair, those who came before the first writer and before whoever waits
// elsewhere; otherwise all of them.
void LocalLocks::let_readers_in(LocalLock& lock) {
  for (LocalWaiter* waiter = lock.first; waiter != nullptr;) {
    LocalWaiter* next = waiter->next;
    const bool in_time = policy_.in_time(waiter->asked, lock.remote);
    if (!policy_.phases() && (waiter->mode == Mode::exclusive || !in_time)) return;
    if (waiter->mode == Mode::shared && (in_time || policy_.late_reader_comes_along(lock.hold.mode))) {
      unlink(lock, *waiter);
      lock.holders += 1;
      grant(*waiter, lock.hold);
    }
    waiter = next;
  }
}

void LocalLocks::failed(RemoteAddr addr, Errc error) {
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find(addr);
  while (lock.first != nullptr) {
    LocalWaiter& waiter = *lock.first;
    unlink(lock, waiter);
    waiter.error = error;
    grant(waiter, {});
  }
  remove(addr);
}

LocalLocks::Choice LocalLocks::choose(const LocalLock& lock) const {
  Choice choice{lock.first, false};
  if (policy_.phases()) {
    const Mode turn = lock.held_as == Mode::exclusive ? Mode::shared : Mode::exclusive;
    if (LocalWaiter* other = first_of(lock, turn)) choice.candidate = other;
  }
  choice.stays = choice.candidate != nullptr &&
                 policy_.covers(lock.hold.mode, choice.candidate->mode) &&
                 policy_.hand_over_locally(choice.candidate->asked, lock.remote, lock.in_a_row);
  return choice;
}

LocalLocks::Leave LocalLocks::leave(RemoteAddr addr, WorkerId worker, bool unwritten) {
  const std::lock_guard guard{mutex_};
  LocalLock& lock = *find(addr);
  const Choice choice = choose(lock);
  if (unwritten && (lock.holders > 1 || choice.stays)) return {.kind = Leave::Kind::write_first};
  lock.holders -= 1;
  if (lock.holders > 0) return {};
  if (choice.stays) {
    lock.in_a_row += 1;
    unlink(lock, *choice.candidate);
    lock.holders = 1;
    lock.held_as = choice.candidate->mode;
    grant(*choice.candidate, lock.hold);
    if (lock.held_as == Mode::shared) let_readers_in(lock);
    return {};
  }
  Leave leave{Leave::Kind::release, lock.hold, {}};
  leave.hold.expect_waiters = leave.hold.expect_waiters || lock.remote || choice.candidate != nullptr;
  lock.remote.reset();
  lock.looking = false;
  if (choice.candidate != nullptr) {
    leave.successor = take_successor(lock, *choice.candidate);
  } else {
    lock.state = LocalLock::State::releasing;
    lock.releasing_worker = worker;
  }
  return leave;
}

LocalLocks::Successor LocalLocks::released(RemoteAddr addr) {
  const std::lock_guard guard{mutex_};
  LocalLock* lock = find(addr);
  // Otherwise somebody has gone ahead behind the release, on its endpoint.
  if (lock == nullptr || lock->state != LocalLock::State::releasing) return {};
  if (lock->first != nullptr) return take_successor(*lock, *lock->first);
  remove(addr);
  return {};
}

LocalLocks::Successor LocalLocks::take_successor(LocalLock& lock, LocalWaiter& waiter) {
  unlink(lock, waiter);
  lock.state = LocalLock::State::acquiring;
  return {&waiter, policy_.mode_to_ask(waiter.mode, first_of(lock, Mode::exclusive) != nullptr)};
}

void LocalLocks::grant(LocalWaiter& waiter, const Hold& hold) {
  waiter.hold = hold;
  waiter.granted = true;
  if (waiter.coroutine) waiter.worker->make_ready(waiter.coroutine);
}

void LocalLocks::append(LocalLock& lock, LocalWaiter& waiter) {
  waiter.next = nullptr;
  (lock.last == nullptr ? lock.first : lock.last->next) = &waiter;
  lock.last = &waiter;
}

void LocalLocks::unlink(LocalLock& lock, LocalWaiter& waiter) {
  LocalWaiter* before = nullptr;
  for (LocalWaiter* at = lock.first; at != &waiter; at = at->next) before = at;
  (before == nullptr ? lock.first : before->next) = waiter.next;
  if (lock.last == &waiter) lock.last = before;
}

LocalWaiter* LocalLocks::first_of(const LocalLock& lock, Mode mode) {
  for (LocalWaiter* waiter = lock.first; waiter != nullptr; waiter = waiter->next) {
    if (waiter->mode == mode) return waiter;
  }
  return nullptr;
}

std::uint32_t& LocalLocks::bucket(RemoteAddr addr) {
  return buckets_[mix(0, addr.packed()) & (buckets_.size() - 1)];
}

LocalLock* LocalLocks::find(RemoteAddr addr) {
  for (std::uint32_t number = bucket(addr); number != 0;) {
    LocalLock& lock = *locks_[number - 1];
    if (lock.addr == addr) return &lock;
    number = lock.next_in_bucket;
  }
  return nullptr;
}

LocalLock& LocalLocks::insert(RemoteAddr addr) {
  if (in_use_ >= buckets_.size()) grow();
  if (idle_.empty()) {
    locks_.push_back(std::make_unique<LocalLock>());
    idle_.push_back(static_cast<std::uint32_t>(locks_.size()));
  }
  const std::uint32_t number = idle_.back();
  idle_.pop_back();
  LocalLock& lock = *locks_[number - 1];
  lock = LocalLock{};
  lock.addr = addr;
  lock.next_in_bucket = bucket(addr);
  bucket(addr) = number;
  in_use_ += 1;
  const std::size_t bytes =
      locks_.size() * (sizeof(LocalLock) + 2 * sizeof(void*)) + buckets_.size() * 4;
  bytes_max_ = std::max(bytes_max_, bytes);
  return lock;
}

void LocalLocks::remove(RemoteAddr addr) {
  std::uint32_t* link = &bucket(addr);
  while (locks_[*link - 1]->addr != addr) link = &locks_[*link - 1]->next_in_bucket;
  const std::uint32_t number = *link;
  *link = locks_[number - 1]->next_in_bucket;
  idle_.push_back(number);
  in_use_ -= 1;
}

void LocalLocks::grow() {
  std::vector<std::uint32_t> old(buckets_.size() * 2);
  old.swap(buckets_);
  for (std::uint32_t head : old) {
    while (head != 0) {
      LocalLock& lock = *locks_[head - 1];
      const std::uint32_t next = lock.next_in_bucket;
      lock.next_in_bucket = bucket(lock.addr);
      bucket(lock.addr) = head;
      head = next;
    }
  }
}

}  // namespace declock::hier
