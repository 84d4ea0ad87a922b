// Messages between workers that survive a broken connection (F4). A connection between two compute nodes may be reset
// while both live, and what is under way on it is lost. So messages are numbered per pair of workers, kept until the
// receiver acknowledges them, and sent again; the receiver drops what it has heard already, or what comes before its turn.
//
// Acknowledgements ride along with messages that go the other way, and otherwise leave after a moment or a few messages.
#pragma once

#include <deque>
#include <functional>
#include <map>

#include "base/time.h"
#include "net/transport.h"

namespace declock::net {

class Streams {
 public:
  // Hands a packet to the network. False: not now.
  using Transmit = std::function<bool(const PeerId& to, Packet& packet)>;
  // What was sent several times does not arrive: another connection is wanted.
  using Reconnect = std::function<void(const PeerId& to)>;
  // Hands a packet to somebody else who reaches the peer, slowly.
  using Relay = std::function<void(const PeerId& to, Packet& packet)>;
  Streams(const PeerId& self, Transmit transmit, Reconnect reconnect, Relay relay)
      : self_(self),
        transmit_(std::move(transmit)),
        reconnect_(std::move(reconnect)),
        relay_(std::move(relay)) {}

  void send(const PeerId& to, const Packet& packet, Time now);
  // True: its message is the next one from there, and to be heard.
  bool arrives(const Packet& packet, Time now);
  // Sends what is due.
  void pump(Time now);
  // An acknowledgement of all that came from there.
  Packet thanks_to(const PeerId& peer);
  // The peer has made another connection: what was under way on the last one is lost.
  void starts_again(const PeerId& peer, Time now);
  // There will be nothing more for these peers, or from them.
  template <class Gone>
  void forget(Gone is_gone) {
    std::erase_if(streams_, [&](const auto& entry) { return is_gone(entry.first); });
  }

  // Something could not be handed to the network yet, or should leave at once.
  bool is_urgent() const { return is_urgent_; }
  // Something was not acknowledged by a peer.
  bool anything_unsaid() const;
  // Something is not acknowledged, here or there: pump() has something to do, now or later.
  bool is_busy() const;

  static constexpr Duration kAcknowledgeAfter = milliseconds(2);

 private:
  struct Stream {
    std::deque<Packet> kept;      // not acknowledged, in order
    std::size_t posted = 0;       // of these, from the front: given to the network
    std::uint64_t sent = 0;       // the last number
    std::uint64_t heard = 0;      // the last that came in order
    std::uint32_t unthanked = 0;  // messages that came since the last acknowledgement left
    Time since;                   // when the first of those came
    bool acknowledge_now = false;
    bool has_gap = false;  // something came before its turn
    Time moved;  // when something was acknowledged, or sent (again), or the first was to be sent
    Duration patience = kSendAgainAfter;
  };
  static constexpr Duration kSendAgainAfter = milliseconds(50);
  static constexpr Duration kSendAgainAfterMax = seconds(1);
  // A peer that is only slow must not lose its connection: all that is under way on it would be lost. The two ends do not
  // have the same patience, or they would keep breaking what the other has just made.
  static constexpr Duration kReconnectAfter = kSendAgainAfter * 8;
  static constexpr std::uint32_t kThankAfter = 16;
  static constexpr std::size_t kRelayedMax = 16;  // at once, per peer

  void flush(const PeerId& peer, Stream& stream, Time now);
  void reach_otherwise(const PeerId& peer, Stream& stream);
  static void acknowledged(Stream& stream, std::uint64_t up_to, Time now);

  PeerId self_;
  Transmit transmit_;
  Reconnect reconnect_;
  Relay relay_;
  std::map<PeerId, Stream> streams_;
  bool is_urgent_ = false;
};

}  // namespace declock::net
