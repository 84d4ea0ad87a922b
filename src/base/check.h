// CHECK for broken invariants. It stays on in every build: a lock that has lost track of its state
// must stop, not guess.
#pragma once

namespace declock {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace declock

#define CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::declock::check_failed(#condition, __FILE__, __LINE__))
