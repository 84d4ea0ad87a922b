// The microbenchmark: clients that acquire a lock in shared (or exclusive) mode, read (or update) the
// object that it protects, and release it (paper section 6.1). In virtual time on the simulated fabric, or in
// processes on this machine over shared memory or a network.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/time.h"
#include "declock/result.h"
#include "fabric/kind.h"
#include "locks/family.h"
#include "networks/networks.h"
#include "sim/nic.h"

namespace declock::bench {

struct MicroConfig {
  Fabric fabric = Fabric::sim;
  std::string lock = "cql";
  std::uint32_t cns = 8;
  std::uint32_t mns = 1;
  std::uint32_t clients = 32;  // per CN
  std::uint32_t workers = 16;  // cores per CN that run clients; no more than clients
  std::uint64_t locks = 100'000;
  std::uint32_t slots = 0;  // 0: one per member
  double zipf = 0.99;
  double read_ratio = 0.5;
  std::uint32_t cs_ops = 1;
  std::uint32_t object_size = 8;  // bytes
  bool piggyback = false;  // lock and data in one doorbell, and no waiting for releases of readers
  cql::ReleaseRead release_read = cql::ReleaseRead::adaptive;
  Duration slack = microseconds(200);
  std::uint32_t bound = 4;
  std::uint32_t gate = 64;
  Duration duration = seconds(2);
  Duration warmup = milliseconds(100);
  std::uint64_t seed = 1;
  double cn_latency = 1;  // factor on the latency of messages between CNs
  sim::NicModel nic;
  // A compute node that dies, or a memory node that restarts with fresh memory, at this moment of the measurement.
  struct Kill {
    bool memory = false;
    std::uint32_t node = 0;
    Duration at{};
  };
  std::optional<Kill> kill{};
  // On a network:
  Duration lease = seconds(1);
  net::NetworkOptions network{};  // its kind follows from the fabric
  std::vector<std::string>
      namespaces{};  // of the network, for the memory nodes, and in turn for each CN; none: loopback

  locks::FamilyConfig family() const {
    locks::FamilyConfig config;
    config.lock = lock;
    config.cns = cns;
    config.clients = clients;
    config.workers = workers;
    config.slots = slots;
    config.release_read = release_read;
    config.slack = slack;
    config.bound = bound;
    config.gate = gate;
    return config;
  }
};

// The ideal locks exist in the simulator alone, and ShiftLock needs an operation that networks do not have here.
bool exists_on(Fabric fabric, std::string_view lock);

// What is wrong with a configuration as a whole, if anything; each option alone is in range.
Result<void, std::string> validate(const MicroConfig& config);

// What was counted in the measured window, after the warm-up.
struct Measured {
  std::uint64_t ops = 0;
  std::uint64_t acquires = 0;
  std::uint64_t releases = 0;  // of the lock on the MN: a local hand-over is none
  OpCounts counts;
  Histogram op_ns, acquire_ns, release_ns, data_ns;
  Histogram hottest_acquire_ns;
  Histogram
      hand_over_ns;  // from the end of one section to the beginning of the next, where somebody waited
  Histogram overtakes;
  std::uint64_t overtakes_sum = 0;
  std::uint64_t overtakes_counted_at = 0;  // so many acquisitions
  // How much later a client that got the lock by a local hand-over had asked than the first remote one known
  // to wait, where it was later.
  std::uint64_t local_hand_overs = 0;
  std::uint64_t hand_over_late_us = 0;  // at most
  std::uint64_t local_table_bytes_max = 0;
  std::uint64_t acquire_ops_max = 0;  // MN operations of one acquisition; 0: not watched
  std::uint64_t resets_done = 0, acquires_aborted = 0;  // over the whole run
  Histogram reset_ns;

  void add_acquire(Duration waited, bool hottest);
  void add_overtakes(std::uint64_t count);
  void add_taken_over(Duration took);
  void add_operation(Duration took, Duration inside, Duration releasing);
  void add_hand_over(const Asked& asked, const std::optional<RemoteWait>& remote);
  Measured& operator+=(const Measured& other);
  // On memory nodes, for the lock and not for what it protects.
  std::uint64_t lock_operations() const;
};

struct MicroResult : Measured {
  std::optional<std::uint64_t>
      fifo_violations;                  // where each client enqueues for itself, and somebody watches
  std::vector<std::uint64_t> timeline;  // operations per 10 ms, where something was killed
  std::optional<Duration> time_sync_error;  // the furthest that two CNs' clocks were apart
  // Over the whole run, to the end of the last operation:
  std::uint64_t violations = 0;
  // Acknowledged updates that are not in memory; below 0: clients that failed had written more.
  std::optional<std::int64_t> lost_updates;
  std::vector<std::string> failures;  // clients that gave up or never finished
  std::uint64_t trace_hash = 0;
  std::uint64_t events = 0;
  double wall_s = 0;
};

// REQUIRES: validate(config). Calls `progress` now and then with the part done, from 0 to 1; what it throws ends the
// run. Throws std::runtime_error if it cannot run.
MicroResult run_micro(const MicroConfig& config, const std::function<void(double)>& progress = {});
// On the simulated fabric with a family of the caller's.
MicroResult run_micro(const MicroConfig& config, std::unique_ptr<locks::LockFamily> family,
                      const std::function<void(double)>& progress = {});

// What a timeline counts by.
inline constexpr Duration kTimelineBucket = milliseconds(10);
void add_resets(const cql::ResetCounts& resets, Measured& measured);

// In micro_real.cc.
MicroResult run_micro_real(const MicroConfig& config, const std::function<void(double)>& progress);

struct MicroRun {
  MicroConfig config;
  MicroResult result;
};

// Every option but fabric and seed, as in the result.
std::string config_text(const MicroConfig& config);

// The result in the format that all benchmarks share: an object, or an array of several runs.
std::string to_json(const MicroConfig& config, const MicroResult& result, std::string_view commit);
std::string to_json(const std::vector<MicroRun>& runs, std::string_view commit);
// For a person: one run in lines, several as a table in which the best of each column is marked.
std::string summary(const MicroConfig& config, const MicroResult& result);
std::string table(const std::vector<MicroRun>& runs);

}  // namespace declock::bench
