#include "bench/board.h"

namespace declock::bench {

bool Board::entered(std::uint32_t client, std::uint64_t lock, Mode mode) {
  lines_[client].has.store(request(lock, mode));
  lines_[client].wants.store(0);
  const std::uint32_t before = holders_[lock].fetch_add(mode == Mode::exclusive ? kWriter : kReader);
  const bool alone = mode == Mode::exclusive ? before == 0 : before < kWriter;
  // What was held by a process that was killed stays in the count: then the lines decide.
  return alone || !holds_against(client, request(lock, mode));
}

std::optional<Time> Board::handed_over(std::uint32_t client, std::uint64_t lock) const {
  const std::int64_t left_ns = left_ns_[lock].load();
  if (left_ns <= lines_[client].since_ns.load()) return {};
  return Time{left_ns};
}

void Board::leaves(std::uint32_t client, Time now) {
  const std::uint64_t had = lines_[client].has.load();
  left_ns_[(had >> 1) - 1].store(now.ns);
  holders_[(had >> 1) - 1].fetch_sub(mode_of(had) == Mode::exclusive ? kWriter : kReader);
  lines_[client].has.store(0);
}

bool Board::holds_against(std::uint32_t client, std::uint64_t mine) const {
  bool anybody_dying = false;
  for (std::uint32_t i = 0; i < clients_; ++i) {
    anybody_dying = anybody_dying || lines_[i].dying.load();
    const std::uint64_t other = lines_[i].has.load();
    if (i == client || other >> 1 != mine >> 1 || lines_[i].dying.load()) continue;
    if (conflict(mode_of(other), mode_of(mine))) return true;
  }
  return !anybody_dying;  // whoever it was has left meanwhile
}

std::uint64_t Board::overtakes(std::uint32_t client) const {
  const std::uint64_t mine = lines_[client].wants.load();
  const std::int64_t since_ns = lines_[client].since_ns.load();
  std::uint64_t count = 0;
  for (std::uint32_t i = 0; i < clients_; ++i) {
    const std::uint64_t other = lines_[i].wants.load();
    if (i == client || other >> 1 != mine >> 1 || !conflict(mode_of(other), mode_of(mine))) continue;
    if (lines_[i].since_ns.load() < since_ns && !lines_[i].dying.load()) count += 1;
  }
  return count;
}

}  // namespace declock::bench
