// Scripts between processes. The parent lets one step begin after the other; a node takes those of its clients, and says
// what it has posted when it is asked. No clock: a machine that is busy takes longer and counts the same.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>

#include "base/futex.h"
#include "bench/paths.h"
#include "bench/processes.h"
#include "bench/real_cluster.h"
#include "bench/script.h"

namespace declock::bench {
namespace {

// Whoever waits for another process looks this often.
constexpr Duration kBetweenLooks = microseconds(200);
// Before a step is over: what it sets off late counts with it, and the next one comes "after a while" (H25).
constexpr Duration kPause = milliseconds(1);
// What has not come by then never will.
constexpr Duration kPatience = seconds(30);
constexpr Duration kPatienceWithJoining = seconds(120);
// In the simulator a client that polls does so more often in a step; nobody has another reason to.
constexpr std::uint64_t kPollsMin = 100;

// A step of one of the scripts, which are walked one after the other, each on a lock of its own.
struct RealStep {
  std::string_view script;
  std::uint32_t lock;
  std::uint32_t first;  // the number of its script's first step
  Step step;
  // When it is over:
  std::uint32_t done;        // so many steps are, of all
  bool at_rest;              // nobody waits
  std::optional<Cost> cost;  // it has cost this, if that is known
};

struct Plan {
  std::vector<RealStep> steps;
  std::uint32_t nodes = 1;
  std::uint32_t locks = 0;
};

// What the processes share.
struct Shared {
  std::atomic<std::uint32_t> ready;  // compute nodes
  std::atomic<std::uint32_t> begun;  // steps that may be taken
  std::atomic<std::uint32_t> done;   // steps that were
  std::atomic<std::uint32_t> asked;  // so often what was posted
  std::atomic<bool> ended;           // no more steps come
};

// What a compute node says.
struct Answer {
  std::atomic<std::uint32_t> to;  // which question
  OpCounts counts;                // since the start
  Tally running;                  // behind the clients' backs
};

// ---------------------------------------------------------------- a compute node

// Its clients, on its worker.
class Walker final : public Endpoint::Observer {
 public:
  Walker(Worker& worker, std::vector<Endpoint*> endpoints, const locks::LockFamily& family,
         Shared& shared, Answer& answer)
      : worker_(worker),
        endpoints_(std::move(endpoints)),
        family_(family),
        shared_(shared),
        answer_(answer) {
    for (Endpoint* endpoint : endpoints_) {
      if (endpoint->completes_at_once()) endpoint->observe(this);
    }
  }
  Walker(const Walker&) = delete;
  Walker& operator=(const Walker&) = delete;
  ~Walker() override {
    for (Endpoint* endpoint : endpoints_) endpoint->observe(nullptr);
  }

  Task<void> walk(const Plan& plan, std::uint32_t cn,
                  std::span<const std::unique_ptr<LockClient>> clients,
                  member::Membership& membership) {
    // What is sent to somebody who is not known yet would be lost. Ends with the parent's patience.
    while (membership.known().members.size() < plan.nodes) {
      co_await worker_.sleep_for(kBetweenLooks);
      (void)co_await membership.refresh(worker_);
    }
    shared_.ready.fetch_add(1);
    std::array<Hold, kClientsPerNode> holds;
    std::deque<Task<bool>> tasks;
    std::size_t next = 0;
    while (!shared_.ended.load()) {
      co_await worker_.sleep_for(kBetweenLooks);
      // Before the answer: between that and the next step comes a sleep, in which what has arrived is handled.
      for (; next < shared_.begun.load(); ++next) {
        const std::uint32_t client = plan.steps[next].step.client;
        if (client / kClientsPerNode != cn) continue;
        const std::uint32_t i = client % kClientsPerNode;
        const RemoteAddr addr{MnId{0}, plan.steps[next].lock * family_.stride()};
        tasks.push_back(
            take_step(worker_, plan.steps[next].step, addr, *clients[i], holds[i], shared_.done));
        tasks.back().start();
      }
      if (is_asked()) co_await answer_when_all_took_effect();
    }
  }

  FramePool& frames() { return worker_.frames(); }

 private:
  // Where operations complete at once a client that polls leaves nobody else a turn.
  void on_posted(const Op&) override {
    if (is_asked()) answer();
  }

  bool is_asked() const { return answer_.to.load() != shared_.asked.load(); }

  // Operations are counted when they are posted. When a READ is complete, all before it have taken effect (F1): no step of
  // another node overtakes them.
  Task<void> answer_when_all_took_effect() {
    for (Endpoint* endpoint : endpoints_) {
      std::uint64_t word = 0;
      Op look = Op::read(RemoteAddr{MnId{0}, 0}, {&word, 1}, Purpose::verify);
      (void)co_await endpoint->post(look);  // where it fails the clients' operations do as well
    }
    if (is_asked()) answer();
  }

  void answer() {
    const std::uint32_t question = shared_.asked.load();
    OpCounts counts;
    for (const Endpoint* endpoint : endpoints_) counts += endpoint->counts();
    // Those were no client's.
    counts.by_kind_and_purpose[static_cast<std::size_t>(OpKind::read)]
                              [static_cast<std::size_t>(Purpose::verify)] = 0;
    answer_.counts = counts;
    answer_.running = family_.running();
    answer_.to.store(question);
  }

  Worker& worker_;
  std::vector<Endpoint*> endpoints_;
  const locks::LockFamily& family_;
  Shared& shared_;
  Answer& answer_;
};

void be_compute_node(const MicroConfig& config, const Plan& plan, RealCluster& cluster,
                     std::uint32_t cn, Shared& shared, Answer& answer) {
  const std::unique_ptr<member::Node> node = cluster.join(cn);
  locks::FamilyConfig family_config = config.family();
  family_config.patience = seconds(60);  // nobody fails here
  family_config.join = [&](std::uint32_t, std::span<Endpoint* const> endpoints) {
    return std::vector<hier::Station>{{endpoints[0], &node->membership(0)}};
  };
  std::unique_ptr<locks::LockFamily> family = locks::make_family(family_config);
  std::vector<Endpoint*> endpoints;
  for (std::uint32_t i = 0; i < cluster.endpoints(); ++i) endpoints.push_back(&node->endpoint(i));
  std::vector<std::unique_ptr<LockClient>> clients;
  for (std::uint32_t i = 0; i < kClientsPerNode; ++i)
    clients.push_back(family->client({cn, 0, *endpoints[i % endpoints.size()], endpoints}));
  node->start();
  ThreadWorker& worker = node->worker(0);
  {
    Walker walker{worker, endpoints, *family, shared, answer};
    worker.run([&] { return walker.walk(plan, cn, clients, node->membership(0)); });
  }
  node->stop();
  clients.clear();
  family.reset();
  node->leave();
}

// ---------------------------------------------------------------- the parent

class RealWalk {
 public:
  RealWalk(const MicroConfig& config, const Plan& plan);

  // What each step cost.
  std::vector<OpCounts> operator()();

 private:
  struct Seen {
    OpCounts counts;
    std::uint64_t running = 0;
  };
  void check_and_sleep(Duration d);
  Seen ask(const RealStep& step);
  OpCounts await_end(const RealStep& step, const OpCounts& before);
  [[noreturn]] void give_up(const RealStep& step) const;

  const MicroConfig& config_;
  const Plan& plan_;
  SharedBytes memory_;
  Shared& shared_;
  std::span<Answer> answers_;
  std::unique_ptr<RealCluster> cluster_;
  Children children_;
};

RealWalk::RealWalk(const MicroConfig& config, const Plan& plan)
    : config_(config),
      plan_(plan),
      memory_(sizeof(Shared) + plan.nodes * sizeof(Answer) + 256),
      shared_(*memory_.take<Shared>(1)),
      answers_(memory_.take<Answer>(plan.nodes), plan.nodes) {
  const auto family = locks::make_family(config.family());
  cluster_ = make_real_cluster(config, family->endpoint_per_worker() ? 1 : kClientsPerNode,
                               plan.locks * family->stride() + 64);
  for (std::uint32_t cn = 0; cn < plan.nodes; ++cn) {
    children_.start(
        [this, cn] { be_compute_node(config_, plan_, *cluster_, cn, shared_, answers_[cn]); });
  }
  const Time patient_until = monotonic_now() + kPatienceWithJoining;
  while (shared_.ready.load() < plan.nodes) {
    if (monotonic_now() > patient_until) give_up(plan.steps.front());
    check_and_sleep(kPause);
  }
  cluster_->all_have_joined();
}

void RealWalk::check_and_sleep(Duration d) {
  std::string failure = cluster_->failure();
  if (failure.empty()) failure = children_.failure();
  if (!failure.empty()) throw std::runtime_error(failure);
  std::this_thread::sleep_for(std::chrono::nanoseconds{d.ns});
}

void RealWalk::give_up(const RealStep& step) const {
  did_not_end(config_.fabric, config_.lock, step.script, shared_.done.load() - step.first);
}

// All nodes, none of which answers what it knew before.
RealWalk::Seen RealWalk::ask(const RealStep& step) {
  const std::uint32_t question = shared_.asked.fetch_add(1) + 1;
  const Time patient_until = monotonic_now() + kPatience;
  Seen seen;
  for (const Answer& answer : answers_) {
    while (answer.to.load() != question) {
      if (monotonic_now() > patient_until) give_up(step);
      check_and_sleep(kBetweenLooks);
    }
    seen.counts += answer.counts;
    seen.running += answer.running;
  }
  return seen;
}

// The counts when it is over, twice in a row; or when that does not come. A step that has cost too much is over as well.
OpCounts RealWalk::await_end(const RealStep& step, const OpCounts& before) {
  const Time patient_until = monotonic_now() + kPatience;
  for (int in_a_row = 0;;) {
    // First this: the answers have all that was posted until then.
    const bool are_done = shared_.done.load() == step.done;
    const Seen seen = ask(step);
    OpCounts cost = seen.counts;
    cost -= before;
    const bool is_paid = !step.cost || step.cost->matches(cost) || step.cost->exceeded_by(cost);
    const bool is_over = are_done && is_paid && (!step.at_rest || seen.running == 0);
    in_a_row = is_over ? in_a_row + 1 : 0;
    if (in_a_row == 2) return seen.counts;
    if (monotonic_now() > patient_until) {
      if (!are_done) give_up(step);
      return seen.counts;
    }
    check_and_sleep(kPause);
  }
}

std::vector<OpCounts> RealWalk::operator()() {
  std::vector<OpCounts> costs;
  OpCounts before;
  for (const RealStep& step : plan_.steps) {
    shared_.begun.fetch_add(1);
    const OpCounts after = await_end(step, before);
    costs.push_back(after);
    costs.back() -= before;
    before = after;
  }
  shared_.ended.store(true);
  while (!children_.have_all_ended()) check_and_sleep(kPause);  // ends: leaving has a patience
  return costs;
}

// ---------------------------------------------------------------- when a step is over

Cost as_simulated(const OpCounts& counts) {
  Cost cost{{}, counts.messages, 0};
  for (std::size_t k = 0; k < kOpKinds; ++k) {
    const auto kind = static_cast<OpKind>(k);
    const std::uint64_t n = counts.of(kind);
    cost.ops.push_back(n < kPollsMin ? Cost::Ops{kind, static_cast<std::uint32_t>(n)}
                                     : Cost::Ops{kind, 0, 1});
  }
  return cost;
}

// A step that is not documented costs what it does in the simulator if somebody waits, who has nothing else to say that it
// is over; otherwise what it likes, since the clients are done and nothing runs behind them.
std::optional<Cost> cost_of(const std::vector<Path>& documented, std::string_view script,
                            std::size_t step, const OpCounts& simulated, bool at_rest) {
  for (const Path& path : documented) {
    if (path.script == script && path.step == step) return path.cost;
  }
  if (at_rest) return {};
  return as_simulated(simulated);
}

void add(std::string_view text, const LockPaths& of_lock, Plan& plan) {
  const Script script = parse(text);
  const std::vector<Simulated> simulated = walk_simulated(of_lock.lock, script);
  const auto first = static_cast<std::uint32_t>(plan.steps.size());
  for (std::size_t i = 0; i < script.steps.size(); ++i) {
    const auto& [cost, done] = simulated[i];
    const bool at_rest = done == i + 1;
    plan.steps.push_back({text, plan.locks, first, script.steps[i], first + done, at_rest,
                          cost_of(of_lock.paths, text, i, cost, at_rest)});
  }
  plan.nodes = std::max(plan.nodes, script.nodes);
  plan.locks += 1;
}

}  // namespace

Costs walk_real(Fabric fabric, const LockPaths& of_lock, const std::set<std::string_view>& scripts) {
  Plan plan;
  for (const std::string_view script : scripts) add(script, of_lock, plan);
  const MicroConfig config = config_for(fabric, of_lock.lock, plan.nodes);
  const std::vector<OpCounts> steps = RealWalk{config, plan}();
  Costs costs;
  for (std::size_t i = 0; i < steps.size(); ++i) costs[plan.steps[i].script].push_back(steps[i]);
  return costs;
}

}  // namespace declock::bench
