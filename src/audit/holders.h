// Watches who holds which lock. It knows nothing of any protocol: it is told who entered and who left.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/ids.h"

namespace declock::audit {

class Holders {
 public:
  explicit Holders(std::size_t locks) : states_(locks) {}

  // A client starts to use the lock. False: somebody holds it against that.
  bool enter(std::size_t lock, Mode mode) {
    State& state = states_[lock];
    const bool alone = state.readers == 0 && state.writers == 0;
    const bool fine = mode == Mode::exclusive ? alone : state.writers == 0;
    (mode == Mode::exclusive ? state.writers : state.readers) += 1;
    violations_ += fine ? 0 : 1;
    return fine;
  }

  void leave(std::size_t lock, Mode mode) {
    State& state = states_[lock];
    (mode == Mode::exclusive ? state.writers : state.readers) -= 1;
  }

  std::uint64_t violations() const { return violations_; }

 private:
  struct State {
    std::uint16_t readers = 0;
    std::uint16_t writers = 0;
  };
  std::vector<State> states_;
  std::uint64_t violations_ = 0;
};

}  // namespace declock::audit
