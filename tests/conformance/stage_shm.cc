// Every node is a thread with a slot of its own, but a victim is a process.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <thread>

#include "conformance/stages.h"
#include "fmt/format.h"
#include "member_shm/compute_node.h"

namespace declock::conformance {
namespace {

// The nodes' threads each on another, as far as there are several: whoever shares one with its partner, operations
// being as short as they are, never meets it at work.
void stay_on_a_processor(std::size_t node) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processors[node % processors.size()], &one);
  (void)sched_setaffinity(0, sizeof one, &one);
}

class ShmStage final : public Stage {
 public:
  explicit ShmStage(std::uint32_t nodes) {
    config_.cluster.name = fmt::format("conformance-{}", getpid());
    config_.cluster.members = nodes;
    config_.cluster.mn_bytes = 1 << 16;
    (void)shm::remove_cluster(config_.cluster.directory, config_.cluster.name);
    auto cluster = shm::Cluster::open_or_create(config_.cluster);
    EXPECT_TRUE(cluster) << cluster.error();
    cluster_.emplace(std::move(*cluster));
  }
  ~ShmStage() override {
    EXPECT_TRUE(shm::remove_cluster(config_.cluster.directory, config_.cluster.name));
  }

  void run(std::vector<Script> scripts) override {
    const pid_t killed = victim_ ? start_process(scripts[victim_->node]) : 0;
    std::vector<std::unique_ptr<member::ComputeNode>> joined;  // all are there before the first begins
    for (std::size_t i = 0; i < scripts.size(); ++i) joined.push_back(is_victim(i) ? nullptr : join(i));
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < scripts.size(); ++i) {
        if (joined[i] == nullptr) continue;
        threads.emplace_back([&, i] {
          stay_on_a_processor(i);
          play(*joined[i], scripts[i]);
        });
      }
      if (killed != 0) {
        while (!victim_->when()) usleep(100);  // bounded by the test's own time
        kill(killed, SIGKILL);
        waitpid(killed, nullptr, 0);
      }
    }
    for (auto& node : joined) {
      if (node == nullptr) continue;
      node->stop();
      node->leave();
    }
    victim_.reset();
  }
  std::uint64_t look(std::uint64_t offset) override { return cluster_->word({MnId{0}, offset}).load(); }
  void set_victim(Victim victim) override { victim_ = std::move(victim); }

 private:
  bool is_victim(std::size_t i) const { return victim_ && victim_->node == i; }

  std::unique_ptr<member::ComputeNode> join(std::size_t i) const {
    auto node = member::ComputeNode::join(config_, Slot{static_cast<std::uint16_t>(i)});
    EXPECT_TRUE(node) << node.error();
    return std::move(*node);
  }

  static void play(member::ComputeNode& node, const Script& script) {
    node.start();
    node.worker(0).run([&] { return script(node.endpoint(0), node.membership(0)); });
  }

  // Returns when it is a member. No other thread is alive here, so a fork is safe.
  pid_t start_process(const Script& script) const {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      const std::unique_ptr<member::ComputeNode> node = join(victim_->node);
      (void)!write(ready[1], "x", 1);
      play(*node, script);
      for (;;) pause();  // until it is killed
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
  }

  member::ComputeNode::Config config_;
  std::optional<shm::Cluster> cluster_;
  std::optional<Victim> victim_;
};

}  // namespace

std::unique_ptr<Stage> make_shm_stage(std::uint32_t nodes) {
  return std::make_unique<ShmStage>(nodes);
}

}  // namespace declock::conformance
