#include "bench/micro.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace declock::bench {
namespace {

// Of one run: ShiftLock names clients in 16 bits.
constexpr std::uint64_t kClientsMax = 65'535;

// Processes of a benchmark on this machine.
constexpr std::uint32_t kProcessesMax = 256;

Result<void, std::string> validate_real(const MicroConfig& config) {
  const std::string_view fabric = to_string(config.fabric);
  if (locks::costs_nothing(config.lock)) {
    return Failure{
        fmt::format("the {} lock exists in the simulator alone; use --fabric sim", config.lock)};
  }
  if (config.cns > kProcessesMax) {
    return Failure{fmt::format("--cns {}: on {} at most {} processes are started", config.cns, fabric,
                               kProcessesMax)};
  }
  if (config.kill && config.kill->memory) {
    return Failure{
        fmt::format("--kill mn: on {} no memory node is restarted; accepted: cn:N@TIME", fabric)};
  }
  const bool on_network = config.fabric != Fabric::shm;
  if (!exists_on(config.fabric, config.lock)) {
    return Failure{fmt::format(
        "shiftlock needs a masked compare-and-swap, which {} does not have; use --fabric sim or shm",
        fabric)};
  }
  if (!config.namespaces.empty() && (!on_network || config.namespaces.size() < 2)) {
    return Failure{std::string{
        "--namespaces is for --fabric tcp: one for the memory nodes, and one or more for the "
        "compute nodes, as in mn,cn1,cn2"}};
  }
  if (config.cn_latency != 1)
    return Failure{fmt::format("--cn-latency is for --fabric sim, not {}", fabric)};
  return {};
}

}  // namespace

bool exists_on(Fabric fabric, std::string_view lock) {
  if (locks::costs_nothing(lock)) return fabric == Fabric::sim;
  return lock != "shiftlock" || fabric == Fabric::sim || fabric == Fabric::shm;
}

namespace {

std::uint64_t ns_of(Duration d) {
  return static_cast<std::uint64_t>(d.ns);
}

}  // namespace

void Measured::add_acquire(Duration waited, bool hottest) {
  acquires += 1;
  acquire_ns.add(ns_of(waited));
  if (hottest) hottest_acquire_ns.add(ns_of(waited));
}

void Measured::add_overtakes(std::uint64_t count) {
  overtakes.add(count);
  overtakes_sum += count;
  overtakes_counted_at += 1;
}

void Measured::add_taken_over(Duration took) {
  hand_over_ns.add(ns_of({std::max<std::int64_t>(took.ns, 0)}));
}

void Measured::add_operation(Duration took, Duration inside, Duration releasing) {
  ops += 1;
  op_ns.add(ns_of(took));
  data_ns.add(ns_of(inside));
  release_ns.add(ns_of(releasing));
}

void Measured::add_hand_over(const Asked& asked, const std::optional<RemoteWait>& remote) {
  local_hand_overs += 1;
  const std::int64_t late_us =
      remote ? std::max<std::int64_t>(0, later_by(asked, *remote).ns / 1000) : 0;
  hand_over_late_us = std::max(hand_over_late_us, static_cast<std::uint64_t>(late_us));
}

std::uint64_t Measured::lock_operations() const {
  std::uint64_t sum = 0;
  for (std::size_t p = 0; p < kPurposes; ++p) {
    const auto purpose = static_cast<Purpose>(p);
    if (purpose != Purpose::data && purpose != Purpose::verify) sum += counts.of(purpose);
  }
  return sum;
}

Measured& Measured::operator+=(const Measured& other) {
  ops += other.ops;
  acquires += other.acquires;
  releases += other.releases;
  counts += other.counts;
  op_ns += other.op_ns;
  acquire_ns += other.acquire_ns;
  release_ns += other.release_ns;
  data_ns += other.data_ns;
  hottest_acquire_ns += other.hottest_acquire_ns;
  hand_over_ns += other.hand_over_ns;
  overtakes += other.overtakes;
  overtakes_sum += other.overtakes_sum;
  overtakes_counted_at += other.overtakes_counted_at;
  local_hand_overs += other.local_hand_overs;
  hand_over_late_us = std::max(hand_over_late_us, other.hand_over_late_us);
  local_table_bytes_max = std::max(local_table_bytes_max, other.local_table_bytes_max);
  acquire_ops_max = std::max(acquire_ops_max, other.acquire_ops_max);
  resets_done += other.resets_done;
  acquires_aborted += other.acquires_aborted;
  reset_ns += other.reset_ns;
  return *this;
}

void add_resets(const cql::ResetCounts& resets, Measured& measured) {
  measured.resets_done += resets.done;
  measured.acquires_aborted += resets.aborted;
  for (const Duration took : resets.took) measured.reset_ns.add(static_cast<std::uint64_t>(took.ns));
}

Result<void, std::string> validate(const MicroConfig& config) {
  const std::uint32_t members = locks::members_of(config.family());
  const std::uint64_t clients = std::uint64_t{config.cns} * config.clients;
  if (clients > kClientsMax) {
    return Failure{fmt::format("--cns {} x --clients {} makes {} clients; at most {} are accepted",
                               config.cns, config.clients, clients, kClientsMax)};
  }
  if (members > HeaderLayout::kMembersMax) {
    return Failure{
        fmt::format("--cns {} x --clients {} makes {} clients; the queue of a {} lock has a slot "
                    "per client and at most {} of them",
                    config.cns, config.clients, members, config.lock, HeaderLayout::kMembersMax)};
  }
  if (config.slots != 0 && config.slots < members) {
    return Failure{fmt::format("--slots {} is too few for {} clients; a queue needs a slot for each",
                               config.slots, members)};
  }
  if (config.kill && !config.lock.starts_with("declock-")) {
    return Failure{
        fmt::format("--kill is for the declock- locks; {} does not survive failures", config.lock)};
  }
  if (config.kill && config.kill->node >= (config.kill->memory ? config.mns : config.cns)) {
    return Failure{fmt::format("--kill {}:{}: there are {}, numbered from 0",
                               config.kill->memory ? "mn" : "cn", config.kill->node,
                               config.kill->memory ? config.mns : config.cns)};
  }
  if (config.kill && config.kill->at >= config.duration) {
    return Failure{std::string{"--kill comes after the end of --duration"}};
  }
  if (config.fabric != Fabric::sim) {
    auto valid = validate_real(config);
    if (!valid) return valid;
  }
  if (config.workers > config.clients) {
    return Failure{
        fmt::format("--workers {} is more than --clients {}; a worker without clients has "
                    "nothing to do",
                    config.workers, config.clients)};
  }
  return {};
}

MicroResult run_micro(const MicroConfig& config, const std::function<void(double)>& progress) {
  if (config.fabric != Fabric::sim) return run_micro_real(config, progress);
  return run_micro(config, nullptr, progress);
}

}  // namespace declock::bench
