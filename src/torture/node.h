// One incarnation of a simulated compute node.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "member_sim/sim_cluster.h"
#include "torture/client.h"

namespace declock::torture {

struct Node {
  std::uint32_t index = 0;  // which compute node this is
  std::uint64_t id = 0;
  sim::Party party;
  std::vector<Endpoint*> endpoints;
  std::unique_ptr<member::SimMembership> membership;
  std::unique_ptr<hier::Node> locks;
  std::unique_ptr<TaskGroup> syncing;
  std::deque<Client> clients;
  bool leaving = false;  // as soon as its clients are done
  Time silent;           // when the coordinator could not hear it last, by the coordinator's clock

  static std::uint64_t id_of(const member::Member& m) {
    return std::uint64_t{m.slot.value} << 32 | m.incarnation.value;
  }
  bool all_done() const {
    return std::all_of(clients.begin(), clients.end(), [](const Client& c) { return c.done(); });
  }
  std::uint64_t resets() const {
    std::uint64_t sum = 0;
    for (std::size_t w = 0; w < locks->workers(); ++w) sum += locks->worker(w).cql().resets().done;
    return sum;
  }

  // As a process that is killed.
  static void end(std::unique_ptr<Node>& node) {
    if (node == nullptr) return;
    node->locks->stop();
    for (Client& client : node->clients) client.end();
    node.reset();
  }
};

}  // namespace declock::torture
