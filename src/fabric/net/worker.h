// A worker whose endpoints are on a network: it sleeps until its transport has something, or somebody rings.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "net/port.h"
#include "runtime/thread_worker.h"

namespace declock::net {

class NetWorker final : public ThreadWorker {
 public:
  // `on_away`: see ThreadWorker; from any thread.
  NetWorker(Prng random, std::function<void(Time)> on_away);
  ~NetWorker() override;

  // False: there was no descriptor left for it.
  bool is_open() const { return rung_ >= 0; }
  void set_port(Port* port) { port_ = port; }
  // From any thread: runs this on the worker's own, soon, and in the order in which they come.
  void post(std::function<void()> job);
  bool anything_unsaid() const override { return port_ != nullptr && port_->anything_unsaid(); }
  // Nobody runs it: whoever watches over it waits for its transport instead.
  bool is_away() const { return word_.load() == static_cast<std::uint32_t>(Bell::away); }

 private:
  bool poll() override;
  bool anything_arrived() const override;
  Time look_again() const override;
  void on_away(Time when) override { on_away_(when); }
  void sleep(Time until) override;
  bool ring_bell() override;
  std::uint32_t looks_max() const override { return 24; }  // each is a system call

  BellWord word_{static_cast<std::uint32_t>(Bell::away)};
  int rung_ = -1;  // an event descriptor
  std::function<void(Time)> on_away_;
  Port* port_ = nullptr;
  mutable std::mutex jobs_mutex_;
  std::vector<std::function<void()>> jobs_;
  std::atomic<bool> any_jobs_{false};
};

}  // namespace declock::net
