// What the clients of an exploration do: "w;r;rrrw" is three clients; the first locks exclusively once,
// the second shared once, the third shared three times and then exclusively. An x stands for either: a
// program with x means all programs that it can be, up to renaming of clients. Capitals R and W may give
// up while they wait; s and e try, shared or exclusive, and do not wait. Each client is a compute node of its own,
// unless '+' puts the next one on the same node: "w+r;w" is two nodes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "declock/result.h"
#include "layout/ids.h"

namespace declock::explore {

struct Operation {
  Mode mode = Mode::shared;
  enum class Patience : std::uint8_t { waits, may_give_up, tries } patience = Patience::waits;
};
using Operations = std::vector<Operation>;
using Node = std::vector<Operations>;  // by client
using Program = std::vector<Node>;     // by compute node

inline constexpr std::size_t kClientsMax = 8;
inline constexpr std::size_t kOperationsMax = 32;  // in all

Result<std::vector<Program>, std::string> parse_programs(std::string_view text);

std::string to_string(const Program& program);
std::size_t client_count(const Program& program);
// Does every operation wait for its lock?
bool is_patient(const Program& program);

}  // namespace declock::explore
