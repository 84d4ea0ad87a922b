// What a lock costs at the adapter: as many completions of each kind as the protocol says, and not one more.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "hier/hier.h"
#include "member_net/net_node.h"
#include "memnode/memory_node.h"
#include "networks/networks.h"
#include "support/soon.h"

namespace declock::verbs {
namespace {

constexpr int kTimes = 10;

[[noreturn]] void be_memory_node(int tell) {
  memnode::Config config;
  config.bytes = 1 << 16;
  config.shape.lease = seconds(30);  // a busy machine keeps nobody from renewing it
  config.expose = [](const std::string& host, std::span<std::byte> memory) {
    return net::open_exposure({Fabric::verbs}, host, memory);
  };
  auto node = memnode::MemoryNode::open(config);
  if (!node) _exit(2);
  const std::uint16_t port = (*node)->address().port;
  (void)!write(tell, &port, 2);
  (void)(*node)->run();
  _exit(0);
}

Task<bool> lock_and_unlock(Worker&, TimedLockClient& client) {
  for (int i = 0; i < kTimes; ++i) {
    const Result<Hold> hold =
        co_await client.acquire({MnId{0}, 64}, i % 2 == 0 ? Mode::exclusive : Mode::shared);
    if (!hold || !co_await client.release(*hold)) co_return false;
  }
  co_return true;
}

TEST(LockAtTheAdapter, AnUncontendedAcquireAndReleaseIsOneFetchAndAddEach) {
  if (const auto device = net::open_transport({Fabric::verbs}, ""); !device)
    GTEST_SKIP() << device.error();
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t mn = fork();
  if (mn == 0) be_memory_node(told[1]);
  member::NetNodeConfig config;
  config.patience = kHangs;
  config.coordinator.host = "127.0.0.1";
  ASSERT_EQ(read(told[0], &config.coordinator.port, 2), 2);
  config.transport = [](const std::string& host) { return net::open_transport({Fabric::verbs}, host); };
  {
    auto node = member::NetNode::join(config);
    ASSERT_TRUE(node) << node.error();
    const LockShape shape{16, 16, QueueLayout::owner};
    hier::Node locks{shape, hier::Policy{}, cql::Options{},
                     std::vector<hier::Station>{{&(*node)->endpoint(0), &(*node)->membership(0)}}};
    const auto client = locks.client(0);
    const net::TransportCounts before = (*node)->transport(0).counts();
    ASSERT_TRUE((*node)->worker(0).run([&] { return lock_and_unlock((*node)->worker(0), *client); }));
    const net::TransportCounts after = (*node)->transport(0).counts();
    for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
      const bool is_add = static_cast<OpKind>(kind) == OpKind::fetch_add;
      EXPECT_EQ(after.completed[kind] - before.completed[kind], is_add ? 2u * kTimes : 0u)
          << to_string(static_cast<OpKind>(kind));
    }
    (*node)->leave();
  }
  kill(mn, SIGKILL);
  waitpid(mn, nullptr, 0);
}

}  // namespace
}  // namespace declock::verbs
