#include "base/check.h"

#include <cstdio>
#include <cstdlib>

#include "declock/result.h"

namespace declock {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::abort();
}

void detail::bad_result_access() {
  check_failed("the result holds what was asked of it", "declock/result.h", 0);
}

const std::error_category& error_category() noexcept {
  struct Category final : std::error_category {
    const char* name() const noexcept override { return "declock"; }
    std::string message(int code) const override {
      return std::string{to_string(static_cast<Errc>(code))};
    }
    // So that `code == std::errc::timed_out` and the like hold.
    std::error_condition default_error_condition(int code) const noexcept override {
      switch (static_cast<Errc>(code)) {
        case Errc::timed_out:
          return std::errc::timed_out;
        case Errc::busy:
          return std::errc::device_or_resource_busy;
        case Errc::cancelled:
          return std::errc::operation_canceled;
        case Errc::invalid_argument:
          return std::errc::invalid_argument;
        case Errc::evicted:
          return std::errc::owner_dead;
        default:
          return {code, *this};
      }
    }
  };
  static const Category category;
  return category;
}

}  // namespace declock
