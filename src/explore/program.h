// What the clients of an exploration do: "w;r;rrrw" is three clients; the first locks exclusively once,
// the second shared once, the third shared three times and then exclusively. An x stands for either: a
// program with x means all programs that it can be, up to renaming of clients. Each client is a compute
// node of its own, unless '+' puts the next one on the same node: "w+r;w" is two nodes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "layout/ids.h"

namespace declock::explore {

using Operations = std::vector<Mode>;
using Node = std::vector<Operations>;  // by client
using Program = std::vector<Node>;     // by compute node

inline constexpr std::size_t kClientsMax = 8;
inline constexpr std::size_t kOperationsMax = 32;  // in all

Result<std::vector<Program>, std::string> parse_programs(std::string_view text);

std::string to_string(const Program& program);
std::size_t client_count(const Program& program);

}  // namespace declock::explore
