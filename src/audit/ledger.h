// Watches a cluster in which things fail. It knows nothing of the protocol: it is told who enters and leaves, what
// the counters in memory say, the tokens, and the fences.
//
// Each lock protects a plain counter. An exclusive section reads it and writes it plus one. How that ended has three
// answers: done, and it must be there; certainly not done, and it must not; not known, and it may be, until the next
// holder has read the counter. Of the first two the ledger is told, before or after somebody has read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lock/lock.h"

namespace declock::audit {

class Ledger {
 public:
  explicit Ledger(std::size_t locks) : locks_(locks) {}

  // `who` names a client of one incarnation of a compute node, `node` that incarnation.
  void enter(std::size_t lock, std::uint64_t who, std::uint64_t node, Mode mode,
             std::uint32_t mn_incarnation);
  void leave(std::size_t lock, std::uint64_t who);
  // A holder has read the counter.
  void read(std::size_t lock, std::uint64_t who, std::uint64_t counter);
  // An exclusive holder is about to write it.
  enum class Update : std::uint64_t { void_hold = 0 };  // that one can have no effect
  Update writes(std::size_t lock, std::uint64_t who);
  void done(std::size_t lock, Update update);
  void certainly_not_done(std::size_t lock, Update update);
  void token(std::size_t lock, std::uint64_t who, const Token& token);

  // Nothing that this node does takes effect any more: what it held it has lost.
  void fenced(std::uint64_t node);
  // The memory of a lock is gone, and so is whatever anybody had of it.
  void lost(std::size_t lock, std::uint32_t mn_incarnation);
  // All is quiet: the counters say this.
  void check(std::size_t lock, std::uint64_t counter);

  const std::optional<std::string>& violation() const { return violation_; }
  std::uint64_t sections() const { return sections_; }

 private:
  struct Holder {
    std::uint64_t who;
    std::uint64_t node;
    Mode mode;
  };
  struct Lock {
    std::vector<Holder> holders;
    std::uint32_t mn_incarnation = 1;
    std::uint64_t there = 0;    // updates that are in the memory
    std::vector<Update> open;   // and those that may be
    std::vector<Update> found;  // by reading, before their clients knew
    std::vector<Update> missed;
    std::optional<Token> last;
  };
  bool holds(const Lock& lock, std::uint64_t who) const;
  void report(std::string text);

  std::vector<Lock> locks_;
  std::vector<std::uint64_t> fenced_;  // nodes
  std::optional<std::string> violation_;
  std::uint64_t sections_ = 0;
  std::uint64_t updates_ = 0;
};

}  // namespace declock::audit
