#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace declock {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::abort();
}

}  // namespace declock
