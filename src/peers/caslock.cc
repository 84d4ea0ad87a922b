#include "peers/caslock.h"

#include "base/check.h"

namespace declock::peers {
namespace {

// keep: owner in the upper half, readers in the lower. take_back: a flag above the readers.
constexpr unsigned kOwnerShift = 32;
constexpr std::uint64_t kExclusiveFlag = std::uint64_t{1} << 60;

Hold held(RemoteAddr lock, Mode mode, const Op* object) {
  return {.lock = lock, .mode = mode, .object_read = object != nullptr};
}

}  // namespace

CasLock::CasLock(Endpoint& endpoint, std::uint32_t me, CasReaders readers)
    : endpoint_(endpoint),
      readers_(readers),
      owned_(readers == CasReaders::keep ? std::uint64_t{me} << kOwnerShift : kExclusiveFlag) {
  CHECK(me != 0);
}

Task<Result<Hold>> CasLock::acquire(RemoteAddr lock, Mode mode, Op* object) {
  if (mode == Mode::exclusive) return acquire_exclusive(lock, object);
  return readers_ == CasReaders::keep ? acquire_keeping(lock, object)
                                      : acquire_taking_back(lock, object);
}

Task<Result<Hold>> CasLock::acquire_exclusive(RemoteAddr lock, Op* object) {
  for (;;) {
    Op swap = Op::compare_swap(lock, 0, owned_, Purpose::acquire);
    const Result<void> posted = co_await endpoint_.post(swap, object);
    if (!posted) co_return Failure{posted.error()};
    if (swap.old == 0) co_return held(lock, Mode::exclusive, object);
  }
}

Task<Result<Hold>> CasLock::acquire_keeping(RemoteAddr lock, Op* object) {
  Op enter = Op::fetch_add(lock, 1, Purpose::acquire);
  Result<void> posted = co_await endpoint_.post(enter, object);
  if (!posted) co_return Failure{posted.error()};
  std::uint64_t word = enter.old;
  while (word >> kOwnerShift != 0) {
    Op poll = Op::read(lock, {&word, 1}, Purpose::acquire);
    posted = co_await endpoint_.post(poll, object);
    if (!posted) co_return Failure{posted.error()};
  }
  co_return held(lock, Mode::shared, object);
}

Task<Result<Hold>> CasLock::acquire_taking_back(RemoteAddr lock, Op* object) {
  for (;;) {
    Op enter = Op::fetch_add(lock, 1, Purpose::acquire);
    Result<void> posted = co_await endpoint_.post(enter, object);
    if (!posted) co_return Failure{posted.error()};
    if (enter.old < kExclusiveFlag) co_return held(lock, Mode::shared, object);
    Op back = Op::fetch_add(lock, ~std::uint64_t{0}, Purpose::acquire);
    posted = co_await endpoint_.post(back);
    if (!posted) co_return Failure{posted.error()};
  }
}

Task<Result<void>> CasLock::release(Hold hold, Op* object) {
  const std::uint64_t share = hold.mode == Mode::exclusive ? owned_ : 1;
  Op leave = Op::fetch_add(hold.lock, -share, Purpose::release);
  co_return co_await endpoint_.post(object, leave);
}

}  // namespace declock::peers
