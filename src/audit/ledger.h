// Watches a cluster in which things fail. It knows nothing of the protocol: it is told who enters and leaves, what
// the counters in memory say, the tokens, and the fences.
//
// Each lock protects a plain counter. An exclusive section reads it and writes it plus one. A section that ends
// well has its update acknowledged; one that fails in the middle leaves it open whether the update is there.
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
  // An exclusive holder has read the counter, or is about to write it.
  void read(std::size_t lock, std::uint64_t who, std::uint64_t counter);
  void writes(std::size_t lock, std::uint64_t who);
  void acknowledged(std::size_t lock, std::uint32_t mn_incarnation);
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
    std::uint64_t acknowledged = 0;
    std::uint64_t open = 0;  // updates that may or may not be there
    std::optional<Token> last;
  };
  bool holds(const Lock& lock, std::uint64_t who) const;
  void report(std::string text);

  std::vector<Lock> locks_;
  std::vector<std::uint64_t> fenced_;  // nodes
  std::optional<std::string> violation_;
  std::uint64_t sections_ = 0;
};

}  // namespace declock::audit
