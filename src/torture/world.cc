#include "torture/world.h"

#include <fmt/format.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "torture/node.h"

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
                           .view_before_access = rules.view_before_access,
                           .pardon_lateness = rules.pardon_lateness}),
        ledger_(plan.locks),
        nodes_(plan.nodes + plan.visitors) {
    cluster_.on_suspected = [this](const member::Member& m) { expect_silence(m); };
    cluster_.on_fenced = [this](const member::Member& m) {
      tell(fmt::format("slot {} incarnation {} is fenced and removed", m.slot.value,
                       m.incarnation.value));
      evictions_ += 1;
      ledger_.fenced(Node::id_of(m));
    };
    cluster_.on_lost = [this](MnId mn) {
      for (std::uint32_t i = 0; i < plan_.locks; ++i) {
        if (work_.lock(i).mn == mn) ledger_.lost(i, engine_.incarnation(mn));
      }
    };
    cluster_.on_start = [this](MnId mn) {
      tell(fmt::format("memory node {} is back", mn.value));
      Prng garbage{plan_.seed, 13};
      for (std::uint64_t word = 0; garbage_ && word < Workload::kWordsPerLock * plan_.locks; ++word) {
        engine_.memory(mn).store(8 * word, garbage.below(~std::uint64_t{0}));
      }
      // A region is initialised before it is served; zeroes are free locks (H12).
      if (rules_.initialise) engine_.memory(mn).clear();
    };
    if (plan.at_once) engine_.set_at_once();
    for (std::uint32_t i = 0; i < plan.locks; ++i) {
      Header header;
      if (plan.near_wrap) header.ticket = Ticket{shape_.ticket_limit.value - 20};
      if (plan.old_claim)
        header.reset_id = ResetId{1 << 2 | 1};  // of the first slot, as its first incarnation
      engine_.memory(work_.lock(i).mn).store(work_.lock(i).offset, shape_.header.encode(header));
    }
    for (std::uint32_t i = 0; i < plan.nodes; ++i) start(i);
  }

  ~World() {
    for (auto& node : nodes_) Node::end(node);
  }

  Outcome run() {
    engine_.set_mishaps({plan_.delayed_one_in, microseconds(300), plan_.unknown_one_in});
    std::size_t next = 0;
    for (Time t{}; t < Time{} + plan_.duration; t = t + kSlice) {
      for (; next < plan_.faults.size() && plan_.faults[next].at <= t; ++next)
        befall(plan_.faults[next]);
      advance(t + kSlice);
      if (violation()) return finish(Outcome::Kind::safety, *violation());
    }
    heal_everything();
    const Time deadline = engine_.now() + kBoundedTime;
    work_.rounds_wanted = true;
    while (engine_.now() < deadline) {
      advance(engine_.now() + kSlice);
      if (violation()) return finish(Outcome::Kind::safety, *violation());
      if (everybody_had_every_lock()) return conclude();
    }
    return finish(Outcome::Kind::liveness, unserved());
  }

 private:
  static constexpr Duration kSlice = microseconds(50);
  static constexpr Duration kBoundedTime = milliseconds(500);
  static constexpr std::size_t kStoryMax = 60;
  static constexpr std::int64_t kBrokenShorter = 10;  // than other faults last: both ends connect again

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

  void start(std::uint32_t index) {
    if (cluster_.is_coordinator_away()) return joining_.push_back(index);
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
    node->silent = cluster_.clock();
    node->id = Node::id_of(node->membership->self());
    tell(fmt::format("node {} joins as slot {} incarnation {}", index,
                     node->membership->self().slot.value, node->membership->self().incarnation.value));
    node->locks = std::make_unique<hier::Node>(
        shape_, plan_.policy, cql::Options{.patience = plan_.patience, .rules = protocol_},
        hier::stations_sharing(*node->membership, node->endpoints));
    node->syncing = std::make_unique<TaskGroup>(node->locks->clock().frames());
    node->syncing->spawn(
        node->locks->clock().keep_in_step({MnId{0}, Workload::kWordsPerLock * 8 * plan_.locks}));
    for (std::uint32_t w = 0; w < plan_.workers; ++w) node->locks->worker(w).cql().start_patrol();
    for (std::uint32_t i = 0; i < plan_.clients; ++i) {
      const std::uint32_t on = i % plan_.workers;
      const std::uint64_t who = next_who_++;
      node->clients.emplace_back(work_, who, node->id, node->leaving, *node->endpoints[on],
                                 node->locks->client(on));
    }
    for (Client& client : node->clients) client.start();
    nodes_[index] = std::move(node);
  }

  // Its process is gone; what it has sent is still on its way.
  void crash(std::uint32_t index) {
    if (nodes_[index] == nullptr) return;
    tell(fmt::format("node {} crashes", index));
    // A client that is dead enters nothing any more, and holds until it is fenced as far as the others know.
    engine_.resume(nodes_[index]->party);
    Node::end(nodes_[index]);
  }

  void befall(const Fault& fault) {
    Node* node = fault.node < nodes_.size() ? nodes_[fault.node].get() : nullptr;
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
      case FaultKind::restart_coordinator:
        tell(fmt::format("the coordinator is away for {} us", fault.lasts.ns / 1000));
        return cluster_.restart_coordinator(fault.lasts);
      default:
        if (node == nullptr) return;
        tell(fmt::format("node {}: {}", fault.node, to_string(fault.kind)));
        return befall_node(*node, fault);
    }
  }

  void befall_node(Node& node, const Fault& fault) {
    switch (fault.kind) {
      case FaultKind::pause:
        if (engine_.is_paused(node.party)) return;
        engine_.pause(node.party);
        pauses_.push_back({engine_.now() + fault.lasts, fault.node, node.party});
        return;
      case FaultKind::cut_coordinator:
        return engine_.cut(node.party, sim::kCoordinator);
      case FaultKind::cut_memory:
        return engine_.cut(node.party,
                           sim::party_of(MnId{static_cast<std::uint16_t>(fault.other % plan_.mns)}));
      case FaultKind::cut_compute:
        return engine_.cut(node.party, party(fault.other));
      case FaultKind::cut_all:
        engine_.cut(node.party, sim::kCoordinator);
        for (std::uint32_t mn = 0; mn < plan_.mns; ++mn)
          engine_.cut(node.party, sim::party_of(MnId{static_cast<std::uint16_t>(mn)}));
        for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
          if (i != fault.node) engine_.cut(node.party, party(i));
        }
        return;
      case FaultKind::spurious_reset:
        if (!engine_.is_paused(node.party)) {
          node.locks->worker(0).cql().reset_for_nothing(work_.lock(fault.other % plan_.locks));
        }
        return;
      case FaultKind::leave:
        node.leaving = true;
        return;
      case FaultKind::close:
        return close(fault.node, true);
      case FaultKind::break_connection:
        engine_.cut(node.party, party(fault.other));
        breaks_.push_back({engine_.now() + Duration{fault.lasts.ns / kBrokenShorter}, node.party,
                           party(fault.other)});
        return;
      default:
        return;
    }
  }

  sim::Party party(std::uint32_t index) const {
    const auto& node = nodes_[index % nodes_.size()];
    return node != nullptr ? node->party : sim::Party{~std::uint32_t{0}};
  }

  bool can_say_so(const Node& node) const {
    return !cluster_.is_coordinator_away() && !engine_.is_paused(node.party) &&
           !engine_.is_cut(node.party, sim::kCoordinator);
  }
  // Ends a node, and says so if it can; otherwise it is taken for dead in time. `counts`: it may owe somebody something.
  void close(std::uint32_t index, bool counts) {
    Node& node = *nodes_[index];
    const member::Member self = node.membership->self();
    const bool says_so = can_say_so(node);
    tell(fmt::format("node {} {}", index, counts ? "closes with what it has" : "leaves"));
    engine_.resume(node.party);
    resets_ += node.resets();
    Node::end(nodes_[index]);
    if (says_so) cluster_.leave(self, counts);
  }

  // A node that leaves first says everything: what it has sent must not wait for a connection.
  void close_those_that_are_done() {
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      Node* node = nodes_[i].get();
      if (node == nullptr || !node->leaving || node->membership->evicted() || !can_say_so(*node))
        continue;
      if (!node->all_done() || node->locks->running() > 0) continue;
      bool heard_by_all = true;
      for (std::uint32_t other = 0; other < nodes_.size(); ++other)
        heard_by_all = heard_by_all && !engine_.is_cut(node->party, party(other));
      if (heard_by_all) close(i, false);
    }
  }

  // Whoever can renew its lease does: nobody else may be taken for dead.
  void note_who_is_heard() {
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      if (engine_.is_paused(node->party) || engine_.is_cut(node->party, sim::kCoordinator))
        node->silent = cluster_.clock();
    }
  }
  void expect_silence(const member::Member& suspect) {
    for (const auto& node : nodes_) {
      if (node == nullptr || node->id != Node::id_of(suspect)) continue;
      if (cluster_.clock() - node->silent <= plan_.lease + plan_.lease) continue;
      violation_ = fmt::format(
          "node {} is taken for dead although the coordinator could always hear it", node->index);
    }
  }

  void advance(Time until) {
    for (const Pause& pause : pauses_) {
      if (pause.until > engine_.now()) continue;
      tell(fmt::format("node {} goes on", pause.node));
      engine_.resume(pause.party);
    }
    std::erase_if(pauses_, [&](const Pause& p) { return p.until <= engine_.now(); });
    for (const Break& broken : breaks_) {
      if (broken.until <= engine_.now()) engine_.mend(broken.one, broken.other);
    }
    std::erase_if(breaks_, [&](const Break& b) { return b.until <= engine_.now(); });
    engine_.run_until(until);
    note_who_is_heard();
    close_those_that_are_done();
    if (!cluster_.is_coordinator_away()) {
      for (const std::uint32_t index : std::exchange(joining_, {})) {
        if (nodes_[index] == nullptr) start(index);
      }
    }
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      Node* node = nodes_[i].get();
      if (node == nullptr || !node->membership->evicted() || !node->all_done()) continue;
      tell(fmt::format("node {} has seen that it was evicted", i));
      resets_ += node->resets();
      Node::end(nodes_[i]);
      start(i);
    }
  }

  void heal_everything() {
    tell("everything is healed");
    engine_.set_mishaps({});
    engine_.heal();
    for (const Pause& pause : pauses_) engine_.resume(pause.party);
    pauses_.clear();
    breaks_.clear();
  }

  bool everybody_had_every_lock() const {
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      for (const Client& client : node->clients) {
        if (!client.done()) return false;
      }
    }
    return true;
  }

  std::string unserved() const {
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      for (const Client& client : node->clients) {
        if (client.done()) continue;
        return fmt::format("client {} of node {} did not get every lock within {} ms after the healing",
                           client.who(), node->index, kBoundedTime.ns / 1'000'000);
      }
    }
    return "";
  }

  Outcome conclude() {
    for (std::uint32_t i = 0; i < plan_.locks; ++i) {
      const RemoteAddr counter = work_.counter(i);
      ledger_.check(i, engine_.memory(counter.mn).load(counter.offset));
    }
    if (violation()) return finish(Outcome::Kind::safety, *violation());
    return finish(Outcome::Kind::clean, "");
  }

  Outcome finish(Outcome::Kind kind, std::string text) {
    for (const auto& node : nodes_) {
      if (node != nullptr) resets_ += node->resets();
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

  std::optional<std::string> violation() const { return violation_ ? violation_ : ledger_.violation(); }

  struct Pause {
    Time until;
    std::uint32_t node;
    sim::Party party;
  };
  struct Break {
    Time until;
    sim::Party one;
    sim::Party other;
  };

  Plan plan_;
  ClusterRules rules_;
  cql::Rules protocol_;
  Prng random_;
  LockShape shape_;
  sim::TimedEngine engine_;
  member::SimCluster cluster_;
  audit::Ledger ledger_;
  Workload work_{plan_, protocol_, ledger_};
  std::vector<std::unique_ptr<Node>> nodes_;  // null: dead
  std::vector<Pause> pauses_;
  std::vector<Break> breaks_;           // between two compute nodes
  std::vector<std::uint32_t> joining_;  // as soon as the coordinator is back
  std::deque<std::string> story_;
  std::uint32_t next_party_ = 1;
  std::uint64_t next_who_ = 0;
  bool garbage_ = false;
  std::optional<std::string> violation_;
  std::uint64_t resets_ = 0;
  std::uint64_t evictions_ = 0;
};

}  // namespace

Outcome run_world(const Plan& plan, const ClusterRules& rules, const cql::Rules& protocol) {
  return World{plan, rules, protocol}.run();
}

}  // namespace declock::torture
