#include "ofi/exposure.h"

#include <fmt/format.h>
#include <malloc.h>
#include <rdma/fi_errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace declock::ofi {
namespace {

constexpr char kBlobVersion = 1;
constexpr std::size_t kAddressFrom = 1 + sizeof(std::uint64_t);

}  // namespace

net::Blob AccessAnswer::to_blob() const {
  net::Blob blob(kAddressFrom, kBlobVersion);
  std::memcpy(&blob[1], &key, sizeof key);
  return blob + address;
}

std::optional<AccessAnswer> AccessAnswer::from_blob(const net::Blob& blob, const Network& network) {
  if (blob.size() < kAddressFrom || blob[0] != kBlobVersion) return {};
  AccessAnswer answer;
  std::memcpy(&answer.key, &blob[1], sizeof answer.key);
  answer.address = blob.substr(kAddressFrom);
  if (!network.is_address(answer.address)) return {};
  return answer;
}

Result<std::unique_ptr<OfiExposure>, std::string> OfiExposure::open_on(const std::string& host,
                                                                       std::span<std::byte> memory) {
  auto network = Network::open(host);
  if (!network) return Failure{network.error()};
  const int any_readable = epoll_create1(EPOLL_CLOEXEC);
  if (any_readable < 0)
    return Failure{fmt::format("an epoll descriptor cannot be had: {}", std::strerror(errno))};
  return std::unique_ptr<OfiExposure>{new OfiExposure{std::move(*network), memory, any_readable}};
}

OfiExposure::OfiExposure(std::unique_ptr<Network> network, std::span<std::byte> memory,
                         int any_readable)
    : network_(std::move(network)), memory_(memory), any_readable_(any_readable) {}

OfiExposure::~OfiExposure() {
  ::close(any_readable_);
}

Result<net::Blob, std::string> OfiExposure::open(const net::PeerId& peer, const net::Blob& offer) {
  if (!offer.empty()) return Failure{std::string{"an offer over tcp is empty"}};
  close(peer);
  auto network = network_->open_another();
  if (!network) return Failure{network.error()};
  auto endpoint = (*network)->make_endpoint();
  if (!endpoint) return Failure{endpoint.error()};
  fid_mr* region = nullptr;
  const int code =
      fi_mr_reg((*network)->domain(), memory_.data(), memory_.size(), FI_REMOTE_READ | FI_REMOTE_WRITE,
                0, unguessable_number(), 0, &region, nullptr);
  if (code != 0)
    return Failure{
        fmt::format("libfabric: the memory cannot be registered: {}", library().strerror(-code))};
  const AccessAnswer answer{fi_mr_key(region), Network::name_of(endpoint->get())};
  Access& access = accesses_[peer];
  access = {std::move(*network), std::move(*endpoint), Owned<fid_mr>{region}};
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &access;
  CHECK(epoll_ctl(any_readable_, EPOLL_CTL_ADD, access.network->wait_descriptor(), &event) == 0);
  busy_.push_back(&access);
  return answer.to_blob();
}

void OfiExposure::close(const net::PeerId& peer) {
  const auto at = accesses_.find(peer);
  if (at == accesses_.end()) return;
  std::erase(busy_, &at->second);
  (void)epoll_ctl(any_readable_, EPOLL_CTL_DEL, at->second.network->wait_descriptor(), nullptr);
  accesses_.erase(at);
  may_give_back_ = true;
}

bool OfiExposure::progress() {
  // The megabytes of an endpoint lie scattered in the heap, which keeps them for whoever comes next. Once for all that were
  // closed together.
  if (std::exchange(may_give_back_, false)) (void)malloc_trim(0);
  std::array<epoll_event, 32> events;
  const int readable = epoll_wait(any_readable_, events.data(), events.size(), 0);
  for (int i = 0; i < readable; ++i) {
    auto* access = static_cast<Access*>(events[static_cast<std::size_t>(i)].data.ptr);
    if (std::find(busy_.begin(), busy_.end(), access) == busy_.end()) busy_.push_back(access);
  }
  std::erase_if(busy_, [](Access* access) {
    // What compute nodes do to the memory leaves no entry; the errors of those that are gone need no answer.
    fi_cq_msg_entry entry;
    if (fi_cq_read(access->network->queue(), &entry, 1) == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      (void)fi_cq_readerr(access->network->queue(), &error, 0);
    }
    return access->network->may_wait();
  });
  return readable > 0;
}

}  // namespace declock::ofi
