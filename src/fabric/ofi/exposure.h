// A memory node's memory, to be reached over TCP.
//
// Every worker of a compute node gets an endpoint and a memory key of its own. To close both is what stops it: the key
// alone does not stop a large write that is half-way.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "net/transport.h"
#include "ofi/network.h"

namespace declock::ofi {

class OfiExposure final : public net::Exposure {
 public:
  // Reachable at `host`, an address of this machine.
  static Result<std::unique_ptr<OfiExposure>, std::string> open_on(const std::string& host,
                                                                   std::span<std::byte> memory);
  ~OfiExposure() override;

  Result<net::Blob, std::string> open(const net::PeerId& peer, const net::Blob& offer) override;
  void close(const net::PeerId& peer) override;
  bool progress() override;
  int wait_descriptor() const override { return any_readable_; }
  bool may_wait() override { return busy_.empty() && !may_give_back_; }

 private:
  OfiExposure(std::unique_ptr<Network> network, std::span<std::byte> memory, int any_readable);

  // With a completion queue of its own: the provider does not survive that an endpoint is closed while others use its
  // queue. Closed in the opposite order: first the key.
  struct Access {
    std::unique_ptr<Network> network;
    Owned<fid_ep> endpoint;
    Owned<fid_mr> region;
  };
  std::unique_ptr<Network> network_;  // that each access has another of
  std::span<std::byte> memory_;
  std::map<net::PeerId, Access> accesses_;
  std::vector<Access*> busy_;   // there is, or may be, something to do
  bool may_give_back_ = false;  // memory, of accesses that were closed
  int any_readable_;            // an epoll descriptor over all their queues
};

// What a memory node tells a compute node: where, and with which key.
struct AccessAnswer {
  std::uint64_t key = 0;
  std::string address;

  net::Blob to_blob() const;
  static std::optional<AccessAnswer> from_blob(const net::Blob& blob, const Network& network);
};

}  // namespace declock::ofi
