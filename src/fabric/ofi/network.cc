#include "ofi/network.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "net/packet.h"

namespace declock::ofi {
namespace {

std::string failed(std::string_view what, long code) {
  return fmt::format("libfabric: {}: {}", what, library().strerror(static_cast<int>(-code)));
}

// There is no other way to tell the provider. With its defaults an endpoint takes 70 MB; with these, 3 MB.
void set_sizes() {
  static std::once_flag once;
  std::call_once(once, [] {
    setenv("FI_OFI_RXM_BUFFER_SIZE", "2048", 0);  // holds kWordsPerAtomic, and every packet
    setenv("FI_OFI_RXM_MSG_RX_SIZE", "64", 0);
    setenv("FI_OFI_RXM_CM_PROGRESS_INTERVAL", "1000", 0);  // microseconds: connections come up sooner
  });
}

}  // namespace

Result<std::unique_ptr<Network>, std::string> Network::open(const std::string& host) {
  set_sizes();
  if (const auto loaded = load_library(); !loaded) return Failure{loaded.error()};
  const Info hints{library().dupinfo(nullptr)};  // an empty one
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA | FI_ATOMIC;
  hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->mr_mode = 0;  // keys of our own, offsets from the beginning of the region
  hints->rx_attr->size = 64;
  hints->tx_attr->size = 256;
  hints->tx_attr->inject_size = sizeof(net::PacketWords);  // what is sent is copied at once (FI_INJECT)
  // F2: a WRITE is complete when it is in the memory, not when it was sent.
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;

  fi_info* found = nullptr;
  const int code =
      library().getinfo(FI_VERSION(1, 17), host.c_str(), nullptr, FI_SOURCE, hints.get(), &found);
  if (code != 0) {
    return Failure{fmt::format(
        "libfabric has no provider tcp;ofi_rxm on {} ({}); is that an address of this machine, and is "
        "Debian's libfabric1 (1.17 or later) installed, and FI_OFI_RXM_BUFFER_SIZE, if it is set, 2048 "
        "at "
        "least?",
        host, library().strerror(-code))};
  }
  return open_with(Info{found});
}

Result<std::unique_ptr<Network>, std::string> Network::open_another() const {
  return open_with(Info{library().dupinfo(info_.get())});
}

Result<std::unique_ptr<Network>, std::string> Network::open_with(Info info) {
  std::unique_ptr<Network> net{new Network};
  net->info_ = std::move(info);
  fi_info* const found = net->info_.get();
  fid_fabric* fabric = nullptr;
  int code = library().fabric(found->fabric_attr, &fabric, nullptr);
  if (code != 0) return Failure{failed("fabric", code)};
  net->fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if ((code = fi_domain(fabric, found, &domain, nullptr)) != 0) return Failure{failed("domain", code)};
  net->domain_.reset(domain);
  fi_cq_attr queue_attr{};
  queue_attr.format = FI_CQ_FORMAT_MSG;
  queue_attr.wait_obj = FI_WAIT_FD;
  queue_attr.size = 4096;
  fid_cq* queue = nullptr;
  if ((code = fi_cq_open(domain, &queue_attr, &queue, nullptr)) != 0)
    return Failure{failed("completion queue", code)};
  net->queue_.reset(queue);
  if ((code = fi_control(&queue->fid, FI_GETWAIT, &net->wait_descriptor_)) != 0)
    return Failure{failed("descriptor of the completion queue", code)};
  fi_av_attr address_attr{};
  address_attr.type = FI_AV_TABLE;
  fid_av* addresses = nullptr;
  if ((code = fi_av_open(domain, &address_attr, &addresses, nullptr)) != 0)
    return Failure{failed("address table", code)};
  net->addresses_.reset(addresses);
  return net;
}

Result<Owned<fid_ep>, std::string> Network::make_endpoint() const {
  fid_ep* made = nullptr;
  if (const int code = fi_endpoint(domain_.get(), info_.get(), &made, nullptr); code != 0)
    return Failure{failed("endpoint", code)};
  Owned<fid_ep> endpoint{made};
  int code = fi_ep_bind(made, &queue_->fid, FI_TRANSMIT | FI_RECV);
  if (code == 0) code = fi_ep_bind(made, &addresses_->fid, 0);
  if (code == 0) code = fi_enable(made);
  if (code != 0) return Failure{failed("endpoint", code)};
  return endpoint;
}

std::string Network::name_of(fid_ep* endpoint) {
  std::string name(128, '\0');
  std::size_t length = name.size();
  CHECK(fi_getname(&endpoint->fid, name.data(), &length) == 0);
  name.resize(length);
  return name;
}

bool Network::is_address(const std::string& name) const {
  sa_family_t family = 0;
  if (name.size() < sizeof family) return false;
  std::memcpy(&family, name.data(), sizeof family);
  const bool is_v6 = info_->addr_format == FI_SOCKADDR_IN6;
  return family == (is_v6 ? AF_INET6 : AF_INET) &&
         name.size() == (is_v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
}

bool Network::may_wait() const {
  fid* queues[] = {&queue_->fid};
  return fi_trywait(fabric_.get(), queues, 1) == FI_SUCCESS;
}

}  // namespace declock::ofi
