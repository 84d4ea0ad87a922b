// A compute node that is a real process: its workers, what each of them knows of the cluster, and their endpoints.
//
//   join -> (locks are built on the endpoints) -> start -> ... -> stop -> (locks are taken down) -> leave
#pragma once

#include <functional>
#include <string>

#include "layout/lock_shape.h"
#include "member/membership.h"
#include "runtime/thread_worker.h"

namespace declock::member {

class Node {
 public:
  virtual ~Node() = default;

  // From start() on others get answers, also while the workers' own threads are busy elsewhere.
  virtual void start() = 0;
  virtual void stop() = 0;
  // First what was sent is said: others wait for it. If that is not possible it does not leave, and is taken for dead,
  // which mends what it has left unsaid. REQUIRES: stopped, and nothing is held, waited for or under way.
  virtual void leave() = 0;

  virtual const Member& self() const = 0;
  virtual ThreadWorker& worker(std::uint32_t i) = 0;
  virtual Membership& membership(std::uint32_t worker) = 0;
  virtual Endpoint& endpoint(std::uint32_t i) = 0;

  virtual std::uint32_t workers() const = 0;
  // Can there be words of memory?
  virtual bool reaches(RemoteAddr addr, std::uint64_t words) const = 0;
  // Told once, from a thread of its own, if this process finds out by itself that it is no member any more. Set before start().
  void set_on_evicted(std::function<void()> on_evicted) { on_evicted_ = std::move(on_evicted); }
  // How many the cluster admits at a time.
  virtual std::uint32_t members() const = 0;
  LockShape lock_shape() const { return {members(), members(), QueueLayout::owner}; }

  // Names that people choose; with what says whether it is a lock's or a table's they stay below what fabrics accept.
  static constexpr std::size_t kNameBytesMax = 200;
  // Memory on a memory node, by name: made, and zeroed, if there is none. `use` says what it is for, and must be the same
  // for everybody. Waits. An error says what is wrong.
  struct Memory {
    RemoteAddr at;
    std::uint64_t bytes;
    std::uint32_t mn_incarnation;  // when the memory node restarts, other names come to lie there

    constexpr bool operator==(const Memory&) const = default;
  };
  virtual Result<Memory, std::string> allocate(MnId mn, const std::string& name, std::uint64_t bytes,
                                               const std::string& use) = 0;
  // The same for so many locks, free at first: where the first of them lies, the others lock_shape().bytes() apart.
  Result<Memory, std::string> allocate_locks(MnId mn, const std::string& name, std::uint64_t count);
  // What has that name.
  virtual Result<Memory, std::string> find(MnId mn, const std::string& name) = 0;

  // Operations that do not say so themselves are meant for this incarnation of a memory node: for another they end with
  // Errc::mn_restarted, and do no harm to what lies there now. From any thread.
  static constexpr std::uint32_t kNoIncarnation = ~std::uint32_t{0};
  virtual void mean_only(MnId, std::uint32_t /*incarnation*/) {}
  virtual std::uint32_t meant(MnId) const { return 1; }
  // The newest incarnation of a memory node that anything in this process knows of.
  virtual std::uint32_t heard_of(MnId) const { return 0; }

 protected:
  // True: everybody has, or will have, what was sent to them.
  bool say_everything(Duration patience);
  std::function<void()> on_evicted_;
};

}  // namespace declock::member
