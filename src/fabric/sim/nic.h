// The numbers of a simulated cluster: of its clients, its network, and of a memory node's NIC, which is
// the bottleneck that this project is about. `cx4-100g` is a ConnectX-4/5 class NIC at 100 Gb/s.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "declock/result.h"

namespace declock::sim {

struct NicModel {
  std::string name = "cx4-100g";

  std::int64_t one_way_ns = 1250;     // CN to MN, and back: a READ takes 3 us
  std::int64_t verb_cpu_ns = 400;     // a client's core, per operation posted
  std::int64_t processing_units = 8;  // a queue pair hashes to one; in order per unit
  std::int64_t read_write_ns = 33;    // NIC-wide: 30 M/s
  std::int64_t atomic_ns = 35;        // NIC-wide, on different words: 28 M/s
  std::int64_t atomic_slots = 512;    // by address bits from 3 up; a waiting atomic blocks its unit
  std::int64_t atomic_slot_held_ns = 160;  // atomics on one word: 6.2 M/s
  std::int64_t payload_ps_per_byte = 80;   // 12.5 GB/s, each way

  std::int64_t message_one_way_ns = 1300;  // CN to CN
  std::int64_t message_cpu_ns = 100;       // to post one
  std::int64_t jitter_mean_ns = 50;        // exponential, on every way
  std::int64_t hiccup_ns = 20'000;         // and once in `hiccup_one_in` ways this much more
  std::int64_t hiccup_one_in = 10'000;     // 0: never

  std::int64_t torn_read_one_in = 16;   // reads of several words that see two moments; 0: none
  std::int64_t torn_read_gap_ns = 200;  // between those moments

  std::int64_t clock_offset_max_ns = 1'000'000;  // of a CN's clock at the start, either way
  std::int64_t clock_drift_max_ppb = 1'000;      // and nanoseconds per second from then on, either way

  std::int64_t think_max_ns = 10'000;  // a client between two operations: uniform from 0 to this

  bool operator==(const NicModel&) const = default;
};

// A number of the model, and what it may be.
struct NicField {
  const char* name;
  std::int64_t NicModel::*member;
  std::int64_t low;
  std::int64_t high;
};
std::span<const NicField> nic_fields();

// The text of a NIC file: JSON, every field of NicModel by its name, no other.
std::string to_json(const NicModel& model);
Result<NicModel, std::string> nic_from_json(std::string_view text);

// A built-in model by name (`cx4-100g`), or the file at this path.
Result<NicModel, std::string> load_nic(const std::string& name_or_path);

}  // namespace declock::sim
