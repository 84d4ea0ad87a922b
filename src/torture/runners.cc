#include "torture/runners.h"

namespace declock::torture {

template class World<cql::kAllRules>;

#if DECLOCK_MUTANTS
Runner runner(std::size_t rule) {
  static_assert(cql::kRuleInfos.size() == 3 * kRunnersPerFile);
  constexpr std::array kFiles{&runner_0, &runner_1, &runner_2};
  return kFiles[rule / kRunnersPerFile](rule % kRunnersPerFile);
}
#else
Runner runner(std::size_t) {
  return nullptr;
}
#endif

}  // namespace declock::torture
