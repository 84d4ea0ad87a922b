#include "torture/runners.h"

namespace declock::torture {

Runner runner_2(std::size_t i) {
  static constexpr auto kRunners =
      runners<2 * kRunnersPerFile>(std::make_index_sequence<kRunnersPerFile>{});
  return kRunners[i];
}

}  // namespace declock::torture
