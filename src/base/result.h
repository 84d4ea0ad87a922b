// Result<T>: a value or the reason why there is none; used like std::expected.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace declock {

enum class Errc : std::uint8_t {
  ok,
  outcome_unknown,  // an operation: it may or may not have taken effect
  stuck,            // a lock: its state needs a reset before anybody gets on
  busy,             // a lock: it would have to be waited for, and the caller did not want that
  timed_out,        // a lock: it did not come in time
  cancelled,        // a lock: the caller no longer wants it
  evicted,  // this compute node: it was taken for dead, and can do nothing any more; it may join again
  mn_restarted,  // a hold or an operation: the memory node has lost its memory since, and so it is void
};

constexpr std::string_view to_string(Errc code) {
  switch (code) {
    case Errc::ok:
      return "ok";
    case Errc::outcome_unknown:
      return "outcome unknown";
    case Errc::stuck:
      return "stuck: this queue layout has no resets";
    case Errc::busy:
      return "busy";
    case Errc::timed_out:
      return "timed out";
    case Errc::cancelled:
      return "cancelled";
    case Errc::evicted:
      return "evicted: the cluster took this compute node for dead; join again";
    case Errc::mn_restarted:
      return "void: the memory node has restarted with fresh memory";
  }
  return "?";
}

template <class E>
struct Failure {
  E error;
};
template <class E>
Failure(E) -> Failure<E>;

template <class T, class E = Errc>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Failure<E> failure) : state_(std::in_place_index<1>, std::move(failure.error)) {}

  explicit operator bool() const { return state_.index() == 0; }

  // REQUIRES: *this holds a value.
  T& operator*() { return value(); }
  const T& operator*() const { return const_cast<Result*>(this)->value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &const_cast<Result*>(this)->value(); }

  // REQUIRES: *this holds an error.
  const E& error() const {
    CHECK(state_.index() == 1);
    return *std::get_if<1>(&state_);
  }

 private:
  T& value() {
    CHECK(state_.index() == 0);
    return *std::get_if<0>(&state_);
  }

  std::variant<T, E> state_;
};

template <class E>
class [[nodiscard]] Result<void, E> {
 public:
  Result() = default;
  Result(Failure<E> failure) : error_(std::move(failure.error)), failed_(true) {}

  explicit operator bool() const { return !failed_; }
  const E& error() const {
    CHECK(failed_);
    return error_;
  }

 private:
  E error_{};
  bool failed_ = false;
};

}  // namespace declock
