#include "torture/world.h"

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "audit/ledger.h"
#include "hier/hier.h"
#include "member_sim/sim_cluster.h"

namespace declock::torture {
namespace {

class World {
 public:
  World(const Plan& plan, const ClusterRules& rules, const cql::Rules& protocol)
      : plan_(plan),
        rules_(rules),
        protocol_(protocol),
        random_(plan.seed, 11),
        shape_(plan.nodes_max, plan.nodes_max, QueueLayout::owner),
        engine_(nic(), plan.mns, plan.seed),
        cluster_(engine_, {.slots = plan.nodes_max,
                           .mns = plan.mns,
                           .workers = plan.workers,
                           .lease = plan.lease,
                           .fence = rules.fence,
                           .view_before_access = rules.view_before_access}),
        ledger_(plan.locks),
        nodes_(plan.nodes) {
    cluster_.on_fenced = [this](const member::Member& m) {
      tell(fmt::format("slot {} incarnation {} is fenced and removed", m.slot.value,
                       m.incarnation.value));
      evictions_ += 1;
      ledger_.fenced(id_of(m));
    };
    cluster_.on_lost = [this](MnId mn) {
      for (std::uint32_t i = 0; i < plan_.locks; ++i) {
        if (lock(i).mn == mn) ledger_.lost(i, engine_.incarnation(mn));
      }
    };
    cluster_.on_start = [this](MnId mn) {
      tell(fmt::format("memory node {} is back", mn.value));
      Prng garbage{plan_.seed, 13};
      for (std::uint64_t word = 0; garbage_ && word < kWordsPerLock * plan_.locks; ++word) {
        engine_.memory(mn).store(8 * word, garbage.below(~std::uint64_t{0}));
      }
      // A region is initialised before it is served; zeroes are free locks (H12).
      if (rules_.initialise) engine_.memory(mn).clear();
    };
    for (std::uint32_t i = 0; i < plan.locks; ++i) {
      Header header;
      if (plan.near_wrap) header.ticket = Ticket{shape_.ticket_limit().value - 20};
      if (plan.old_claim)
        header.reset_id = ResetId{1 << 2 | 1};  // of the first slot, as its first incarnation
      engine_.memory(lock(i).mn).store(lock(i).offset, shape_.header.encode(header));
    }
    for (std::uint32_t i = 0; i < plan.nodes; ++i) start(i);
  }

  ~World() {
    for (auto& node : nodes_) end(node);
  }

  Outcome run() {
    engine_.set_mishaps({plan_.delayed_one_in, microseconds(300), plan_.unknown_one_in});
    std::size_t next = 0;
    for (Time t{}; t < Time{} + plan_.duration; t = t + kSlice) {
      for (; next < plan_.faults.size() && plan_.faults[next].at <= t; ++next)
        befall(plan_.faults[next]);
      advance(t + kSlice);
      if (ledger_.violation()) return finish(Outcome::Kind::safety, *ledger_.violation());
    }
    heal_everything();
    const Time deadline = engine_.now() + kBoundedTime;
    rounds_wanted_ = true;
    while (engine_.now() < deadline) {
      advance(engine_.now() + kSlice);
      if (ledger_.violation()) return finish(Outcome::Kind::safety, *ledger_.violation());
      if (everybody_had_every_lock()) return conclude();
    }
    return finish(Outcome::Kind::liveness, unserved());
  }

 private:
  static constexpr Duration kSlice = microseconds(50);
  static constexpr Duration kBoundedTime = milliseconds(500);
  static constexpr std::uint64_t kWordsPerLock = 16;
  static constexpr std::size_t kStoryMax = 60;

  static sim::NicModel nic() {
    sim::NicModel nic;
    // A fast network, on which more happens between two faults.
    nic.one_way_ns = 750;
    nic.read_write_ns = 20;
    nic.atomic_slot_held_ns = 130;
    nic.torn_read_one_in = 4;
    nic.hiccup_one_in = 200;
    return nic;
  }

  struct Client;
  // One incarnation of a compute node.
  struct Node {
    std::uint32_t index = 0;  // which compute node this is
    std::uint64_t id = 0;
    sim::Party party;
    std::vector<Endpoint*> endpoints;
    std::unique_ptr<member::SimMembership> membership;
    std::unique_ptr<hier::Node> locks;
    std::unique_ptr<TaskGroup> syncing;
    std::deque<Client> clients;
  };
  struct Client {
    Client(World& w, Node& n, std::uint64_t who_, Endpoint& e, std::unique_ptr<TimedLockClient> l,
           Prng r)
        : world(w),
          node(n),
          who(who_),
          endpoint(e),
          lock(std::move(l)),
          random(r),
          served(w.plan_.locks) {}
    World& world;
    Node& node;
    std::uint64_t who;
    Endpoint& endpoint;
    std::unique_ptr<TimedLockClient> lock;
    Prng random;
    std::vector<bool> served;  // since the healing
    std::optional<Task<void>> task;
    FramePool& frames() { return endpoint.worker().frames(); }

    Task<void> run();
    Task<Result<void>> section(std::uint32_t number, Mode mode);
    Task<Result<Hold>> acquire(RemoteAddr addr, Mode mode, Op* object);
    std::uint32_t next_wanted();
  };

  RemoteAddr lock(std::uint32_t number) const {
    return {MnId{static_cast<std::uint16_t>(number % plan_.mns)}, number * kWordsPerLock * 8};
  }
  RemoteAddr counter(std::uint32_t number) const { return lock(number) + (kWordsPerLock - 1) * 8; }
  static std::uint64_t id_of(const member::Member& m) {
    return std::uint64_t{m.slot.value} << 32 | m.incarnation.value;
  }

  void start(std::uint32_t index) {
    // Endpoints of one incarnation are its own: what they sent is revoked with them.
    std::vector<sim::SimWorker*> workers;
    auto node = std::make_unique<Node>();
    node->index = index;
    node->party = sim::Party{next_party_++};
    const sim::Skew skew{microseconds(static_cast<std::int64_t>(random_.below(2000))), 0};
    for (std::uint32_t w = 0; w < plan_.workers; ++w) {
      workers.push_back(&engine_.add_worker(skew, node->party));
    }
    for (sim::SimWorker* worker : workers) node->endpoints.push_back(&engine_.add_endpoint(*worker));
    node->membership = cluster_.join(node->endpoints[0]->id(), *workers[0]);
    if (node->membership == nullptr) return;  // no slot is free: later
    node->id = id_of(node->membership->self());
    tell(fmt::format("node {} joins as slot {} incarnation {}", index,
                     node->membership->self().slot.value, node->membership->self().incarnation.value));
    node->locks = std::make_unique<hier::Node>(
        shape_, plan_.policy, cql::Options{.patience = plan_.patience, .rules = protocol_},
        hier::stations_sharing(*node->membership, node->endpoints));
    node->syncing = std::make_unique<TaskGroup>(node->locks->clock().frames());
    node->syncing->spawn(node->locks->clock().keep_in_step({MnId{0}, kWordsPerLock * 8 * plan_.locks}));
    for (std::uint32_t w = 0; w < plan_.workers; ++w) node->locks->worker(w).cql().start_patrol();
    for (std::uint32_t i = 0; i < plan_.clients; ++i) {
      const std::uint32_t on = i % plan_.workers;
      const std::uint64_t who = next_who_++;
      node->clients.emplace_back(*this, *node, who, *node->endpoints[on], node->locks->client(on),
                                 Prng{plan_.seed, 100 + who});
    }
    for (Client& client : node->clients) {
      client.task.emplace(client.run());
      client.task->start();
    }
    nodes_[index] = std::move(node);
  }

  // Its process is gone; what it has sent is still on its way.
  void crash(std::uint32_t index) {
    if (nodes_[index] == nullptr) return;
    tell(fmt::format("node {} crashes", index));
    // A client that is dead enters nothing any more, and holds until it is fenced as far as the others know.
    engine_.resume(nodes_[index]->party);
    end(nodes_[index]);
  }

  static void end(std::unique_ptr<Node>& node) {
    if (node == nullptr) return;
    node->locks->stop();
    for (Client& client : node->clients) client.task.reset();
    node.reset();
  }

  void befall(const Fault& fault) {
    Node* node = fault.node < nodes_.size() ? nodes_[fault.node].get() : nullptr;
    const auto party = [&](std::uint32_t index) {
      return nodes_[index % nodes_.size()] != nullptr ? nodes_[index % nodes_.size()]->party
                                                      : sim::Party{~std::uint32_t{0}};
    };
    switch (fault.kind) {
      case FaultKind::crash:
        return crash(fault.node);
      case FaultKind::join:
        if (node == nullptr) start(fault.node);
        return;
      case FaultKind::heal:
        tell("the network is healed");
        return engine_.heal();
      case FaultKind::restart_memory: {
        const MnId mn{static_cast<std::uint16_t>(fault.node)};
        if (engine_.is_down(mn)) return;
        garbage_ = random_.one_in(2);
        tell(fmt::format("memory node {} stops", mn.value));
        return cluster_.restart(mn, fault.lasts);
      }
      default:
        break;
    }
    if (node == nullptr) return;
    tell(fmt::format("node {}: {}", fault.node, to_string(fault.kind)));
    switch (fault.kind) {
      case FaultKind::pause:
        if (engine_.is_paused(node->party)) return;
        engine_.pause(node->party);
        pauses_.push_back({engine_.now() + fault.lasts, fault.node, node->party});
        return;
      case FaultKind::cut_coordinator:
        return engine_.cut(node->party, sim::kCoordinator);
      case FaultKind::cut_memory:
        return engine_.cut(node->party,
                           sim::party_of(MnId{static_cast<std::uint16_t>(fault.other % plan_.mns)}));
      case FaultKind::cut_compute:
        return engine_.cut(node->party, party(fault.other));
      case FaultKind::cut_all:
        engine_.cut(node->party, sim::kCoordinator);
        for (std::uint32_t mn = 0; mn < plan_.mns; ++mn)
          engine_.cut(node->party, sim::party_of(MnId{static_cast<std::uint16_t>(mn)}));
        for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
          if (i != fault.node) engine_.cut(node->party, party(i));
        }
        return;
      case FaultKind::spurious_reset:
        if (!engine_.is_paused(node->party)) {
          node->locks->worker(0).cql().reset_for_nothing(lock(fault.other % plan_.locks));
        }
        return;
      default:
        return;
    }
  }

  void advance(Time until) {
    for (const Pause& pause : pauses_) {
      if (pause.until > engine_.now()) continue;
      tell(fmt::format("node {} goes on", pause.node));
      engine_.resume(pause.party);
    }
    std::erase_if(pauses_, [&](const Pause& p) { return p.until <= engine_.now(); });
    engine_.run_until(until);
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      Node* node = nodes_[i].get();
      if (node == nullptr || !node->membership->evicted()) continue;
      const bool all_ended = std::all_of(node->clients.begin(), node->clients.end(),
                                         [](const Client& c) { return c.task->done(); });
      if (!all_ended) continue;
      tell(fmt::format("node {} has seen that it was evicted", i));
      resets_ += resets_of(*node);
      end(nodes_[i]);
      start(i);
    }
  }

  void heal_everything() {
    tell("everything is healed");
    engine_.set_mishaps({});
    engine_.heal();
    for (const Pause& pause : pauses_) engine_.resume(pause.party);
    pauses_.clear();
  }

  bool everybody_had_every_lock() const {
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      for (const Client& client : node->clients) {
        if (!client.task->done()) return false;
      }
    }
    return true;
  }

  std::string unserved() const {
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      for (const Client& client : node->clients) {
        if (client.task->done()) continue;
        return fmt::format("client {} of node {} did not get every lock within {} ms after the healing",
                           client.who, node->index, kBoundedTime.ns / 1'000'000);
      }
    }
    return "";
  }

  Outcome conclude() {
    for (std::uint32_t i = 0; i < plan_.locks; ++i) {
      ledger_.check(i, engine_.memory(counter(i).mn).load(counter(i).offset));
    }
    if (ledger_.violation()) return finish(Outcome::Kind::safety, *ledger_.violation());
    return finish(Outcome::Kind::clean, "");
  }

  std::uint64_t resets_of(Node& node) const {
    std::uint64_t sum = 0;
    for (std::size_t w = 0; w < node.locks->workers(); ++w)
      sum += node.locks->worker(w).cql().resets().done;
    return sum;
  }

  Outcome finish(Outcome::Kind kind, std::string text) {
    for (const auto& node : nodes_) {
      if (node != nullptr) resets_ += resets_of(*node);
    }
    return {kind,
            std::move(text),
            {story_.begin(), story_.end()},
            engine_.trace_hash(),
            ledger_.sections(),
            resets_,
            evictions_};
  }

  void tell(std::string what) {
    story_.push_back(fmt::format("{:9.3f} ms  {}", static_cast<double>(engine_.now().ns) / 1e6, what));
    if (story_.size() > kStoryMax) story_.pop_front();
  }

  struct Pause {
    Time until;
    std::uint32_t node;
    sim::Party party;
  };

  Plan plan_;
  ClusterRules rules_;
  cql::Rules protocol_;
  Prng random_;
  LockShape shape_;
  sim::TimedEngine engine_;
  member::SimCluster cluster_;
  audit::Ledger ledger_;
  std::vector<std::unique_ptr<Node>> nodes_;  // null: dead
  std::vector<Pause> pauses_;
  std::deque<std::string> story_;
  std::uint32_t next_party_ = 1;
  std::uint64_t next_who_ = 0;
  bool garbage_ = false;
  bool rounds_wanted_ = false;
  std::uint64_t resets_ = 0;
  std::uint64_t evictions_ = 0;
};

// After the healing each client takes every lock once, and is done.
std::uint32_t World::Client::next_wanted() {
  if (!world.rounds_wanted_) return static_cast<std::uint32_t>(random.below(world.plan_.locks));
  for (std::uint32_t i = 0; i < served.size(); ++i) {
    if (!served[i]) return i;
  }
  return world.plan_.locks;
}

Task<void> World::Client::run() {
  for (;;) {
    co_await endpoint.worker().sleep_for(Duration{static_cast<std::int64_t>(random.below(60'000))});
    const bool wanted = world.rounds_wanted_;
    const std::uint32_t number = next_wanted();
    if (number == world.plan_.locks) co_return;
    const Mode mode = random.unit() < world.plan_.read_ratio ? Mode::shared : Mode::exclusive;
    const Result<void> done = co_await section(number, mode);
    if (done && wanted) served[number] = true;
    if (!done && done.error() == Errc::evicted) co_return;
  }
}

Task<Result<Hold>> World::Client::acquire(RemoteAddr addr, Mode mode, Op* object) {
  if (!world.rounds_wanted_ && random.one_in(8)) return lock->try_acquire(addr, mode);
  if (!world.rounds_wanted_ && random.one_in(8)) {
    const Duration patience{static_cast<std::int64_t>(random.below(3'000'000))};
    return lock->acquire_until(addr, mode, endpoint.worker().now() + patience);
  }
  return lock->acquire(addr, mode, object);
}

Task<Result<void>> World::Client::section(std::uint32_t number, Mode mode) {
  const RemoteAddr addr = world.lock(number);
  std::uint64_t counter = 0;
  Op read = Op::read(world.counter(number), {&counter, 1}, Purpose::data);
  const Result<Hold> hold = co_await acquire(addr, mode, world.plan_.piggyback ? &read : nullptr);
  if (!hold) co_return Failure{hold.error()};
  audit::Ledger& ledger = world.ledger_;
  ledger.enter(number, who, node.id, mode, hold->mn_incarnation);
  const std::uint32_t only = world.protocol_.restart_voids_holds ? hold->mn_incarnation : 0;
  Result<void> used;
  if (!hold->object_read) {
    read.incarnation = only;
    used = co_await post_until_known(endpoint, read);
  }
  if (used) ledger.read(number, who, counter);
  co_await endpoint.worker().sleep_for(Duration{static_cast<std::int64_t>(random.below(20'000))});
  counter += 1;
  Op write = Op::write(world.counter(number), {&counter, 1}, Purpose::data);
  write.incarnation = only;
  const bool writes = used && mode == Mode::exclusive;
  if (writes) {
    const Result<Token> token = co_await lock->token(*hold);
    if (token) ledger.token(number, who, *token);
    ledger.writes(number, who);
    if (!world.plan_.piggyback) used = co_await post_until_known(endpoint, write);
    if (used && !world.plan_.piggyback) ledger.acknowledged(number, hold->mn_incarnation);
  }
  ledger.leave(number, who);
  const bool along = writes && world.plan_.piggyback;
  const Result<void> released = co_await lock->release(*hold, along ? &write : nullptr);
  if (along && released) ledger.acknowledged(number, hold->mn_incarnation);
  if (!released) co_return released;
  co_return used;
}

}  // namespace

Outcome run_world(const Plan& plan, const ClusterRules& rules, const cql::Rules& protocol) {
  return World{plan, rules, protocol}.run();
}

}  // namespace declock::torture
