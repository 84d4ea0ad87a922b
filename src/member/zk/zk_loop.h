// The thread on which a link waits for ZooKeeper, so that neither the hub's loop nor a thread of ZooKeeper's has to.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "member_zk/zk_session.h"
#include "wire/hub.h"

namespace declock::member {

class ZkLoop {
 public:
  // Does what there is to do, from the beginning each time: nothing depends on which event was the reason, or on whether
  // an event was lost. Returns after how long it is to be called again at the latest.
  using Look = std::function<Duration()>;

  // After a conflict, or when something became known that changes the plan.
  static constexpr Duration kAgain = milliseconds(5);
  // For somebody else to do something that no event tells of.
  static constexpr Duration kPause = milliseconds(100);

  ZkLoop(wire::Hub& hub, const ZkAddress& at, const wire::Secret& secret, Look look);
  // Nothing is told any more. REQUIRES: called from the hub's loop, or when that has ended.
  ~ZkLoop();

  // From any thread.
  void wake();
  // From within look():
  ZkSession& session() { return session_; }
  void tell(std::function<void()> event);  // in the hub's loop, in this order

 private:
  void run();

  wire::Hub& hub_;
  Look look_;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // of the hub's loop
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_woken_ = true;
  bool is_stopping_ = false;
  ZkSession session_;
  std::thread thread_;
};

}  // namespace declock::member
