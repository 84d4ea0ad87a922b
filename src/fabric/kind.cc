#include "fabric/kind.h"

#include <array>

namespace declock {
namespace {

constexpr std::array<std::string_view, 4> kNames{"sim", "shm", "tcp", "verbs"};

}  // namespace

std::string_view to_string(Fabric fabric) {
  return kNames[static_cast<std::size_t>(fabric)];
}

std::optional<Fabric> fabric_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Fabric>(i);
  }
  return {};
}

}  // namespace declock
