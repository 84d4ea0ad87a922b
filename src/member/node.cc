#include "member/node.h"

#include <fmt/format.h>

#include <limits>

namespace declock::member {

Result<Node::Memory, std::string> Node::allocate_locks(MnId mn, const std::string& name,
                                                       std::uint64_t count) {
  const std::uint64_t each = lock_shape().bytes();
  if (count > std::numeric_limits<std::uint64_t>::max() / each) {
    return Failure{fmt::format("{} locks for '{}': no memory node has that much memory", count, name)};
  }
  return allocate(mn, name, count * each, fmt::format("{} locks for {} members", count, members()));
}

}  // namespace declock::member
