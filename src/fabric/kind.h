// The fabrics by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace declock {

enum class Fabric : std::uint8_t { sim, shm, tcp, verbs };
std::string_view to_string(Fabric fabric);
std::optional<Fabric> fabric_of(std::string_view name);

}  // namespace declock
