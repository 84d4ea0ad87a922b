// The files of a benchmark's cluster lose their names as soon as every process has them open, or on the way out: nothing
// is left behind, however it ends.
#pragma once

#include <unistd.h>

#include "shm/cluster.h"

namespace declock::bench {

class TemporaryNames {
 public:
  explicit TemporaryNames(const shm::ClusterConfig& config) : config_(config) {}
  TemporaryNames(const TemporaryNames&) = delete;
  TemporaryNames& operator=(const TemporaryNames&) = delete;
  ~TemporaryNames() { remove(); }

  void remove() const {
    for (std::uint32_t mn = 0; mn < config_.mns; ++mn) {
      unlink(shm::memory_path_of(config_.directory, config_.name, mn).c_str());
    }
    unlink(shm::path_of(config_.directory, config_.name).c_str());
  }

 private:
  shm::ClusterConfig config_;
};

}  // namespace declock::bench
