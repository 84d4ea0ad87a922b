// A client of the microbenchmark: lock, use the object, unlock, again and again. What it runs on, and who watches it,
// comes from its host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "bench/micro.h"
#include "bench/zipf.h"
#include "lock/lock.h"
#include "runtime/task_group.h"

namespace declock::bench {

// Where lock and object number i lie.
class Placement {
 public:
  Placement(const MicroConfig& config, std::uint64_t stride)
      : mns_(config.mns),
        locks_(config.locks),
        stride_(stride),
        objects_from_((config.locks + mns_ - 1) / mns_ * stride),
        object_words_((config.object_size + 7) / 8) {}

  std::uint32_t object_words() const { return object_words_; }
  RemoteAddr lock(std::uint64_t i) const { return {mn(i), i / mns_ * stride_}; }
  RemoteAddr object(std::uint64_t i) const {
    return {mn(i), objects_from_ + i / mns_ * object_words_ * 8};
  }
  // Whose lock's words these are. REQUIRES: they are a lock's.
  std::uint64_t lock_at(RemoteAddr addr) const { return addr.offset / stride_ * mns_ + addr.mn.value; }
  // Two words behind everything else.
  RemoteAddr spare() const { return {MnId{0}, object(locks_ + mns_).offset}; }
  // Of a memory node.
  std::uint64_t bytes() const { return spare().offset + 16; }

 private:
  MnId mn(std::uint64_t i) const { return MnId{static_cast<std::uint16_t>(i % mns_)}; }

  std::uint64_t mns_;
  std::uint64_t locks_;
  std::uint64_t stride_;
  std::uint64_t objects_from_;
  std::uint32_t object_words_;
};

struct Client;

// What a client is told to do, and who is told what it does.
class Host {
 public:
  virtual ~Host() = default;
  // The client starts no new operation.
  virtual bool over() const = 0;
  virtual void called(Client& client, std::uint64_t which, Mode mode) = 0;
  virtual void entered(Client& client, std::uint64_t which, Mode mode, const Hold& hold,
                       Duration waited) = 0;
  virtual void leaves(Client& client) = 0;
  // The release of an exclusive section has completed, and with it its update.
  virtual void updated(Client& client) = 0;
  virtual void finished(Client& client, Duration took, Duration inside, Duration releasing) = 0;
  virtual void gave_up(Client& client, Errc error) = 0;
  // A look at a word that costs nothing, where there is a way.
  virtual std::optional<std::uint64_t> look(RemoteAddr addr) = 0;
};

// What all clients of a run share.
struct Workload {
  const MicroConfig& config;
  const Placement& placement;
  const Zipf& zipf;
};

struct Client {
  Client(const Workload& workload_, Host& host_, std::uint32_t index_, Endpoint& endpoint_,
         std::unique_ptr<LockClient> lock_)
      : workload(workload_),
        host(host_),
        index(index_),
        endpoint(endpoint_),
        worker(endpoint_.worker()),
        random(workload_.config.seed, 1 + index_),
        lock(std::move(lock_)),
        behind(worker.frames()) {}

  const Workload& workload;
  Host& host;
  std::uint32_t index;
  Endpoint& endpoint;
  Worker& worker;
  Prng random;
  std::unique_ptr<LockClient> lock;
  TaskGroup behind;  // releases that nobody waits for
  std::optional<Task<void>> task;
  bool failed = false;
  bool killed = false;
  struct Inside {
    std::uint64_t which;
    Mode mode;
  };
  std::optional<Inside> inside;  // of a critical section

  FramePool& frames() { return worker.frames(); }
  void start() {
    task.emplace(run());
    task->start();
  }
  bool done() const { return killed || failed || (task->done() && behind.running() == 0); }

 private:
  Task<void> run();
  Task<Result<void>> operate(std::span<std::uint64_t> object);
  Task<Result<void>> read_object(RemoteAddr addr, std::span<std::uint64_t> object, std::uint32_t times,
                                 Purpose purpose);
  Task<void> release_behind(Hold hold);
  void give_up(Errc error);
};

}  // namespace declock::bench
