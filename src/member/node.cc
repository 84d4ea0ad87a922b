#include "member/node.h"

#include <fmt/format.h>

#include <limits>

#include "base/futex.h"

namespace declock::member {

Result<Node::Memory, std::string> Node::allocate_locks(MnId mn, const std::string& name,
                                                       std::uint64_t count) {
  const std::uint64_t each = lock_shape().bytes();
  if (count > std::numeric_limits<std::uint64_t>::max() / each) {
    return Failure{fmt::format("{} locks for '{}': no memory node has that much memory", count, name)};
  }
  return allocate(mn, name, count * each, fmt::format("{} locks for {} members", count, members()));
}

namespace {

Task<bool> until_said(ThreadWorker& worker, Time latest) {
  while (worker.anything_unsaid()) {
    if (worker.now() >= latest) co_return false;
    co_await worker.sleep_for(microseconds(100));
  }
  co_return true;
}

}  // namespace

bool Node::say_everything(Duration patience) {
  const Time latest = monotonic_now() + patience;
  bool said = true;
  for (std::uint32_t i = 0; i < workers(); ++i)
    said = worker(i).run([&] { return until_said(worker(i), latest); }) && said;
  return said;
}

}  // namespace declock::member
