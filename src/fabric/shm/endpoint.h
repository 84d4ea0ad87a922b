// The shared-memory fabric: operations are the processor's own, and complete as they are posted.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "shm/cluster.h"

namespace declock::shm {

class ShmEndpoint final : public Endpoint {
 public:
  // `incarnation`: of the member that it belongs to. `evicted`: it is no member any more, and changes nothing any more.
  ShmEndpoint(const Cluster& cluster, std::uint32_t incarnation, const std::atomic<bool>& evicted,
              EndpointId id, Worker& worker);

  bool has_masked_compare_swap() const override { return true; }
  bool completes_at_once() const override { return true; }
  // Memory of this machine does not restart while this process uses it.
  std::uint32_t incarnation(MnId) const override { return mn_incarnation_; }
  Task<Result<void>> reconnect(MnId mn) override;
  std::uint64_t load_at_once(RemoteAddr addr) const override { return cluster_.word(addr).load(); }
  bool add_at_once(RemoteAddr addr, std::uint64_t expected, std::uint64_t delta,
                   Purpose purpose) override;
  std::uint64_t* word_at(RemoteAddr addr) override { return cluster_.word_at(addr); }

  // For its worker: hands what has arrived to the receiver, and sends what could not be sent before. True: something
  // has arrived.
  bool poll();
  bool anything_arrived() const { return !is_evicted() && mailbox_.anything_arrived(); }
  bool anything_unsent() const { return !unsent_.empty(); }

 private:
  void ring(Doorbell& doorbell) override;
  void abandon(Doorbell&) override {}
  void transmit(EndpointId to, const Message& message) override;
  void perform(Op& op) const;
  bool try_send(EndpointId to, const Message& message, std::size_t& sent);
  void wake(EndpointId to) const;

  const Cluster& cluster_;
  Sender self_;
  const std::atomic<bool>& evicted_;
  const std::uint32_t mn_incarnation_;
  Mailbox& mailbox_;
  Parts parts_;
  // For mailboxes that were full. Bounded: a receiver has at most one request per lock and client to be told about.
  struct Unsent {
    EndpointId to;
    Message message;
    std::size_t sent;  // words of it
  };
  std::vector<Unsent> unsent_;
  bool is_waiting(EndpointId to) const;
  void send_rest(EndpointId to, const Message& message, std::size_t sent);
  void send_again();
  // Relaxed: who is told later finds out with its next operation.
  bool is_evicted() const { return evicted_.load(std::memory_order_relaxed); }
};

class ShmWorker final : public ThreadWorker {
 public:
  // `dispatcher`: of its member, as long as there is one.
  ShmWorker(Prng random, BellWord& bell, const std::atomic<BellWord*>& dispatcher)
      : ThreadWorker(random, bell), dispatcher_(dispatcher) {}
  using ThreadWorker::part_with_bell;

  void add(ShmEndpoint& endpoint) { endpoints_.push_back(&endpoint); }
  bool anything_unsaid() const override;
  // Run on this worker's thread when told to.
  void set_on_news(std::function<void()> on_news) { on_news_ = std::move(on_news); }
  // From any thread: there are news.
  void tell_news() {
    news_.store(true);
    wake();
  }
  // When the dispatcher looks at this worker next, if it is away. Shared by the workers of a member.
  void set_dispatcher_until(std::atomic<std::int64_t>* until_ns) { dispatcher_until_ns_ = until_ns; }

 private:
  bool poll() override;
  bool anything_arrived() const override;
  Time look_again() const override;
  void on_away(Time when) override;

  const std::atomic<BellWord*>& dispatcher_;
  std::atomic<std::int64_t>* dispatcher_until_ns_ = nullptr;
  std::vector<ShmEndpoint*> endpoints_;
  std::function<void()> on_news_;
  std::atomic<bool> news_{false};
};

}  // namespace declock::shm
