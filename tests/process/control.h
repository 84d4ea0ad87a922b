// What a test and the compute nodes that it starts, kills and stops share: a mapped file.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "base/check.h"

namespace declock::process {

inline constexpr std::uint32_t kLocks = 4;
inline constexpr std::uint32_t kMembers = 8;
inline constexpr std::uint32_t kWorkers = 2;
inline constexpr std::uint32_t kClients = 4;  // per process
inline constexpr std::uint32_t kStationsMax = 64;
inline constexpr std::uint32_t kIncarnations = 64;  // of the memory node, at most

// Of one of the test's places for a process; what its processes did adds up, however they ended.
struct alignas(64) Station {
  std::atomic<std::uint32_t> slot;  // of the last that joined
  std::atomic<std::uint32_t> incarnation;
  std::atomic<std::uint64_t> operations;
  std::atomic<std::uint64_t> acknowledged[kIncarnations]
                                         [kLocks];  // updates, by incarnation of the memory node
  std::atomic<std::uint64_t> resets;
  std::atomic<std::uint64_t> evictions;  // it was told that it was taken for dead, and joined again
};

struct Control {
  std::atomic<bool> stop;
  std::atomic<std::uint64_t> violations;
  std::atomic<std::uint64_t> repairs;  // of updates that somebody was killed in
  std::atomic<std::uint64_t> errors;   // operations that failed for no good reason
  Station stations[kStationsMax];

  std::uint64_t acknowledged(std::uint32_t incarnation, std::uint64_t lock) const {
    std::uint64_t sum = 0;
    for (const Station& station : stations) sum += station.acknowledged[incarnation][lock].load();
    return sum;
  }
  std::uint64_t evictions() const {
    std::uint64_t sum = 0;
    for (const Station& station : stations) sum += station.evictions.load();
    return sum;
  }

  // Zeroed if the file is new.
  static Control& map(const std::string& path) {
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(descriptor >= 0 && ftruncate(descriptor, sizeof(Control)) == 0);
    void* at = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    CHECK(at != MAP_FAILED);
    close(descriptor);
    return *static_cast<Control*>(at);
  }
};

// Where lock number i and what it protects lie.
inline constexpr std::uint64_t kStride = 256;
inline constexpr std::uint64_t kObjects = kStride * kLocks;
inline constexpr std::uint64_t kBytes = kObjects + 64 * kLocks;

}  // namespace declock::process
