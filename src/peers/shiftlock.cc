#include "peers/shiftlock.h"

#include "base/check.h"

namespace declock::peers {
namespace {

struct Word {
  bool mode;
  std::uint32_t rdr;
  std::uint32_t tail;
  std::uint32_t rel;

  static Word of(std::uint64_t w) {
    return {(w & 1) != 0, static_cast<std::uint32_t>(w >> 1 & 0x7FFF),
            static_cast<std::uint32_t>(w >> 16 & 0xFFFF), static_cast<std::uint32_t>(w >> 32)};
  }
};

constexpr std::uint64_t kModeMask = 1;
constexpr std::uint64_t kReader = 2;
constexpr std::uint64_t kReadersMask = 0xFFFE;
constexpr std::uint64_t kTailMask = 0xFFFF'0000;
constexpr std::uint64_t kRelease = std::uint64_t{1} << 32;
constexpr std::uint64_t kRelMask = ~std::uint64_t{0} << 32;

constexpr std::uint64_t tail(std::uint32_t id) {
  return std::uint64_t{id} << 16;
}

// Messages: the lock, what it is with its small numbers, and `rel`.
enum class Kind : std::uint64_t { successor, hand_over, mode_changed };

Message make_message(RemoteAddr lock, Kind kind, std::uint32_t number, bool mode, std::uint32_t rel) {
  return {{lock.packed(),
           static_cast<std::uint64_t>(kind) | std::uint64_t{mode} << 8 | std::uint64_t{number} << 16,
           rel}};
}

}  // namespace

ShiftLock::ShiftLock(Endpoint& endpoint) : endpoint_(endpoint), me_(endpoint.id().value + 1) {
  CHECK(endpoint.has_masked_compare_swap());
  CHECK(me_ <= 0xFFFF);
  endpoint.set_receiver(this);
}

ShiftLock::Writing& ShiftLock::writing_on(RemoteAddr lock) {
  for (Writing& writing : writings_) {
    if (writing.lock == lock) return writing;
  }
  CHECK(false);  // messages come only to those in a lock's queue, and a release to a holder
  return writings_.front();
}

void ShiftLock::on_message(EndpointId, const Message& message) {
  Writing& writing = writing_on(RemoteAddr::unpack(message.words[0]));
  const auto kind = static_cast<Kind>(message.words[1] & 0xFF);
  const auto number = static_cast<std::uint32_t>(message.words[1] >> 16);
  if (kind == Kind::successor) {
    writing.successor = number;
  } else {
    writing.granted = true;
    writing.must_drain = kind == Kind::mode_changed;
    writing.in_a_row = number;
    writing.mode = (message.words[1] >> 8 & 1) != 0;
    writing.rel = static_cast<std::uint32_t>(message.words[2]);
  }
  if (writing.waiter) std::exchange(writing.waiter, nullptr).resume();
}

namespace {

// co_await: until the next message for this request.
template <class Writing>
struct NextMessage {
  Writing& writing;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) const noexcept { writing.waiter = waiter; }
  void await_resume() const noexcept {}
};
template <class Writing>
NextMessage(Writing&) -> NextMessage<Writing>;

}  // namespace

Task<Result<Hold>> ShiftLock::acquire(RemoteAddr lock, Mode mode, Op* object) {
  return mode == Mode::shared ? acquire_shared(lock, object) : acquire_exclusive(lock, object);
}

Task<Result<Hold>> ShiftLock::acquire_shared(RemoteAddr lock, Op* object) {
  Op enter = Op::fetch_add(lock, kReader, Purpose::acquire);
  Result<void> posted = co_await endpoint_.post(enter, object);
  if (!posted) co_return Failure{posted.error()};
  const Word found = Word::of(enter.old);
  bool waiting = found.tail != 0;
  // A flip cannot be missed: it counts this reader, and the next one waits for all readers counted.
  while (waiting) {
    co_await endpoint_.worker().sleep_for(kPoll);
    std::uint64_t word = 0;
    Op poll = Op::read(lock, {&word, 1}, Purpose::acquire);
    posted = co_await endpoint_.post(poll, object);
    if (!posted) co_return Failure{posted.error()};
    waiting = Word::of(word).mode == found.mode;
  }
  co_return Hold{.lock = lock, .mode = Mode::shared, .object_read = object != nullptr};
}

Task<Result<Hold>> ShiftLock::acquire_exclusive(RemoteAddr lock, Op* object) {
  if (spare_.empty()) spare_.emplace_back();
  writings_.splice(writings_.begin(), spare_, spare_.begin());
  Writing& writing = writings_.front();
  writing = Writing{.lock = lock, .waiter = nullptr};
  const Hold at_once{.lock = lock, .mode = Mode::exclusive, .object_read = object != nullptr};
  const Hold after_wait{.lock = lock, .mode = Mode::exclusive};
  const std::uint64_t mine = tail(me_);

  // Twice for a free lock, which is cheaper than the queue when few contend.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt > 0) co_await endpoint_.worker().sleep_for(kPoll);
    Op grab = Op::masked_compare_swap(lock, 0, kReadersMask | kTailMask, mine, kReadersMask | kTailMask,
                                      Purpose::acquire);
    const Result<void> posted = co_await endpoint_.post(grab, object);
    if (!posted) co_return Failure{posted.error()};
    const Word found = Word::of(grab.old);
    if (found.rdr != 0 || found.tail != 0) continue;
    writing.mode = found.mode;
    writing.rel = found.rel;
    co_return at_once;
  }

  Op swap = Op::masked_compare_swap(lock, 0, 0, mine, kTailMask, Purpose::acquire);
  const Result<void> posted = co_await endpoint_.post(swap, object);
  if (!posted) co_return Failure{posted.error()};
  const Word found = Word::of(swap.old);
  if (found.tail == 0) {
    writing.mode = found.mode;
    writing.rel = found.rel + found.rdr;
    if (found.rdr == 0) co_return at_once;
    writing.must_drain = true;
  } else {
    endpoint_.send(EndpointId{found.tail - 1}, make_message(lock, Kind::successor, me_, false, 0));
    while (!writing.granted) co_await NextMessage{writing};
  }
  if (writing.must_drain) {
    const Result<void> drained = co_await drain(lock, writing.rel);
    if (!drained) co_return Failure{drained.error()};
  }
  co_return after_wait;
}

// Until the readers that were let in before this writer have left. `rel` cannot step over the number:
// readers that come later wait for the next flip.
Task<Result<void>> ShiftLock::drain(RemoteAddr lock, std::uint32_t rel) {
  for (;;) {
    std::uint64_t word = 0;
    Op look = Op::read(lock, {&word, 1}, Purpose::acquire);
    const Result<void> posted = co_await endpoint_.post(look);
    if (!posted) co_return posted;
    if (Word::of(word).rel == rel) co_return Result<void>{};
    co_await endpoint_.worker().sleep_for(kPoll);
  }
}

Task<Result<void>> ShiftLock::release(Hold hold, Op* object) {
  if (hold.mode == Mode::exclusive) co_return co_await release_exclusive(hold.lock, object);
  Op leave = Op::fetch_add(hold.lock, kRelease - kReader, Purpose::release);
  co_return co_await endpoint_.post(object, leave);
}

Task<Result<void>> ShiftLock::release_exclusive(RemoteAddr lock, Op* object) {
  Writing& writing = writing_on(lock);
  const bool flipped = !writing.mode;
  writing.in_a_row += 1;

  bool queue_is_empty = false;
  if (writing.successor == 0) {
    const std::uint64_t free = std::uint64_t{flipped} | std::uint64_t{writing.rel + 1} << 32;
    Op leave = Op::masked_compare_swap(lock, tail(me_), kTailMask, free,
                                       kTailMask | kModeMask | kRelMask, Purpose::release);
    const Result<void> posted = co_await endpoint_.post(object, leave);
    if (!posted) co_return posted;
    queue_is_empty = Word::of(leave.old).tail == me_;
  } else if (object != nullptr) {
    const Result<void> posted = co_await endpoint_.post(object);
    if (!posted) co_return posted;
  }

  if (!queue_is_empty) {
    Message message = make_message(lock, Kind::hand_over, writing.in_a_row, writing.mode, writing.rel);
    if (writing.in_a_row >= kWritersInARow) {
      // The flip comes before the message, which needs the number of readers that it returns.
      Op flip = Op::fetch_add(lock, kRelease + (flipped ? 1 : ~std::uint64_t{0}), Purpose::release);
      const Result<void> posted = co_await endpoint_.post(flip);
      if (!posted) co_return posted;
      const std::uint32_t readers = Word::of(flip.old).rdr;
      message = make_message(lock, readers == 0 ? Kind::hand_over : Kind::mode_changed, 0, flipped,
                             writing.rel + 1 + readers);
    }
    while (writing.successor == 0) co_await NextMessage{writing};
    endpoint_.send(EndpointId{writing.successor - 1}, message);
  }
  for (auto it = writings_.begin();; ++it) {
    if (&*it != &writing) continue;
    spare_.splice(spare_.begin(), writings_, it);
    co_return Result<void>{};
  }
}

}  // namespace declock::peers
