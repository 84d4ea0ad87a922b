#include "torture/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/units.h"

namespace declock::torture {

std::string_view to_string(FaultKind kind) {
  constexpr std::array<std::string_view, kFaultKinds> kNames{"crash",
                                                             "pause",
                                                             "cut off from the coordinator",
                                                             "cut off from memory node",
                                                             "cut off from node",
                                                             "cut off from everybody",
                                                             "heal",
                                                             "restart of memory node",
                                                             "join",
                                                             "reset for nothing, by",
                                                             "restart of the coordinator",
                                                             "leaves",
                                                             "closes",
                                                             "broken connection with node"};
  return kNames[static_cast<std::size_t>(kind)];
}

namespace {

std::string_view name_of(hier::PolicyKind kind) {
  for (const auto& [name, named] : hier::kPolicyNames) {
    if (named == kind) return name;
  }
  return "?";
}

// Several come within a moment. Most leave again by themselves.
void draw_storm(Plan& plan, Prng& random, Time at) {
  const std::uint32_t first = plan.nodes + plan.visitors;
  const auto count = static_cast<std::uint32_t>(2 + random.below(3));
  plan.visitors += count;
  plan.nodes_max += count;
  for (std::uint32_t i = first; i < first + count; ++i) {
    plan.faults.push_back({.at = at, .kind = FaultKind::join, .node = i});
    const FaultKind end = random.one_in(4)   ? FaultKind::crash
                          : random.one_in(3) ? FaultKind::close
                                             : FaultKind::leave;
    const Duration stays = microseconds(static_cast<std::int64_t>(100 + random.below(8000)));
    plan.faults.push_back({.at = at + stays, .kind = end, .node = i});
  }
}

void draw_comings_and_goings(Plan& plan) {
  Prng random{plan.seed, 17};
  if (random.one_in(2)) return;
  for (std::uint64_t i = 1 + random.below(3); i > 0; --i) {
    const Time at =
        Time{} + milliseconds(2) + microseconds(static_cast<std::int64_t>(random.below(25'000)));
    const auto node = static_cast<std::uint32_t>(random.below(plan.nodes));
    const auto other = static_cast<std::uint32_t>(random.below(plan.nodes));
    const Duration lasts = microseconds(static_cast<std::int64_t>(100 + random.below(12'000)));
    const std::uint64_t kind = random.below(5);
    if (kind == 0 && plan.visitors == 0) {
      draw_storm(plan, random, at);
    } else {
      constexpr std::array kKinds{FaultKind::leave, FaultKind::restart_coordinator, FaultKind::leave,
                                  FaultKind::close, FaultKind::break_connection};
      plan.faults.push_back({at, kKinds[kind], node, other, lasts});
      // Its place is taken by another, sometimes.
      if (random.one_in(2))
        plan.faults.push_back({.at = at + lasts, .kind = FaultKind::join, .node = node});
    }
  }
}

}  // namespace

Plan draw_plan(std::uint64_t seed) {
  Prng random{seed, 7};
  const auto between = [&](std::uint64_t low, std::uint64_t high) {
    return static_cast<std::uint32_t>(low + random.below(high - low + 1));
  };
  Plan plan;
  plan.seed = seed;
  plan.nodes = between(2, 4);
  plan.nodes_max = plan.nodes + between(0, 2);
  plan.clients = between(1, 3);
  plan.workers = std::min(plan.clients, between(1, 2));
  plan.mns = between(1, 2);
  plan.locks = between(1, 3);
  plan.policy.kind = static_cast<hier::PolicyKind>(random.below(6));
  plan.read_ratio = static_cast<double>(random.below(4)) * 0.25;
  plan.piggyback = random.one_in(2);
  plan.near_wrap = random.one_in(8);
  plan.old_claim = random.one_in(16);
  if (random.one_in(3)) plan.delayed_one_in = between(20, 200);
  if (random.one_in(3)) plan.unknown_one_in = between(100, 1000);
  const std::uint32_t count = between(1, 6);
  for (std::uint32_t i = 0; i < count; ++i) {
    Fault fault;
    fault.at = Time{} + milliseconds(2) + microseconds(between(0, 25'000));
    fault.kind = static_cast<FaultKind>(random.below(10));
    fault.node = between(0, plan.nodes - 1);
    fault.other = between(0, std::max(plan.nodes, plan.mns) - 1);
    if (fault.kind == FaultKind::restart_memory) fault.node = between(0, plan.mns - 1);
    fault.lasts = microseconds(between(100, 12'000));
    plan.faults.push_back(fault);
    // What is cut is healed, sometimes soon, sometimes after the lease.
    if (fault.kind >= FaultKind::cut_coordinator && fault.kind <= FaultKind::cut_all) {
      Fault heal = fault;
      heal.kind = FaultKind::heal;
      heal.at = fault.at + fault.lasts;
      plan.faults.push_back(heal);
    }
  }
  draw_comings_and_goings(plan);
  // Drawn apart, so that the other seeds mean what they always meant.
  Prng policy{seed, 19};
  if (policy.one_in(4)) plan.policy.kind = hier::PolicyKind::token;
  plan.policy.gate = static_cast<std::uint32_t>(1 + policy.below(3));
  std::stable_sort(plan.faults.begin(), plan.faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at < b.at; });
  return plan;
}

Plan in_shared_memory(Plan plan) {
  plan.at_once = true;
  plan.unknown_one_in = 0;
  std::erase_if(plan.faults, [](const Fault& fault) {
    return fault.kind == FaultKind::restart_memory || fault.kind == FaultKind::cut_memory ||
           fault.kind == FaultKind::cut_all;
  });
  return plan;
}

std::string describe(const Plan& plan) {
  std::string text = fmt::format(
      "{} of at most {} compute nodes x {} clients on {} workers, {} memory nodes, {} locks, policy "
      "{}, {:.0f} % "
      "reads{}{}",
      plan.nodes, plan.nodes_max, plan.clients, plan.workers, plan.mns, plan.locks,
      name_of(plan.policy.kind), plan.read_ratio * 100, plan.piggyback ? ", piggyback" : "",
      plan.near_wrap   ? ", tickets about to wrap"
      : plan.old_claim ? ", an old claim"
                       : "");
  if (plan.at_once) text += ", in shared memory";
  if (plan.visitors > 0) text += fmt::format(", {} visitors", plan.visitors);
  if (plan.delayed_one_in > 0) text += fmt::format(", 1 chain in {} delayed", plan.delayed_one_in);
  if (plan.unknown_one_in > 0) text += fmt::format(", 1 outcome in {} unknown", plan.unknown_one_in);
  return text;
}

}  // namespace declock::torture
