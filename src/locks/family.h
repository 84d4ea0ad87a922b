// All locks by their names: one family per run, and of it a client for every coroutine that locks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cql/cql.h"
#include "hier/hier.h"
#include "lock/lock.h"

namespace declock::locks {

const std::vector<std::string>& lock_names();
// A bound for the others: it exists in the simulator alone.
bool costs_nothing(std::string_view lock);

struct FamilyConfig {
  std::string lock;
  std::uint32_t cns = 1;
  std::uint32_t clients = 1;  // per CN
  std::uint32_t workers = 1;  // per CN
  std::uint32_t slots = 0;    // 0: one per member
  cql::ReleaseRead release_read = cql::ReleaseRead::adaptive;
  Duration slack = microseconds(200);  // of declock-slack
  std::uint32_t bound = 4;             // of declock-local-bound
  std::uint32_t gate = 64;             // of declock-token
  hier::HandOverObserver* hand_overs = nullptr;
  // DecLock: where compute nodes can fail, lets each join when it starts. Otherwise nobody ever does.
  std::function<std::vector<hier::Station>(std::uint32_t cn, std::span<Endpoint* const>)> join{};
  Duration patience = cql::Options{}.patience;  // of DecLock, with failures
  cql::Rules rules{};                           // of DecLock
};

// Where a client runs.
struct Seat {
  std::uint32_t cn;
  std::uint32_t worker;  // on that CN
  Endpoint& endpoint;
  std::span<Endpoint* const> endpoints;  // of the CN's workers, if its clients share them
};

class LockFamily {
 public:
  virtual ~LockFamily() = default;
  // Bytes from one lock's words to the next.
  virtual std::uint64_t stride() const = 0;
  virtual std::unique_ptr<LockClient> client(const Seat& seat) = 0;
  // True: the clients of a worker share an endpoint. False: each has its own.
  virtual bool endpoint_per_worker() const { return false; }
  // Largest size of a CN's table of local locks.
  virtual std::size_t local_table_bytes_max() const { return 0; }
  // Starts what goes on beside the clients. It may use two words at this address.
  virtual void start(RemoteAddr) {}
  // The CNs' synchronised clocks, once they are; empty if there are none.
  virtual std::vector<Time> clocks() const { return {}; }
  // What was mended so far.
  virtual cql::ResetCounts resets() const { return {}; }
  // What mends the locks of a compute node; null: each of its clients does, or nobody.
  virtual MendingLockClient* mending(std::uint32_t /*cn*/) { return nullptr; }
  // The compute node dies. REQUIRES: its clients are gone.
  virtual void kill(std::uint32_t) {}
  // Forgets everything, where that can be done. REQUIRES: all that its clients did is gone.
  virtual bool restart() { return false; }
  // Releases, and acquisitions for waiting clients, that go on behind the clients' backs.
  virtual std::size_t running() const { return 0; }
};

// REQUIRES: members_of(config) is within HeaderLayout::kMembersMax, and slots are enough for them.
std::unique_ptr<LockFamily> make_family(const FamilyConfig& config);

// How many may be in a lock's queue; 0 for a lock that has none.
std::uint32_t members_of(const FamilyConfig& config);

}  // namespace declock::locks
