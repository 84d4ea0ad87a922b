// The membership of this process in a cluster: joins, holds the lanes, and runs the calls of threads on them.
//
// A call runs on the caller's own thread, as a worker that no other thread runs at the moment: no hop between threads. If all
// are taken it is left to whoever runs one of them, and the caller sleeps meanwhile. What is not finished when a
// thread leaves, such as a release that nobody waits for, the node's dispatcher finishes.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <vector>

#include "client/lane.h"
#include "client/near_lock.h"
#include "client/uri.h"
#include "declock/cluster.h"

namespace declock::metrics {
class Exporter;
}

namespace declock::client {

// Whether a process can use a cluster that it has opened: one word, which every call looks at.
enum class Standing : std::uint8_t {
  open,
  evicted,  // it has found out by itself that it is no member any more
  closed,
  forked,  // this is a child of the process that opened it
};

class Core {
 public:
  // `looks_only`: it takes no locks, so any kind of them is right.
  static Result<std::shared_ptr<Core>, Error> open(std::string_view uri, const Options& options,
                                                   bool looks_only = false);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  Result<void, Error> close();
  // Nothing of it may be touched any more.
  bool is_closed() const {
    const Standing standing = standing_.load();
    return standing == Standing::closed || standing == Standing::forked;
  }
  // Its locks are gone with all that was known of them. In a forked child that is still there, as it was.
  bool was_closed_here() const { return standing_.load() == Standing::closed; }
  // Why calls are refused, for a person. REQUIRES: standing() is not ok.
  Error not_open() const;
  // For an exception: who throws it, and what is not obvious from its code.
  std::string explained(const char* who) const;

  std::uint64_t lock_bytes() const { return lock_shape_.bytes(); }
  bool is_tracing() const { return trace_ != nullptr; }

  // Memory by name; locks of a table are counted under its number.
  Result<LockRef, Error> named_lock(const std::string& name, MnId mn);
  Result<LockTable, Error> lock_table(const std::string& name, std::uint64_t count, MnId mn);
  Result<RemoteAddr, Error> allocate(const std::string& name, std::uint64_t bytes, MnId mn);
  // Without making it: "orders/42", "orders[17]", "mn0+0x1000".
  Result<LockRef, Error> find_lock(const std::string& text);
  // The same, the other way round.
  std::string label(RemoteAddr lock);
  // Other locks lie there now.
  void forget_names(MnId mn);

  // From any thread. Errc::closed, Errc::invalid_argument, and what the lock says.
  Result<Held> acquire(const Wanted& wanted);
  Result<void> release(const LockRef& lock, const Held& held, Lane::Write write);
  void release_behind(const LockRef& lock, const Held& held) noexcept;
  // Null: its words are not in this process's memory, or it is to be traced, or a token goes with it. To be forgotten in the end.
  std::unique_ptr<NearLock> near(const LockRef& lock);
  void forget(NearLock& near);
  // For a thread that has entered the queue of a lock itself, as the one who asks here; and one that has released a lock, and
  // owes it to others.
  Result<Hold> go_on(hier::LocalWaiter& me, const Result<cql::CqlLock::Place>& entered);
  void hand_over_behind(const Hold& hold, const cql::Owing& owing);
  Result<void> read(RemoteAddr from, std::span<std::uint64_t> words);
  Result<void> write(RemoteAddr to, std::span<const std::uint64_t> words);
  Result<Token> token(const Hold& hold);

  // Ok, or why no call can be carried out. Relaxed: who is told later finds out with its next call.
  Errc standing() const {
    const Standing standing = standing_.load(std::memory_order_relaxed);
    if (standing == Standing::open) return Errc::ok;
    return standing == Standing::evicted ? Errc::evicted : Errc::closed;
  }
  // Nobody waited for this release.
  void release_failed(const LockRef& lock, Errc error);
  Errc check(RemoteAddr addr, std::uint64_t words) const;
  // The newest incarnation of a memory node that this process knows of, or means.
  std::uint32_t newest(MnId mn) const { return std::max(node_->meant(mn), node_->heard_of(mn)); }
  std::uint32_t meant(MnId mn) const { return node_->meant(mn); }
  // The incarnation of its memory node that an address is meant for.
  std::uint32_t incarnation_of(RemoteAddr addr) const {
    if (addr.mn_incarnation != 0) return addr.mn_incarnation;
    return addr.mn.value < first_incarnations_.size() ? first_incarnations_[addr.mn.value].load() : 0;
  }
  // A memory node that came after the cluster was opened, as a worker knows it.
  void meet(MnId mn, std::uint32_t incarnation);
  // Is its memory node still that one, as far as anybody here knows?
  bool is_current(RemoteAddr addr) const { return node_->meant(addr.mn) == incarnation_of(addr); }
  Errc check(const LockRef& lock) const { return check(lock.at, lock_bytes() / 8); }

  // Null: none is left.
  Lane* take_lane();

  bool evicted() const;
  Stats stats();
  Result<std::vector<Report>, Error> reports();
  Result<std::uint16_t, Error> serve_metrics(const std::string& host_port);

 private:
  Core(Target target, std::unique_ptr<member::Node> node);
  Result<void, Error> start();

  struct Table {
    std::string name;
    LockTable locks;
  };

  // step(lane) until it is true, on this thread. False: every worker is run by somebody.
  template <class Step>
  bool try_here(Step step);
  // What make(lane) gives, Task<T>.
  template <class Make>
  auto run(Make make) -> decltype(make(std::declval<Lane&>()).take());
  template <class Begin>
  void begin(Begin begin);
  Lane& lane_of_this_thread();

  static Task<void> keep_reporting(Lane& lane, Core& core);
  void start_duties(bool again);
  void count_near();
  Result<void, Error> agree(MnId mn, std::uint32_t incarnation);
  Result<void, Error> mean_only(const member::Node::Memory& memory);
  void look_at_view();
  void fill_report();
  bool is_member(Slot slot, std::uint64_t incarnation);
  struct Drained {
    bool all_released = true;
    bool no_place_left = true;  // in the queue of a lock that nobody here wants any more
  };
  Drained drain();
  bool any_lane_evicted() const;

  // fn(recorder), for everybody who counts.
  template <class Fn>
  void for_each_recorder(Fn fn) const {
    for (const auto& lane : lanes_) fn(lane->recorder);
    fn(near_->recorder);
  }

  Target target_;
  std::unique_ptr<member::Node> node_;
  const LockShape lock_shape_;
  std::unique_ptr<hier::Node> locks_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<Standing> standing_{Standing::open};
  std::atomic<bool> was_evicted_{false};  // when it was closed
  std::optional<NearLocks> near_;
  std::unique_ptr<TraceLog> trace_;
  std::mutex metrics_mutex_;
  std::unique_ptr<metrics::Exporter> metrics_;
  // Of the view that lane 0 knew lately.
  Tally view_;
  Tally members_;
  Tally removals_;

  std::mutex mutex_;  // of what follows
  std::vector<NearLock*> near_locks_;
  std::vector<Table> tables_;                   // by number
  std::map<std::uint64_t, std::string> names_;  // of locks, by packed address
  std::optional<Error> first_release_error_;
  std::mutex restart_mutex_;  // one at a time finds out that a memory node has restarted
  // Of each memory node: where the kind of locks was agreed on, under restart_mutex_;
  std::array<std::uint32_t, Lane::kMns> agreed_{};
  // and when this process first heard of it.
  std::array<std::atomic<std::uint32_t>, Lane::kMns> first_incarnations_{};

  // Of lane 0:
  std::optional<TaskGroup> duties_;  // as long as the cluster is open
  std::optional<member::Node::Memory> board_;
  Report report_;
};

}  // namespace declock::client
