// A worker's messages: queue pairs of their own, each for one direction. Whoever wants to send asks the other for one.
//
// A message is kept until the device says that it has arrived. When a connection breaks, the sender asks for another and
// sends again what it still keeps; each message has a number, so the receiver knows those that it has had (F4).
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>

#include "net/transport.h"
#include "verbs/completions.h"
#include "verbs/queue_pair.h"
#include "verbs/slabs.h"

namespace declock::verbs {

class Messages {
 public:
  static Result<std::unique_ptr<Messages>, std::string> make(const Device& device, Slabs& slabs,
                                                             ibv_comp_channel* channel);
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // As in net::Transport.
  net::Blob address() const;
  bool send(const net::PeerId& to, const net::Blob& address, const net::Packet& packet);
  bool anything_undelivered() const;
  void forget(const net::PeerId& peer);
  Result<net::Blob, std::string> accept(const net::PeerId& from, const net::Blob& asked);
  void accepted(const net::PeerId& by, const net::Blob& answer);

  std::array<ibv_cq*, 2> queues() const { return {completions_.queue(), received_.get()}; }
  // Takes what has arrived, here or there. True: there was something.
  bool collect();
  bool anything_untold() const { return !arrived_.empty() || !asks_.empty(); }
  bool tell(net::Transport::Sink& sink);

 private:
  // What goes over the wire: a number, counted from 1 per outbox, and a packet.
  static constexpr std::size_t kEnvelopeWordsMax = 1 + net::kPacketWordsMax;
  static constexpr std::uint32_t kDepth = 64;       // messages under way to one peer
  static constexpr std::uint32_t kReceives = 1024;  // messages that may arrive at once, from all

  struct Outbox;
  // A queue pair on which messages go to a peer.
  struct Line {
    Outbox* box;
    std::unique_ptr<QueuePair> queue_pair;  // none: it is broken, and the box perhaps gone
    std::uint64_t request = 0;              // the number of the request for it
    bool is_asked = false;
    bool is_connected = false;
    std::size_t posted = 0;  // messages that have not arrived yet
  };
  struct Outbox {
    net::PeerId to;
    std::unique_ptr<Line> line;
    std::uint64_t stream = 0;
    std::uint64_t last = 0;                          // all up to this number were sent
    std::deque<std::span<std::uint64_t>> envelopes;  // of the last, those that have not arrived
  };
  struct Inbox {
    std::unique_ptr<QueuePair> queue_pair;
    std::uint64_t stream = 0;
    std::uint64_t last = 0;  // the last one that was received
  };

  Messages(const Device& device, Slabs& slabs, SendCompletions<Line> completions)
      : device_(device), slabs_(slabs), completions_(std::move(completions)) {}
  Result<void, std::string> open_inboxes(ibv_comp_channel* channel);
  Outbox* outbox(const net::PeerId& to, const net::Blob& address);
  void prepare_to_ask(Outbox& box);
  void post(Outbox& box, std::span<std::uint64_t> envelope);
  void hang_up(Outbox& box);
  void close(Inbox& inbox);
  void on_sent(Line& line, ibv_wc_status status);
  bool receive();
  void offer_room(std::uint64_t slot);

  const Device& device_;
  Slabs& slabs_;
  SendCompletions<Line> completions_;
  CompletionQueue received_;
  SharedReceiveQueue room_;
  std::span<std::uint64_t> slots_;  // kReceives envelopes of any size
  std::uint64_t requests_ = 0;
  std::map<net::PeerId, Outbox> outboxes_;
  std::map<net::PeerId, Inbox> inboxes_;
  std::unordered_map<std::uint32_t, Inbox*> inbox_of_;  // by the number of its queue pair
  Untold<net::Packet> arrived_;
  Untold<net::PeerId> asks_;
};

}  // namespace declock::verbs
