// A lane: one worker of this process with all that is needed to use locks on it. Calls of threads share the lanes that no
// Client has; a Client has one of its own.
//
// Everything here happens on the thread that runs the worker.
#pragma once

#include <array>
#include <atomic>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "client/recorder.h"
#include "declock/client.h"
#include "hier/hier.h"
#include "member/node.h"
#include "runtime/task_group.h"

namespace declock::client {

class Core;

// How a lock is wanted.
struct Wanted {
  enum class Patience : std::uint8_t { none, until, forever };
  LockRef lock{};
  Mode mode = Mode::exclusive;
  Patience patience = Patience::forever;
  Time deadline{};
  std::stop_token stop{};
  // To be read along.
  RemoteAddr from{};
  std::span<std::uint64_t> words{};
};

struct Lane {
  Lane(Core& core_of, std::uint32_t n, member::Node& node, hier::HierWorker& lock_worker)
      : core(core_of),
        number(n),
        worker(node.worker(n)),
        endpoint(node.endpoint(n)),
        membership(node.membership(n)),
        locks(lock_worker),
        behind(worker.frames()),
        spawned(worker.frames()) {}

  static constexpr std::uint16_t kMns = 64;

  FramePool& frames() { return worker.frames(); }

  // `client` stays as long as this takes.
  static Task<Result<Held>> acquire(Lane& lane, Wanted wanted, hier::HierLock& client);

  // What is to be written before the lock is released.
  struct Write {
    RemoteAddr to{};
    std::span<const std::uint64_t> words{};
  };
  static Task<Result<void>> release(Lane& lane, LockRef lock, Held held, Write write);
  // Nobody waits for it: an error goes to Core::release_failed().
  void release_behind(const LockRef& lock, const Held& held) {
    behind.spawn(release_alone(*this, lock, held));
  }

  // Ends a release that a thread has begun without a worker.
  static Task<void> hand_over(Lane& lane, Hold hold, cql::Owing owing);

  // `under`: the hold that protects the memory, if there is one.
  static Task<Result<void>> read(Lane& lane, RemoteAddr from, std::span<std::uint64_t> words,
                                 std::optional<Hold> under);
  static Task<Result<void>> write(Lane& lane, RemoteAddr to, std::span<const std::uint64_t> words,
                                  std::optional<Hold> under);
  static Task<Result<Token>> token(Lane& lane, Hold hold);

  // Of a client: its coroutines go on inside its run(), and nowhere else.
  struct Inside {
    Lane& lane;
    bool await_ready() const { return lane.is_inside_run; }
    void await_suspend(std::coroutine_handle<> me) const { lane.ready.push_back(me); }
    void await_resume() const {}
  };
  Inside inside() { return {*this}; }

  // The incarnation of its memory node that an address is meant for; 0: not known yet.
  std::uint32_t incarnation_of(RemoteAddr addr);
  // Others of this process have heard that a memory node has restarted, and this worker has not.
  bool is_behind(MnId mn) const;
  // Acquisitions on a memory node that are under way. From any thread.
  std::uint32_t waiting_on(MnId mn) const { return waiting_[mn.value].load(); }

  Core& core;
  const std::uint32_t number;
  ThreadWorker& worker;
  Endpoint& endpoint;
  member::Membership& membership;
  hier::HierWorker& locks;
  TaskGroup
      behind;  // releases that nobody waits for, and calls of threads that found every worker taken
  Recorder recorder;

  std::atomic<bool> is_of_client{false};
  std::atomic<bool> has_caller{false};  // a thread runs it for a call, and may wait there
  bool is_inside_run = false;
  std::uint32_t operations = 0;                // of the client that are under way
  std::vector<std::coroutine_handle<>> ready;  // done, and to go on inside run()
  std::vector<Task<void>> fresh;               // spawned, and not begun
  TaskGroup spawned;
  std::exception_ptr thrown;  // by one of these

 private:
  std::array<std::atomic<std::uint32_t>, kMns> waiting_{};  // by memory node

  // The one that an operation on `addr` is meant for. mn_restarted: the hold is void, or does not protect this memory.
  Result<std::uint32_t> incarnation_under(const std::optional<Hold>& hold, RemoteAddr addr);
  static Task<void> release_alone(Lane& lane, LockRef lock, Held held);
  static Task<Result<Hold>> wait(Lane& lane, const Wanted& wanted, hier::HierLock& client);
};

// Runs fn on the worker's thread, soon; from any thread.
void run_on(ThreadWorker& worker, std::function<void()> fn);

}  // namespace declock::client
