// What the endpoints of one worker share on a network: the connections to memory nodes and to other workers.
//
// A connection to a memory node is open or broken. It breaks at the first operation that fails or is not complete in
// time; then everything that is outstanding on it ends with Errc::outcome_unknown, and nothing goes on before it was made
// anew, which tells the memory node to close the old one (F2, H21).
#pragma once

#include <coroutine>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "net/streams.h"
#include "net/transport.h"
#include "runtime/task_group.h"

namespace declock::net {

class NetEndpoint;

// How a worker of another member is reached.
struct Address {
  Blob blob;
  std::uint64_t cookie = 0;
};
struct PeerAddresses {
  Slot slot{};
  std::uint32_t incarnation = 0;
  std::vector<Address> workers;
};

// What a port asks of the compute node that it belongs to. Called from the port's worker; answers come to that worker.
class Switchboard {
 public:
  virtual ~Switchboard() = default;
  // Has the memory node open a connection, as soon as it is there: on_attached().
  virtual void attach(std::uint16_t worker, MnId mn, const Blob& offer) = 0;
  // Has a peer's transport accept a connection: on_accepted().
  virtual void ask(std::uint16_t worker, const PeerId& peer, const Blob& blob) = 0;
  // The last incarnation of this memory node that anybody on this compute node has heard of.
  virtual std::uint32_t incarnation(MnId mn) const = 0;
  // The incarnation that operations are meant for which do not say so themselves; 0: any.
  virtual std::uint32_t meant(MnId) const { return 0; }
};

class Port final : private Transport::Sink {
 public:
  struct Config {
    PeerId self;
    std::uint64_t cookie = 0;
    std::uint32_t endpoints = 1;  // per member at most; number i belongs to worker i mod its workers
    // An operation that takes longer will never complete.
    Duration patience = seconds(2);
  };
  Port(Config config, std::unique_ptr<Transport> transport, Worker& worker, Switchboard& switchboard);
  ~Port() override;

  void add(NetEndpoint& endpoint);
  Transport& transport() { return *transport_; }

  // For endpoints.
  void submit(Doorbell& doorbell);
  void abandon(Doorbell& doorbell);
  void send(EndpointId from, EndpointId to, const Message& message);
  std::uint32_t incarnation(MnId mn) const;
  Task<Result<void>> reconnect(Worker& worker, MnId mn) { return reopen(worker, *this, mn); }

  // Hands over what has arrived, and sends what could not be sent before. True: there was something.
  bool poll();
  bool anything_unsent() const { return streams_.is_urgent() || unposted_ > 0; }
  bool anything_unsaid() const {
    return streams_.anything_unsaid() || transport_->anything_undelivered();
  }

  // From the compute node, on this worker.
  void attach(MnId mn);
  bool is_open(MnId mn) { return link(mn).is_open; }
  bool is_evicted() const { return evicted_; }
  void on_attached(MnId mn, std::uint32_t incarnation, const Blob& answer);
  // The memory node is gone, or was cut off.
  void lose(MnId mn);
  void on_peers(const std::vector<PeerAddresses>& peers);
  Result<Blob, std::string> accept(const PeerId& from, const Blob& asked);
  void on_accepted(const PeerId& by, const Blob& answer);
  // This compute node can do nothing any more: whatever waits ends with Errc::evicted, and what was posted as unknown.
  void evict();

 private:
  // A doorbell under way. Outlives it, if it is abandoned or ended with an unknown outcome.
  struct Flight : Batch {
    Doorbell* doorbell = nullptr;
    std::uint32_t connection = 0;  // the link's
    Time since;
    bool is_posted = false;
    bool ends = false;      // its connection is broken, and the doorbell about to be told
    std::size_t index = 0;  // in flights_
  };
  struct Link {
    bool is_open = false;
    std::uint32_t connection = 0;  // counts them
    bool is_attaching = false;
    std::uint32_t incarnation = 1;
    std::deque<Flight*> unposted;
    std::vector<Timer*> waiting;  // for it to open
  };
  // co_await: until the link opens, or nothing ever will. Woken by a timer, which forgets who is destroyed meanwhile.
  struct Opened {
    Port& port;
    MnId mn;
    Timer woken{};
    Opened(Port& p, MnId m) : port(p), mn(m) {}
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    ~Opened();
    bool await_ready() const { return port.evicted_ || port.link(mn).is_open; }
    void await_suspend(std::coroutine_handle<> coroutine);
    void await_resume() const {}
  };

  Link& link(MnId mn);
  static Task<Result<void>> reopen(Worker& worker, Port& port, MnId mn);  // frames are the worker's
  void post_unposted(MnId mn);
  // What was never posted ends with `unposted`: it has certainly not taken effect.
  void break_link(MnId mn, Errc unposted = Errc::outcome_unknown);
  void release(Flight& flight);
  void wake_waiting(Link& link);
  Task<void> watch_the_clock();
  const PeerAddresses* find(Slot slot) const;
  bool is_gone(const PeerId& peer) const;
  const Address* address_of(const PeerId& to) const;
  bool transmit(const PeerId& to, Packet& packet);
  void relay(const PeerId& to, Packet& packet);
  void watch_streams();
  Task<void> keep_streams_going();
  void hear(const Packet& packet);
  void hear_early();

  void on_complete(Batch& batch, Errc status) override;
  void on_broken(MnId mn) override { break_link(mn); }
  void on_packet(const Packet& packet) override;
  void on_ask(const PeerId& peer, const Blob& blob) override;

  Config config_;
  std::unique_ptr<Transport> transport_;
  Worker& worker_;
  Switchboard& switchboard_;
  std::vector<NetEndpoint*> endpoints_;
  std::deque<Link> links_;
  std::vector<std::unique_ptr<Flight>> flights_;  // under way
  std::vector<std::unique_ptr<Flight>> spare_flights_;
  std::size_t unposted_ = 0;
  std::vector<PeerAddresses> peers_;  // by slot
  Streams streams_;
  bool streams_watched_ = false;
  // To be heard at the next turn: what a worker sends to itself, and what is for endpoints that nobody listens at yet (others
  // know of a member before it has built its locks).
  std::deque<Packet> early_;
  bool evicted_ = false;
  bool watching_ = false;
  TaskGroup behind_;

 public:
  FramePool& frames() { return worker_.frames(); }
};

class NetEndpoint final : public Endpoint {
 public:
  NetEndpoint(EndpointId id, Worker& worker, Port& port) : Endpoint(id, worker), port_(port) {
    port.add(*this);
  }

  bool has_masked_compare_swap() const override { return false; }
  std::uint32_t incarnation(MnId mn) const override { return port_.incarnation(mn); }
  Task<Result<void>> reconnect(MnId mn) override { return port_.reconnect(worker(), mn); }

 private:
  friend class Port;
  void ring(Doorbell& doorbell) override { port_.submit(doorbell); }
  void abandon(Doorbell& doorbell) override { port_.abandon(doorbell); }
  void transmit(EndpointId to, const Message& message) override { port_.send(id(), to, message); }
  bool listens() const { return receiver() != nullptr; }
  void hear(EndpointId from, const Message& message) { receiver()->on_message(from, message); }

  Port& port_;
};

}  // namespace declock::net
