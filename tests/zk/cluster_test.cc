// A whole cluster that a real ZooKeeper ensemble coordinates, under load, while parts of everything are killed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "process/net_cluster.h"
#include "zk/ensemble.h"

namespace declock::process {
namespace {

TEST(ZkCluster, GoesOnWithoutTheLeaderAMemoryNodeAndAComputeNode) {
  if (!zk::Ensemble::missing().empty()) GTEST_SKIP() << zk::Ensemble::missing();
  zk::Ensemble* const ensemble = zk::Ensemble::shared();
  ASSERT_NE(ensemble, nullptr);
  NetCluster cluster{seconds(3)};
  cluster.set_coordinator(fmt::format("zk://{}/test", ensemble->servers()));
  cluster.start_mn(0);
  cluster.start_mn(1);
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  for (std::size_t i = 0; i < 4; ++i) cluster.start(i, 1);
  cluster.expect_progress();

  const std::optional<std::size_t> leader = ensemble->leader();
  ASSERT_TRUE(leader);
  ensemble->kill(*leader);
  cluster.expect_progress();

  cluster.kill_process(2);
  cluster.expect_progress(2);
  cluster.start(2, 1);  // the ensemble has a new leader, or will have
  cluster.expect_progress();

  cluster.kill_mn(0);  // the locks are on the other one
  cluster.expect_progress();
  cluster.kill_process(3);
  cluster.expect_progress(3);
  cluster.start(3, 1);
  cluster.expect_progress();

  cluster.start_mn(0);
  cluster.expect_progress();
  cluster.stop_all();
  cluster.expect_updates(1, (2 + cluster.control().evictions()) * kClients);
  fmt::print("{} updates acknowledged, {} evictions\n", cluster.updates(),
             cluster.control().evictions());
}

}  // namespace
}  // namespace declock::process
