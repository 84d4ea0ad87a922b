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

Task<bool> has_said_everything(ThreadWorker& worker) {
  if (worker.anything_unsaid()) co_await worker.sleep_for(microseconds(100));
  co_return !worker.anything_unsaid();
}

}  // namespace

bool Node::say_everything(Duration patience) {
  const Time latest = monotonic_now() + patience;
  for (;;) {
    // All of them in turn: a peer that wants to leave as well may wait for any of them to acknowledge something.
    bool said = true;
    for (std::uint32_t i = 0; i < workers(); ++i)
      said = worker(i).run([&] { return has_said_everything(worker(i)); }) && said;
    if (said || monotonic_now() >= latest) return said;
  }
}

}  // namespace declock::member
