// A port without a compute node: the test is its switchboard.
#include "net/port.h"

#include <gtest/gtest.h>

#include "net/worker.h"
#include "networks/networks.h"

namespace declock::net {
namespace {

class NobodyAnswers final : public Switchboard {
 public:
  void attach(std::uint16_t, MnId, const Blob&) override {}
  void ask(std::uint16_t, const PeerId&, const Blob&) override {}
  std::uint32_t incarnation(MnId) const override { return 1; }
};

Task<void> wake_and_destroy(NetWorker& worker, Port& port) {
  {
    Task<Result<void>> waits = port.reconnect(worker, MnId{0});
    waits.start();
    port.evict();  // wakes it
  }
  co_await worker.sleep_for(milliseconds(1));  // meanwhile it would go on
}

TEST(Port, WhoIsDestroyedBetweenBeingWokenAndGoingOnIsForgotten) {
  NobodyAnswers switchboard;
  NetWorker worker{Prng{1, 1}, [](Time) {}};
  auto transport = open_transport({Network::tcp}, "127.0.0.1");
  ASSERT_TRUE(transport) << transport.error();
  Port port{{}, std::move(*transport), worker, switchboard};
  worker.set_port(&port);
  worker.run([&] { return wake_and_destroy(worker, port); });
  worker.set_port(nullptr);
}

// A view may be older than a message: who sent it may even have died before this port ever hears of it.
TEST(Port, ThanksForSomebodyWhoIsNotKnownDoNotKeepAWorkerAwake) {
  NobodyAnswers switchboard;
  NetWorker worker{Prng{1, 1}, [](Time) {}};
  auto transport = open_transport({Network::tcp}, "127.0.0.1");
  ASSERT_TRUE(transport) << transport.error();
  Port port{{}, std::move(*transport), worker, switchboard};
  Packet second{};
  second.sender = PeerId{.slot = Slot{3}, .incarnation = 1, .worker = 0};
  second.number = 2;  // the first is missing: its sender should hear that at once
  Blob blob = "p";
  blob.append(reinterpret_cast<const char*>(&second), sizeof second);
  ASSERT_TRUE(port.accept(second.sender, blob));
  EXPECT_TRUE(port.anything_unsent());
  port.poll();
  EXPECT_FALSE(port.anything_unsent());
}

}  // namespace
}  // namespace declock::net
