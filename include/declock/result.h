// Errors as values: Result<T> is a T or the reason why there is none, and is used like std::expected.
//
//   if (r)  *r  r->member  r.error()
//
// Thread-safety: as a plain value. Several threads may read one Result, none while another changes it.
#ifndef DECLOCK_RESULT_H
#define DECLOCK_RESULT_H

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "declock/config.h"

namespace declock {

// Grouped by what was lost. The numbers are those of the C header.
enum class Errc : std::uint8_t {
  ok = 0,
  outcome_unknown = 1,  // an operation: it may or may not have taken effect
  stuck = 2,            // a lock: its state needs a reset before anybody gets on
  busy = 3,             // a lock: it would have to be waited for, and the caller did not want that
  timed_out = 4,        // a lock: it did not come in time
  cancelled = 5,        // a lock: the caller no longer wants it
  evicted =
      6,  // this process: it was taken for dead, and can do nothing any more; open the cluster again
  mn_restarted =
      7,  // a hold or an operation: the memory node has lost its memory since, and so it is void
  invalid_argument = 8,  // a call: it was wrong as it was; nothing was done
  unavailable = 9,       // the cluster, or a part of it: it could not be reached, or has no room
  closed = 10,           // the cluster was closed in this process
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
    case Errc::invalid_argument:
      return "invalid argument";
    case Errc::unavailable:
      return "unavailable";
    case Errc::closed:
      return "closed";
  }
  return "?";
}

// For std::error_code and std::system_error.
DECLOCK_EXPORT const std::error_category& error_category() noexcept;
inline std::error_code make_error_code(Errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}

// An error with a line for a person: what was wrong, what is accepted, what to do.
struct Error {
  Errc code = Errc::ok;
  std::string message{};
};

namespace detail {
[[noreturn]] DECLOCK_EXPORT void bad_result_access();
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
  bool has_value() const { return state_.index() == 0; }

  // REQUIRES: *this holds a value.
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // REQUIRES: *this holds an error.
  const E& error() const {
    if (state_.index() != 1) detail::bad_result_access();
    return *std::get_if<1>(&state_);
  }

 private:
  T& value() {
    if (state_.index() != 0) detail::bad_result_access();
    return *std::get_if<0>(&state_);
  }
  const T& value() const {
    if (state_.index() != 0) detail::bad_result_access();
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
  bool has_value() const { return !failed_; }
  // REQUIRES: *this holds an error.
  const E& error() const {
    if (!failed_) detail::bad_result_access();
    return error_;
  }

 private:
  E error_{};
  bool failed_ = false;
};

}  // namespace declock

template <>
struct std::is_error_code_enum<declock::Errc> : std::true_type {};

#endif
