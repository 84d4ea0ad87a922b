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
inline constexpr std::uint32_t kMembers = 16;
inline constexpr std::uint32_t kWorkers = 2;
inline constexpr std::uint32_t kClients = 4;  // per process
inline constexpr std::uint32_t kStationsMax = 64;
inline constexpr std::uint32_t kStationsTallied = 16;  // those whose clients have words of their own
inline constexpr std::uint32_t kMemories = 64;         // at most, one after the other

// What a client's own word may say. The client adds one by a write that goes along with a release: before it `at_most`
// grows. Done: `at_least` follows. Certainly not done: `at_most` goes back. Not known, or killed: both stay, until the
// client finds by reading which of them it is.
struct Bounds {
  std::atomic<std::uint64_t> at_least;
  std::atomic<std::uint64_t> at_most;

  bool allow(std::uint64_t word) const { return word >= at_least.load() && word <= at_most.load(); }
};

// Of one of the test's places for a process; what its processes did adds up, however they ended.
struct alignas(64) Station {
  std::atomic<std::uint32_t> slot;  // of the last that joined
  std::atomic<std::uint32_t> incarnation;
  std::atomic<std::uint64_t> operations;
  std::atomic<std::uint64_t> acknowledged[kMemories][kLocks];  // updates, by the memory they are in
  Bounds bounds[kMemories][kClients][kLocks];
  std::atomic<std::uint64_t> resets;
  std::atomic<std::uint64_t> evictions;      // it was told that it was taken for dead, and joined again
  std::atomic<std::uint64_t> closes_wanted;  // by the test
  std::atomic<std::uint64_t> closes;   // with whatever it held and waited for; then it joined again
  std::atomic<std::uint64_t> records;  // of locks that it remembers, lately
};

struct Control {
  std::atomic<bool> stop;
  std::atomic<bool> with_tokens;                 // the locks, of everybody
  std::atomic<std::uint32_t> memories_unlinked;  // in shared memory
  std::atomic<std::uint64_t> violations;
  std::atomic<std::uint64_t> misjudged;  // words outside of their bounds
  std::atomic<std::uint64_t> repairs;    // of updates that somebody was killed in
  std::atomic<std::uint64_t> errors;     // operations that failed for no good reason
  std::atomic<std::uint64_t> given_up;   // acquisitions, after a short time
  // How releases with a write ended.
  std::atomic<std::uint64_t> done;
  std::atomic<std::uint64_t> certainly_not;
  std::atomic<std::uint64_t> not_known;
  Station stations[kStationsMax];

  std::uint64_t acknowledged(std::uint32_t memory, std::uint64_t lock) const {
    return sum([&](const Station& station) { return station.acknowledged[memory][lock].load(); });
  }
  std::uint64_t evictions() const {
    return sum([](const Station& station) { return station.evictions.load(); });
  }
  std::uint64_t closes() const {
    return sum([](const Station& station) { return station.closes.load(); });
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

 private:
  template <class Of>
  std::uint64_t sum(Of of) const {
    std::uint64_t sum = 0;
    for (const Station& station : stations) sum += of(station);
    return sum;
  }
};

// Where lock number i and what it protects lie: an object of which two words are used, and a word for each client.
inline constexpr std::uint64_t kStride = 256;
inline constexpr std::uint64_t kObjects = kStride * kLocks;
inline constexpr std::uint64_t kTallies = kObjects + 64 * kLocks;
inline constexpr std::uint64_t kTallyWords = kStationsTallied * kClients;
inline constexpr std::uint64_t kWhichMemory = kTallies + 8 * kTallyWords * kLocks;  // 1 + its number
inline constexpr std::uint64_t kHeldLock =
    kWhichMemory + 64;  // for those who do nothing but hold and wait
// Locks that protect nothing: more than a process remembers while it does not use them.
inline constexpr std::uint64_t kWideLocks = 3000;
inline constexpr std::uint64_t kWide = kHeldLock + kStride;
inline constexpr std::uint64_t kBytes = kWide + kStride * kWideLocks;

}  // namespace declock::process
