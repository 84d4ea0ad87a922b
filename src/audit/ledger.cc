#include "audit/ledger.h"

#include <fmt/format.h>

#include <algorithm>

namespace declock::audit {

void Ledger::report(std::string text) {
  if (!violation_) violation_ = std::move(text);
}

namespace {

bool has(const std::vector<Ledger::Update>& updates, Ledger::Update update) {
  return std::find(updates.begin(), updates.end(), update) != updates.end();
}

}  // namespace

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
  Lock& lock = locks_[number];
  if (!holds(lock, who)) return;
  check(number, counter);
  // Nobody else writes while somebody holds the lock, so what was open is settled. Of one it is clear which way; of several,
  // whose holders were fenced, it is only if all went the same way.
  if (counter == lock.there + lock.open.size()) {
    lock.found.insert(lock.found.end(), lock.open.begin(), lock.open.end());
  } else if (counter == lock.there) {
    lock.missed.insert(lock.missed.end(), lock.open.begin(), lock.open.end());
  }
  lock.there = counter;
  lock.open.clear();
}

void Ledger::check(std::size_t number, std::uint64_t counter) {
  const Lock& lock = locks_[number];
  if (counter >= lock.there && counter <= lock.there + lock.open.size()) return;
  report(fmt::format("lock {}: the counter says {}, but {} updates are done, and {} more may be there",
                     number, counter, lock.there, lock.open.size()));
}

Ledger::Update Ledger::writes(std::size_t number, std::uint64_t who) {
  if (!holds(locks_[number], who)) return Update::void_hold;
  const Update update{++updates_};
  locks_[number].open.push_back(update);
  return update;
}

void Ledger::done(std::size_t number, Update update) {
  Lock& lock = locks_[number];
  if (update == Update::void_hold)
    return report(fmt::format("lock {}: an update under a void hold is said to be done", number));
  if (has(lock.missed, update))
    report(fmt::format("lock {}: an update is said to be done, but was not there", number));
  if (std::erase(lock.open, update) > 0) lock.there += 1;
}

void Ledger::certainly_not_done(std::size_t number, Update update) {
  Lock& lock = locks_[number];
  if (has(lock.found, update))
    report(fmt::format("lock {}: an update is said to be certainly not done, but was there", number));
  std::erase(lock.open, update);
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
  lock.there = 0;
  lock.open.clear();
  lock.found.clear();
  lock.missed.clear();
}

}  // namespace declock::audit
