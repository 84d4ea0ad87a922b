#include "peers/dslr.h"

#include <algorithm>

namespace declock::peers {
namespace {

constexpr std::uint16_t kMax = 1 << 15;

struct Counters {
  std::uint16_t done_exclusive;
  std::uint16_t done_shared;
  std::uint16_t next_exclusive;
  std::uint16_t next_shared;

  static Counters of(std::uint64_t word) {
    return {static_cast<std::uint16_t>(word >> 48), static_cast<std::uint16_t>(word >> 32),
            static_cast<std::uint16_t>(word >> 16), static_cast<std::uint16_t>(word)};
  }
  std::uint64_t word() const {
    return std::uint64_t{done_exclusive} << 48 | std::uint64_t{done_shared} << 32 |
           std::uint64_t{next_exclusive} << 16 | next_shared;
  }
  bool frozen() const { return next_exclusive >= kMax || next_shared >= kMax; }
};

constexpr std::uint64_t take(Mode mode) {
  return mode == Mode::exclusive ? 1 << 16 : 1;
}
constexpr std::uint64_t finish(Mode mode) {
  return take(mode) << 32;
}

// Conflicting tickets before `mine` that are not done; 0: it is my turn.
std::uint32_t ahead_of(const Counters& mine, const Counters& now, Mode mode) {
  std::uint32_t ahead = static_cast<std::uint16_t>(mine.next_exclusive - now.done_exclusive);
  if (mode == Mode::exclusive) ahead += static_cast<std::uint16_t>(mine.next_shared - now.done_shared);
  return ahead;
}

// The word in which nothing is outstanding, seen from the last ticket of its mode; 0: it is not the
// last.
std::uint64_t reset_from(const Counters& mine, Mode mode) {
  if (mode == Mode::shared && mine.next_shared == kMax - 1) {
    return Counters{mine.next_exclusive, kMax, mine.next_exclusive, kMax}.word();
  }
  if (mode == Mode::exclusive && mine.next_exclusive == kMax - 1) {
    return Counters{kMax, mine.next_shared, kMax, mine.next_shared}.word();
  }
  return 0;
}

}  // namespace

Duration AdaptiveBackoff::pause(std::uint32_t core, std::uint32_t polls, Worker& worker) {
  polls_ += 1;
  std::int64_t& cap_ns = cap_ns_[core];
  if (worker.now() - last_change_ > microseconds(100)) {
    // Above 7 polls in 10 the cap doubles, below 5 it halves.
    if (polls_ * 3 > acquires_ * 7 && cap_ns < kCapNs) cap_ns *= 2;
    if (polls_ < acquires_ && cap_ns > kBaseNs) cap_ns /= 2;
    last_change_ = worker.now();
  }
  const std::int64_t doubled = kBaseNs << std::min(polls - 1, 5u);
  return {std::min(doubled, cap_ns) + static_cast<std::int64_t>(worker.random().below(2000))};
}

Task<Result<Hold>> DslrLock::acquire(RemoteAddr lock, Mode mode, Op* object) {
  if (adaptive_ != nullptr) adaptive_->count_acquire();
  Worker& worker = endpoint_.worker();
  Counters mine{};
  for (;;) {  // bounded by resets: each thaws the word for kMax tickets
    Op enter = Op::fetch_add(lock, take(mode), Purpose::acquire);
    Result<void> posted = co_await endpoint_.post(enter, object);
    if (!posted) co_return Failure{posted.error()};
    mine = Counters::of(enter.old);
    if (!mine.frozen()) break;
    Op give_back = Op::fetch_add(lock, -take(mode), Purpose::acquire);
    posted = co_await endpoint_.post(give_back);
    if (!posted) co_return Failure{posted.error()};
    posted = co_await await_thaw(lock);
    if (!posted) co_return Failure{posted.error()};
  }

  Counters now = mine;
  std::uint32_t polls = 0;
  while (ahead_of(mine, now, mode) > 0) {  // bounded by the holders ahead
    if (adaptive_ == nullptr) {
      co_await worker.sleep_for(kPausePerTicket * ahead_of(mine, now, mode));
    } else if (polls > 0) {  // DSLR+ polls once before its first pause
      co_await worker.sleep_for(adaptive_->pause(core_, polls, worker));
    }
    polls += 1;
    std::uint64_t word = 0;
    Op poll = Op::read(lock, {&word, 1}, Purpose::acquire);
    const Result<void> posted = co_await endpoint_.post(poll, object);
    if (!posted) co_return Failure{posted.error()};
    now = Counters::of(word);
  }
  co_return Hold{.lock = lock,
                 .mode = mode,
                 .ticket = Ticket{reset_from(mine, mode)},  // what release() needs to know
                 .object_read = object != nullptr};
}

Task<Result<void>> DslrLock::await_thaw(RemoteAddr lock) {
  Worker& worker = endpoint_.worker();
  Duration longest = microseconds(10);
  for (;;) {  // bounded by the outstanding tickets, whose last holder resets the word
    co_await worker.sleep_for(
        {static_cast<std::int64_t>(worker.random().below(static_cast<std::uint64_t>(longest.ns)))});
    longest = std::min(longest + longest, milliseconds(10));
    std::uint64_t word = 0;
    Op poll = Op::read(lock, {&word, 1}, Purpose::acquire);
    const Result<void> posted = co_await endpoint_.post(poll);
    if (!posted) co_return posted;
    if (!Counters::of(word).frozen()) co_return Result<void>{};
  }
}

Task<Result<void>> DslrLock::release(Hold hold, Op* object) {
  Op leave = Op::fetch_add(hold.lock, finish(hold.mode), Purpose::release);
  const Result<void> posted = co_await endpoint_.post(object, leave);
  if (!posted) co_return posted;
  if (hold.ticket.value != 0) resets_.spawn(reset(hold.lock, hold.ticket.value));
  co_return Result<void>{};
}

// READ first and swap only when nothing is outstanding: a ticket that is being given back makes the
// swap fail, and then it is tried again.
Task<void> DslrLock::reset(RemoteAddr lock, std::uint64_t from) {
  for (;;) {  // bounded by the holders and the given-back tickets
    std::uint64_t word = 0;
    Op look = Op::read(lock, {&word, 1}, Purpose::reset);
    const Result<void> seen = co_await endpoint_.post(look);
    if (!seen) co_return;
    if (word == from) {
      Op swap = Op::compare_swap(lock, from, 0, Purpose::reset);
      const Result<void> swapped = co_await endpoint_.post(swap);
      if (!swapped || swap.old == from) co_return;
    }
    co_await endpoint_.worker().sleep_for(microseconds(2));
  }
}

}  // namespace declock::peers
