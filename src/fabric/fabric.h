// The fabric: what a lock may ask of the network. One small contract, several implementations; the
// protocols above never know which one they run on.
//
// One-sided operations act on a memory node (MN) without its CPU. They are posted in chains: one
// doorbell, one completion.
//
//   F1  Operations of one endpoint on one MN take effect in the order in which they were posted,
//       inside a chain and from one chain to the next.
//   F2  A completion without error means that every operation of the chain took effect exactly once.
//       With Errc::outcome_unknown each of them may or may not have, or may yet, until reconnect(); none takes effect
//       twice. With any other error none has, nor will.
//   F3  fetch_add and compare_swap are atomic on an aligned 8-byte word. A read or a write of several
//       words is not: it may tear between words, never inside one (over TCP, up to 16 KiB).
//   F4  Messages between endpoints, of up to MessageWords::kMax words, are reliable and arrive whole, and in order per
//       pair, while both ends live.
//   F5  An MN can revoke a compute node's access. After that nothing that the node has sent or sends takes effect:
//       what was under way ends with Errc::outcome_unknown if it may have before, otherwise with Errc::evicted, as does
//       reconnect() and everything that is posted once the node knows.
//   F6  Every operation is counted, by kind and by purpose, when it is posted.
//
// An endpoint belongs to one worker and is used from its thread alone.
#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/tally.h"
#include "declock/result.h"
#include "declock/task.h"
#include "fabric/message.h"
#include "layout/ids.h"
#include "runtime/worker.h"

namespace declock {

enum class OpKind : std::uint8_t { read, write, fetch_add, compare_swap, masked_compare_swap };
inline constexpr std::size_t kOpKinds = 5;
std::string_view to_string(OpKind kind);

constexpr bool is_atomic(OpKind kind) {
  return kind >= OpKind::fetch_add;
}

// What an operation is for. Nothing that a lock costs can hide: every purpose is reported.
enum class Purpose : std::uint8_t { acquire, release, refetch, prefetch, reset, sync, data, verify };
inline constexpr std::size_t kPurposes = 8;
std::string_view to_string(Purpose purpose);

// One operation. The memory behind `into` and `from` belongs to the caller and must stay until the
// completion.
struct Op {
  OpKind kind;
  Purpose purpose;
  RemoteAddr addr;
  std::span<std::uint64_t> into = {};              // read
  std::span<const std::uint64_t> from = {};        // write
  std::uint64_t operand = 0;                       // fetch_add: what to add; compare_swap: the new word
  std::uint64_t expected = 0;                      // compare_swap
  std::uint64_t compare_mask = ~std::uint64_t{0};  // masked_compare_swap: the bits that are compared
  std::uint64_t swap_mask = ~std::uint64_t{0};     // and the bits that are replaced
  std::uint64_t old = 0;  // atomics: the word before; valid after the completion
  // Of an object that is read with the lock and written with its release, and in no other way while the lock is held.
  bool whole = false;
  // Of a READ along with an acquisition: it is filled in if the value comes with the lock, and is not posted otherwise.
  bool if_carried = false;
  // For this incarnation of the MN alone, if not 0: what a hold protects is gone when the MN restarts.
  std::uint32_t incarnation = 0;

  static Op read(RemoteAddr addr, std::span<std::uint64_t> into, Purpose purpose) {
    return {.kind = OpKind::read, .purpose = purpose, .addr = addr, .into = into};
  }
  static Op write(RemoteAddr addr, std::span<const std::uint64_t> from, Purpose purpose) {
    return {.kind = OpKind::write, .purpose = purpose, .addr = addr, .from = from};
  }
  static Op fetch_add(RemoteAddr addr, std::uint64_t delta, Purpose purpose) {
    return {.kind = OpKind::fetch_add, .purpose = purpose, .addr = addr, .operand = delta};
  }
  static Op compare_swap(RemoteAddr addr, std::uint64_t expected, std::uint64_t desired,
                         Purpose purpose) {
    return {.kind = OpKind::compare_swap,
            .purpose = purpose,
            .addr = addr,
            .operand = desired,
            .expected = expected};
  }
  // Optional: ask Endpoint::has_masked_compare_swap().
  static Op masked_compare_swap(RemoteAddr addr, std::uint64_t expected, std::uint64_t compare_mask,
                                std::uint64_t desired, std::uint64_t swap_mask, Purpose purpose);

  std::size_t words() const { return is_atomic(kind) ? 1 : into.size() + from.size(); }
};

struct OpCounts {
  std::array<std::array<Tally, kPurposes>, kOpKinds> by_kind_and_purpose{};
  Tally messages{};

  void add(OpKind kind, Purpose purpose, std::uint64_t n = 1) {
    by_kind_and_purpose[static_cast<std::size_t>(kind)][static_cast<std::size_t>(purpose)] += n;
  }
  std::uint64_t of(OpKind kind) const;
  std::uint64_t of(Purpose purpose) const;
  std::uint64_t of(OpKind kind, Purpose purpose) const {
    return by_kind_and_purpose[static_cast<std::size_t>(kind)][static_cast<std::size_t>(purpose)];
  }
  OpCounts& operator+=(const OpCounts& other);
  OpCounts& operator-=(const OpCounts& other);
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  // Called from the worker's run loop, never inside a coroutine.
  virtual void on_message(EndpointId from, const Message& message) = 0;
};

class Endpoint;

// A chain of operations that was posted; co_await it for the completion. If it is complete already,
// that costs no suspension.
class [[nodiscard]] Doorbell {
 public:
  static constexpr std::size_t kOpsMax = 4;

  Doorbell(Endpoint& endpoint, std::initializer_list<Op*> ops);
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;
  ~Doorbell();

  bool await_ready() const noexcept { return done_; }
  void await_suspend(std::coroutine_handle<> waiter) noexcept { waiter_ = waiter; }
  Result<void> await_resume() const {
    if (status_ != Errc::ok) return Failure{status_};
    return {};
  }

  // For fabrics.
  std::span<Op* const> ops() const { return {ops_.data(), count_}; }
  // The chain is complete: resumes whoever waits for it.
  void complete(Errc status);

 private:
  Endpoint& endpoint_;
  std::array<Op*, kOpsMax> ops_{};
  std::size_t count_ = 0;
  bool done_ = false;
  Errc status_ = Errc::ok;
  std::coroutine_handle<> waiter_;
};

class Endpoint {
 public:
  Endpoint(EndpointId id, Worker& worker) : id_(id), worker_(worker) {}
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  virtual ~Endpoint() = default;

  EndpointId id() const { return id_; }
  Worker& worker() { return worker_; }

  // Posts a chain with one doorbell. Each argument is an Op, or an Op* that may be null: not part of
  // it. REQUIRES: at least one operation, at most kOpsMax, all on the same MN.
  template <class... Ops>
  Doorbell post(Ops&&... ops) {
    return Doorbell{*this, {pointer(ops)...}};
  }

  // REQUIRES, for these two: completes_at_once(). A word as it is now; nobody counts that. And a fetch_add without a doorbell,
  // if the word still is as expected; otherwise nothing happens, and it is false.
  virtual std::uint64_t load_at_once(RemoteAddr) const { return 0; }
  virtual bool add_at_once(RemoteAddr, std::uint64_t /*expected*/, std::uint64_t /*delta*/, Purpose) {
    return false;
  }

  // Posts a message and does not wait.
  void send(EndpointId to, const Message& message) {
    counts_.messages += 1;
    transmit(to, message);
  }
  void set_receiver(Receiver* receiver) { receiver_ = receiver; }

  virtual bool has_masked_compare_swap() const = 0;
  // Every chain is complete when post() returns, unless somebody simulates other threads; and no memory node ever restarts.
  virtual bool completes_at_once() const { return false; }
  // Whoever waits here can look at a word of an MN all the time, as a thread of its own would.
  virtual bool may_watch() const { return false; }
  // A word of an MN, where it lies in this process's memory, and atomic operations may act on it there. They are not counted.
  virtual std::uint64_t* word_at(RemoteAddr) { return nullptr; }
  // Grows each time that the MN restarts with fresh memory.
  virtual std::uint32_t incarnation(MnId mn) const = 0;

  // After an unknown outcome: closes the connection to the MN and opens another. Once it is done, nothing that this
  // endpoint posted before will take effect any more. Waits for an MN that is not there. Errc::evicted: the MN has
  // revoked this compute node's access.
  virtual Task<Result<void>> reconnect(MnId mn) = 0;

  FramePool& frames() { return worker_.frames(); }
  // From any thread.
  const OpCounts& counts() const { return counts_; }

  // Told of every operation when it is posted; for checkers.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void on_posted(const Op& op) = 0;
  };
  void observe(Observer* observer) { observer_ = observer; }

 protected:
  friend class Doorbell;
  virtual void ring(Doorbell& doorbell) = 0;
  // The coroutine behind the doorbell is gone: its memory must not be touched any more. The operations
  // take effect all the same.
  virtual void abandon(Doorbell& doorbell) = 0;
  virtual void transmit(EndpointId to, const Message& message) = 0;

  Receiver* receiver() const { return receiver_; }
  void count(const Op& op) {
    counts_.add(op.kind, op.purpose);
    if (observer_ != nullptr) observer_->on_posted(op);
  }

 private:
  static Op* pointer(Op& op) { return &op; }
  static Op* pointer(Op* op) { return op; }

  EndpointId id_;
  Worker& worker_;
  Receiver* receiver_ = nullptr;
  Observer* observer_ = nullptr;
  OpCounts counts_;
};

inline Doorbell::Doorbell(Endpoint& endpoint, std::initializer_list<Op*> ops) : endpoint_(endpoint) {
  for (Op* op : ops) {
    if (op == nullptr) continue;
    CHECK(count_ < kOpsMax);
    ops_[count_++] = op;
    CHECK(op->addr.mn == ops_[0]->addr.mn);
    CHECK(op->addr.offset % 8 == 0 && op->words() > 0);
    CHECK(op->kind != OpKind::masked_compare_swap || endpoint.has_masked_compare_swap());
    endpoint_.count(*op);
  }
  CHECK(count_ > 0);
  endpoint_.ring(*this);
}

inline Doorbell::~Doorbell() {
  if (!done_) endpoint_.abandon(*this);
}

// An operation that does no harm when it takes effect twice, such as an access to an object whose lock is held: once
// more after every unknown outcome. Errc::mn_restarted: what it was meant for is gone. Errc::outcome_unknown, of a WRITE:
// this compute node was evicted meanwhile.
Task<Result<void>> post_until_known(Endpoint& endpoint, Op& op);

}  // namespace declock
