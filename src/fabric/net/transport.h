// What a network must offer so that a fabric can be built on it: libfabric (fabric/ofi) or verbs (fabric/verbs).
//
// A transport is one worker's window on the network, used from that worker's thread alone. Connections are made with the
// help of an authenticated channel that is not its business: each side says in a few opaque bytes, a Blob, what the
// other must know.
//
//   to a memory node   offer() -> (channel) -> Exposure::open() at the memory node -> (channel) -> connect()
//   to another worker  address(), which everybody knows from the view; a transport whose connections need both sides
//                      asks: on_ask -> (channel) -> accept() there -> (channel) -> accepted()
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "declock/result.h"
#include "fabric/fabric.h"
#include "layout/ids.h"
#include "net/packet.h"

namespace declock::net {

using Blob = std::string;
inline constexpr std::size_t kBlobMax = 2048;  // the channel's strings are no longer

// One operation on a memory node's memory. Those on one memory node take effect in the order in which they are posted
// (F1): where a network does not see to that, its transport does.
struct Work {
  OpKind kind;
  std::uint64_t offset;  // in bytes, from the beginning of that memory
  std::span<std::uint64_t>
      local;  // from Transport::take(): what is written, where to read to, the old word of an atomic
  std::uint64_t operand = 0;  // as in Op
  std::uint64_t expected = 0;
};

// Operations that are posted together, with one doorbell, and complete together. Belongs to who posts it and stays where
// it is until on_complete() or the transport's end.
struct Batch {
  MnId mn{};
  std::size_t count = 0;
  std::array<Work, Doorbell::kOpsMax> works{};
  std::size_t unfinished = 0;  // for the transport
  Errc status = Errc::ok;      // for the transport
};

struct TransportCounts {
  std::array<std::uint64_t, kOpKinds> completed{};  // operations, by kind, as the network reports them
};

class Transport {
 public:
  virtual ~Transport() = default;

  // What has arrived; called from poll().
  class Sink {
   public:
    virtual ~Sink() = default;
    // Errc::ok, or outcome_unknown. Also for batches of connections that were dropped, sooner or later or never.
    virtual void on_complete(Batch& batch, Errc status) = 0;
    // The connection is of no use any more. What is outstanding on it may or may not complete.
    virtual void on_broken(MnId) {}
    virtual void on_packet(const Packet& packet) = 0;
    // To be handed to accept() at the peer's worker.
    virtual void on_ask(const PeerId& peer, const Blob& blob) = 0;
  };

  // ------- memory nodes
  // Drops the connection to the memory node, if there is one, and prepares another.
  virtual Result<Blob, std::string> offer(MnId mn) = 0;
  // `answer` is what Exposure::open() gave for the offer.
  virtual Result<void, std::string> connect(MnId mn, const Blob& answer) = 0;
  // What was posted may or may not take effect, until the memory node says that it is closed.
  virtual void drop(MnId mn) = 0;
  // False: there is no room now; try again after a poll(). REQUIRES: connected.
  virtual bool post(Batch& batch) = 0;
  // Memory for Work::local.
  virtual std::span<std::uint64_t> take(std::size_t words) = 0;
  virtual void give_back(std::span<std::uint64_t> words) = 0;

  // ------- other workers
  // What others must know to send to this one.
  virtual Blob address() const = 0;
  // In order. May be lost if a connection breaks (streams.h sends it again). False: not now; try again after a poll().
  virtual bool send(const PeerId& to, const Blob& address, const Packet& packet) = 0;
  // What was sent to this peer does not arrive: the next is to go over a new connection.
  virtual void reconnect(const PeerId&) {}
  // Of what was sent; it may be lost if this process ends now.
  virtual bool anything_undelivered() const { return false; }
  // It was removed, or there will be nothing more for it.
  virtual void forget(const PeerId& peer) = 0;
  // A peer asks for a connection on which it will send. The answer goes back to its accepted().
  virtual Result<Blob, std::string> accept(const PeerId& from, const Blob& asked) = 0;
  virtual void accepted(const PeerId& by, const Blob& answer) = 0;

  // ------- what arrives
  // True: there was something.
  virtual bool poll(Sink& sink) = 0;
  // Becomes readable when there is something to poll.
  virtual int wait_descriptor() const = 0;
  // To be asked before waiting for the descriptor. False: poll() first.
  virtual bool may_wait() = 0;

  virtual const TransportCounts& counts() const = 0;
};

// A memory node's side. Used from one thread.
class Exposure {
 public:
  virtual ~Exposure() = default;

  // Gives one worker of a member access to the memory. Closes what that worker had before. An error says what is wrong
  // with the offer.
  virtual Result<Blob, std::string> open(const PeerId& peer, const Blob& offer) = 0;
  // When it returns, nothing that the worker has sent or sends takes effect any more.
  virtual void close(const PeerId& peer) = 0;

  // Networks that need the memory node's processor: true if there was something to do.
  virtual bool progress() = 0;
  // Becomes readable when there is something to do; -1: never.
  virtual int wait_descriptor() const = 0;
  // To be asked before waiting for the descriptor. False: progress() first.
  virtual bool may_wait() = 0;
};

}  // namespace declock::net
