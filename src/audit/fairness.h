// Watches in which order requests are served, per lock. Two orders: by the time at which the client
// called, and by the fetch-and-add that put the request into the queue, where the lock has one.
//
// An overtake: at a grant, a conflicting request for the same lock that is still waiting although it
// was there earlier.
#pragma once

#include <cstdint>
#include <vector>

#include "layout/ids.h"

namespace declock::audit {

class Fairness {
 public:
  // A client waits for at most one lock at a time.
  Fairness(std::size_t locks, std::size_t clients) : first_(locks, kNobody), requests_(clients) {}

  void called(std::size_t lock, std::uint32_t client, Mode mode);
  void enqueued(std::uint32_t client);

  struct Overtakes {
    std::uint64_t by_call = 0;
    std::uint64_t by_queue = 0;
  };
  // The client no longer wants the lock it called for.
  void gave_up(std::uint32_t client) { (void)granted(client); }
  // The client was granted the lock it called for.
  Overtakes granted(std::uint32_t client);

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  struct Request {
    std::uint32_t next = kNobody;  // the waiting requests of a lock form a list
    Mode mode = Mode::shared;
    std::size_t lock = 0;
    std::uint64_t call_order = 0;
    std::uint64_t queue_order = 0;  // 0: not in the queue
  };
  std::vector<std::uint32_t> first_;  // by lock
  std::vector<Request> requests_;     // by client
  std::uint64_t clock_ = 0;
};

}  // namespace declock::audit
