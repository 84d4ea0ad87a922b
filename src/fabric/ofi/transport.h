// The TCP transport of a worker, over libfabric.
//
// Two of the provider's habits shape it:
//  - An atomic operation travels as one message, and is carried out whole and in order. A READ or a WRITE is copied by
//    the socket layer: a READ may be carried out before an atomic that was posted before it, and words may tear where
//    the network cuts the stream. So READs and WRITEs of up to kWholeWordsMax words are atomics too, and only larger
//    ones are what libfabric calls RMA; those wait for atomics that are under way, and the other way round (F1, F3).
//  - An operation may never complete after the peer has died, and an error may be told twice. So completions are
//    matched by number, and whoever posts watches the clock.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "net/transport.h"
#include "ofi/network.h"

namespace declock::ofi {

// Words that may be read or written by atomics; beyond that, a word of a WRITE may be seen half-written.
inline constexpr std::size_t kWholeWordsMax = 2048;

class OfiTransport final : public net::Transport {
 public:
  // On the local address `host`.
  static Result<std::unique_ptr<OfiTransport>, std::string> open(const std::string& host);
  ~OfiTransport() override;

  Result<net::Blob, std::string> offer(MnId mn) override;
  Result<void, std::string> connect(MnId mn, const net::Blob& answer) override;
  void drop(MnId mn) override;
  bool post(net::Batch& batch) override;
  std::span<std::uint64_t> take(std::size_t words) override;
  void give_back(std::span<std::uint64_t> words) override;

  net::Blob address() const override { return Network::name_of(endpoint_.get()); }
  bool send(const net::PeerId& to, const net::Blob& address, const net::Packet& packet) override;
  void forget(const net::PeerId& peer) override;
  void reconnect(const net::PeerId& peer) override;
  Result<net::Blob, std::string> accept(const net::PeerId& from, const net::Blob& asked) override;
  void accepted(const net::PeerId&, const net::Blob&) override {}

  bool poll(Sink& sink) override;
  int wait_descriptor() const override { return network_->wait_descriptor(); }
  bool may_wait() override { return network_->may_wait(); }
  const net::TransportCounts& counts() const override { return counts_; }

 private:
  enum class Way : std::uint8_t { atomic, rma_read, rma_write };
  // A part of an operation that libfabric does in one piece.
  struct Piece {
    net::Batch* batch = nullptr;
    std::uint32_t work = 0;
    std::uint32_t first_word = 0;
    std::uint32_t words = 0;
    Way way = Way::atomic;
    bool ends_work = false;
  };
  // A piece that is under way. Its number, with the count of uses, is what its completion is matched by.
  struct Flight {
    Piece piece;
    MnId mn{};
    std::uint32_t connection = 0;
    std::uint32_t uses = 0;
    bool in_use = false;
  };
  struct Link {
    bool connected = false;
    std::uint32_t connection = 0;  // counts them
    fi_addr_t address = FI_ADDR_UNSPEC;
    std::uint64_t key = 0;
    std::deque<Piece> queue;                   // not posted yet
    std::array<std::uint32_t, 3> under_way{};  // by Way
  };

  OfiTransport(std::unique_ptr<Network> network, Owned<fid_ep> endpoint);
  Link& link(MnId mn);
  static bool may_follow(const Link& link, Way way);
  void pump(Link& link, Sink* sink, MnId mn);
  ssize_t issue(const Link& link, const Piece& piece, void* context);
  void complete(std::uint64_t context, Errc status, Sink& sink);
  void listen_again(std::size_t buffer);
  void drop_peer_connection(std::uint64_t connection);

  std::unique_ptr<Network> network_;
  Owned<fid_ep> endpoint_;
  std::vector<Link> links_;
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_flights_;
  std::vector<net::Batch*> finished_;  // by drop(), to be told at the next poll()
  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    std::uint32_t connection = 0;  // counts them
  };
  std::map<net::PeerId, Peer> peers_;
  std::uint32_t peer_connections_ = 0;
  std::vector<net::PeerId>
      not_reached_;  // to be asked, at the next poll(), to drop what they have of this one
  std::vector<net::PacketWords> arriving_;  // where messages are received
  // Memory for operations: all of it, because the network may use some for as long as the endpoint is open; and what is
  // to be had again, by size.
  std::map<std::uint64_t*, std::unique_ptr<std::uint64_t[]>> memory_;
  std::map<std::size_t, std::vector<std::uint64_t*>> spare_;
  net::TransportCounts counts_;
};

}  // namespace declock::ofi
