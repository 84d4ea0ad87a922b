// A compute node that is a real process: its workers, what each of them knows of the cluster, and their endpoints.
//
//   join -> (locks are built on the endpoints) -> start -> ... -> stop -> (locks are taken down) -> leave
#pragma once

#include "member/membership.h"
#include "runtime/thread_worker.h"

namespace declock::member {

class Node {
 public:
  virtual ~Node() = default;

  // From start() on others get answers, also while the workers' own threads are busy elsewhere.
  virtual void start() = 0;
  virtual void stop() = 0;
  // REQUIRES: stopped, and nothing is held, waited for or under way.
  virtual void leave() = 0;

  virtual const Member& self() const = 0;
  virtual ThreadWorker& worker(std::uint32_t i) = 0;
  virtual Membership& membership(std::uint32_t worker) = 0;
  virtual Endpoint& endpoint(std::uint32_t i) = 0;
};

}  // namespace declock::member
