#include "audit/ledger.h"

#include <fmt/format.h>

#include <algorithm>

namespace declock::audit {

void Ledger::report(std::string text) {
  if (!violation_) violation_ = std::move(text);
}

bool Ledger::holds(const Lock& lock, std::uint64_t who) const {
  return std::any_of(lock.holders.begin(), lock.holders.end(),
                     [&](const Holder& h) { return h.who == who; });
}

void Ledger::enter(std::size_t number, std::uint64_t who, std::uint64_t node, Mode mode,
                   std::uint32_t mn_incarnation) {
  Lock& lock = locks_[number];
  // Void from the start: nothing that is done under it can take effect.
  if (mn_incarnation != lock.mn_incarnation) return;
  if (std::find(fenced_.begin(), fenced_.end(), node) != fenced_.end()) return;
  sections_ += 1;
  for (const Holder& other : lock.holders) {
    if (!conflict(mode, other.mode)) continue;
    report(fmt::format("lock {}: client {} enters {} while client {} holds it {}", number, who,
                       mode == Mode::exclusive ? "exclusively" : "shared", other.who,
                       other.mode == Mode::exclusive ? "exclusively" : "shared"));
  }
  lock.holders.push_back({who, node, mode});
}

void Ledger::leave(std::size_t number, std::uint64_t who) {
  std::erase_if(locks_[number].holders, [&](const Holder& h) { return h.who == who; });
}

void Ledger::read(std::size_t number, std::uint64_t who, std::uint64_t counter) {
  const Lock& lock = locks_[number];
  if (holds(lock, who)) check(number, counter);
}

void Ledger::check(std::size_t number, std::uint64_t counter) {
  const Lock& lock = locks_[number];
  if (counter >= lock.acknowledged && counter <= lock.acknowledged + lock.open) return;
  report(fmt::format(
      "lock {}: the counter says {}, but {} updates were acknowledged, and {} more may be there",
      number, counter, lock.acknowledged, lock.open));
}

void Ledger::writes(std::size_t number, std::uint64_t who) {
  if (holds(locks_[number], who)) locks_[number].open += 1;
}

void Ledger::acknowledged(std::size_t number, std::uint32_t mn_incarnation) {
  Lock& lock = locks_[number];
  if (mn_incarnation != lock.mn_incarnation) return;
  lock.acknowledged += 1;
  lock.open -= lock.open > 0 ? 1 : 0;
}

void Ledger::token(std::size_t number, std::uint64_t who, const Token& token) {
  Lock& lock = locks_[number];
  if (!holds(lock, who)) return;
  if (lock.last && !(*lock.last < token)) {
    report(fmt::format("lock {}: the token of client {} is not larger than the last one", number, who));
  }
  lock.last = token;
}

void Ledger::fenced(std::uint64_t node) {
  fenced_.push_back(node);
  for (Lock& lock : locks_) {
    std::erase_if(lock.holders, [&](const Holder& h) { return h.node == node; });
  }
}

void Ledger::lost(std::size_t number, std::uint32_t mn_incarnation) {
  Lock& lock = locks_[number];
  lock.holders.clear();
  lock.mn_incarnation = mn_incarnation;
  lock.acknowledged = 0;
  lock.open = 0;
}

}  // namespace declock::audit
