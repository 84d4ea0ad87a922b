// What libfabric needs before anything can be sent: a fabric, a domain, a completion queue and a table of addresses.
//
// Provider "tcp;ofi_rxm": reliable datagram endpoints over TCP connections that it makes by itself.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <memory>
#include <string>

#include "declock/result.h"
#include "ofi/library.h"

namespace declock::ofi {

struct Close {
  template <class Fid>
  void operator()(Fid* object) const {
    fi_close(&object->fid);
  }
};
template <class Fid>
using Owned = std::unique_ptr<Fid, Close>;

class Network {
 public:
  // On the local address `host`. An error says what is missing.
  static Result<std::unique_ptr<Network>, std::string> open(const std::string& host);
  // Another on the same address, without asking the machine for all that it has.
  Result<std::unique_ptr<Network>, std::string> open_another() const;

  Result<Owned<fid_ep>, std::string> make_endpoint() const;
  static std::string name_of(fid_ep* endpoint);
  // Is this an address that an endpoint of this kind may have?
  bool is_address(const std::string& name) const;

  fid_domain* domain() const { return domain_.get(); }
  fid_cq* queue() const { return queue_.get(); }
  fid_av* addresses() const { return addresses_.get(); }
  // Becomes readable when there is something in the queue, or to be done for it.
  int wait_descriptor() const { return wait_descriptor_; }
  bool may_wait() const;

 private:
  struct FreeInfo {
    void operator()(fi_info* info) const { library().freeinfo(info); }
  };
  using Info = std::unique_ptr<fi_info, FreeInfo>;
  Network() = default;
  static Result<std::unique_ptr<Network>, std::string> open_with(Info info);

  Info info_;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_cq> queue_;
  Owned<fid_av> addresses_;
  int wait_descriptor_ = -1;
};

// The words that libfabric moves in one piece.
inline constexpr std::size_t kWordsPerAtomic = 240;

}  // namespace declock::ofi
