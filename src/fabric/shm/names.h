// Memory of a cluster in shared memory by name: who asks for a name first makes it, whoever asks later finds it.
//
// Without a daemon, and without a lock: an entry is written where nobody sees it, and then named by one swap, so whoever is
// killed at any step leaves nothing but some unused memory behind. Nothing is ever given back.
//
//   in the first page of the memory's file:   how much is allocated | where the index begins
//   index      words, each 0 or where an entry is; a name is at the first free place from its hash on
//   entry      bytes, length of the name, length of the use, their letters; then the memory itself
#pragma once

#include <cstdint>
#include <string>

#include "layout/ids.h"
#include "shm/cluster.h"

namespace declock::shm {

struct Named {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::string use;
};

// An error says what is wrong, and what to do. REQUIRES: bytes is a multiple of 8, and not 0.
Result<Named, std::string> find_or_make(const Cluster& cluster, MnId mn, const std::string& name,
                                        std::uint64_t bytes, const std::string& use);
Result<Named, std::string> find(const Cluster& cluster, MnId mn, const std::string& name);

}  // namespace declock::shm
