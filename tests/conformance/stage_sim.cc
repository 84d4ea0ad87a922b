#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "conformance/stages.h"
#include "member_sim/sim_cluster.h"
#include "support/lab.h"

namespace declock::conformance {
namespace {

class SimStage final : public Stage {
 public:
  explicit SimStage(std::uint32_t nodes)
      : engine_(noisy_nic(), 1, 1),
        cluster_(engine_, {.slots = nodes, .workers = 1, .lease = milliseconds(1)}) {
    for (std::uint32_t i = 0; i < nodes; ++i) {
      sim::SimWorker& worker = engine_.add_worker({}, party(i));
      endpoints_.push_back(&engine_.add_endpoint(worker));
      memberships_.push_back(cluster_.join(endpoints_[i]->id(), worker));
    }
  }

  void run(std::vector<Script> scripts) override {
    std::deque<std::optional<Task<void>>> tasks;
    for (std::size_t i = 0; i < scripts.size(); ++i) {
      tasks.emplace_back(scripts[i](*endpoints_[i], *memberships_[i]));
      tasks.back()->start();
    }
    const auto all_done = [&] {
      for (const auto& task : tasks) {
        if (task && !task->done()) return false;
      }
      return true;
    };
    // Bounded: the virtual time that a script may take.
    const Time latest = engine_.now() + seconds(20);
    while (!all_done() && engine_.now() < latest) {
      if (victim_ && victim_->when()) {
        if (victim_->lives) {
          engine_.cut(party(victim_->node), sim::kCoordinator);
        } else {
          tasks[victim_->node].reset();
          memberships_[victim_->node].reset();
        }
        victim_.reset();
      }
      ASSERT_TRUE(engine_.step());
    }
    ASSERT_TRUE(all_done()) << "a script did not come to its end";
  }
  std::uint64_t look(std::uint64_t offset) override { return engine_.memory(MnId{0}).load(offset); }
  void set_victim(Victim victim) override { victim_ = std::move(victim); }

  bool can(Can) const override { return true; }
  void break_memory() override {
    engine_.set_mishaps({.delay = microseconds(30), .unknown_one_in = 3});
  }
  std::size_t break_peers() override {
    for (std::size_t i = 1; i < endpoints_.size(); ++i) engine_.cut(party(i - 1), party(i));
    return endpoints_.size() - 1;
  }
  void mend() override {
    engine_.set_mishaps({});
    engine_.heal();
  }

 private:
  static sim::Party party(std::size_t node) { return sim::Party{static_cast<std::uint32_t>(node) + 1}; }
  static sim::NicModel noisy_nic() {
    sim::NicModel nic;
    nic.torn_read_one_in = 3;
    return nic;
  }

  sim::TimedEngine engine_;
  member::SimCluster cluster_;
  std::vector<sim::SimEndpoint*> endpoints_;
  std::vector<std::unique_ptr<member::SimMembership>> memberships_;
  std::optional<Victim> victim_;
};

}  // namespace

std::unique_ptr<Stage> make_sim_stage(std::uint32_t nodes) {
  return std::make_unique<SimStage>(nodes);
}

}  // namespace declock::conformance
