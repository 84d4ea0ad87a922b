// What the processes of a benchmark show each other: where each client stands, so that any of them can check at a
// grant who else holds the lock and who has waited longer. In memory that they share beside the fabric.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "bench/processes.h"
#include "layout/ids.h"

namespace declock::bench {

class Board {
 public:
  // A client's place on the board; nobody else writes there.
  struct alignas(64) Line {
    std::atomic<std::uint64_t> wants;  // a lock and a mode; 0: none
    std::atomic<std::int64_t> since_ns;
    std::atomic<std::uint64_t> has;
    std::atomic<std::uint64_t> updates;  // acknowledged
    std::atomic<std::uint32_t> error;    // an Errc
    std::atomic<bool> done;
    std::atomic<bool> dying;  // about to be killed; what it holds counts no more
  };

  static std::size_t bytes(std::uint64_t locks, std::uint32_t clients) {
    return (clients + std::size_t{1}) * sizeof(Line) + locks * 12 + 128;
  }
  Board(SharedBytes& memory, std::uint64_t locks, std::uint32_t clients)
      : clients_(clients),
        lines_(memory.take<Line>(clients)),
        left_ns_(memory.take<std::atomic<std::int64_t>>(locks)),
        holders_(memory.take<Count>(locks)) {}

  Line& line(std::uint32_t client) { return lines_[client]; }

  void called(std::uint32_t client, std::uint64_t lock, Mode mode, Time now) {
    lines_[client].since_ns.store(now.ns, std::memory_order_relaxed);  // ordered by the next
    lines_[client].wants.store(request(lock, mode));
  }

  // False: somebody holds the lock against that.
  bool entered(std::uint32_t client, std::uint64_t lock, Mode mode);
  void leaves(std::uint32_t client, Time now);
  // When a holder of the lock last left it, if this client has waited since before that: it was handed over then, or
  // left to be found. To be asked before entered().
  std::optional<Time> handed_over(std::uint32_t client, std::uint64_t lock) const;

  // Conflicting requests for the same lock that wait although they called earlier. To be asked before entered().
  std::uint64_t overtakes(std::uint32_t client) const;

 private:
  using Count = std::atomic<std::uint32_t>;  // holders of a lock: readers below, writers above
  static constexpr std::uint32_t kReader = 1;
  static constexpr std::uint32_t kWriter = 1 << 16;

  static constexpr std::uint64_t request(std::uint64_t lock, Mode mode) {
    return (lock + 1) << 1 | (mode == Mode::exclusive ? 1 : 0);
  }
  static constexpr Mode mode_of(std::uint64_t request) {
    return (request & 1) != 0 ? Mode::exclusive : Mode::shared;
  }
  bool holds_against(std::uint32_t client, std::uint64_t mine) const;

  std::uint32_t clients_;
  Line* lines_;
  std::atomic<std::int64_t>* left_ns_;  // by lock
  Count* holders_;
};

}  // namespace declock::bench
