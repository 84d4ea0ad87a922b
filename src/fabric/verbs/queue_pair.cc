#include "verbs/queue_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/check.h"

namespace declock::verbs {
namespace {

// A lost packet is sent again after 4.096 us times two to the power of this: 0.5 s, and so six times. Seven, the most,
// is for ever to Soft-RoCE, and zero is never. So long for the sake of busy machines: that a memory node is gone shows
// elsewhere first.
constexpr std::uint8_t kTimeout = 17;
constexpr std::uint8_t kRetries = 6;
// A receiver that has no room is asked again after 0.64 ms, for as long as it takes.
constexpr std::uint8_t kNotReadyTimer = 12;
constexpr std::uint8_t kNotReadyRetries = 7;

}  // namespace

Card card_of(const Device& device, Card::Kind kind) {
  Card card;
  card.kind = kind;
  card.is_ethernet = device.is_ethernet;
  card.mtu = static_cast<std::uint8_t>(device.mtu);
  card.reads = static_cast<std::uint8_t>(
      std::min({device.limits.max_qp_rd_atom, device.limits.max_qp_init_rd_atom, 255}));
  card.lid = device.lid;
  std::copy(std::begin(device.gid.raw), std::end(device.gid.raw), card.gid.begin());
  return card;
}

// The first packet's number is random, so that packets for an earlier queue pair of the same number do not fit.
QueuePair::QueuePair(const Device& device, Qp qp)
    : device_(&device),
      qp_(std::move(qp)),
      first_packet_(std::random_device{}() & 0xFF'FFFF),
      reads_(card_of(device, Card::Kind::address).reads) {}

Result<QueuePair, std::string> QueuePair::make(const Device& device, const Config& config) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = config.sends;
  wanted.recv_cq = config.receives;
  wanted.srq = config.inbox;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {.max_send_wr = config.depth,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
  Qp qp{ibv_create_qp(device.domain.get(), &wanted)};
  if (!qp) return Failure{device.error("no queue pair can be made")};
  QueuePair made{device, std::move(qp)};

  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device.port;
  attributes.qp_access_flags = config.access;
  const auto modified = made.modify(
      attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "initialized");
  if (!modified) return Failure{modified.error()};
  return made;
}

Card QueuePair::card(Card::Kind kind) const {
  Card card = card_of(*device_, kind);
  card.reads = reads_;
  card.queue_pair = qp_->qp_num;
  card.first_packet = first_packet_;
  return card;
}

Result<void, std::string> QueuePair::modify(ibv_qp_attr& attributes, int mask, const char* to) {
  errno = ibv_modify_qp(qp_.get(), &attributes, mask);
  if (errno != 0) return Failure{device_->error(fmt::format("a queue pair cannot be {}", to))};
  return {};
}

Result<void, std::string> QueuePair::listen(const Card& other) {
  if (other.is_ethernet != device_->is_ethernet) {
    const auto link = [](bool is_ethernet) { return is_ethernet ? "Ethernet" : "InfiniBand"; };
    return Failure{fmt::format(
        "verbs device {} is on {}, the other side's on {}; name a device on the same network",
        device_->name, link(device_->is_ethernet), link(other.is_ethernet))};
  }
  reads_ = std::min(reads_, other.reads);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(device_->mtu, static_cast<ibv_mtu>(other.mtu));
  attributes.dest_qp_num = other.queue_pair;
  attributes.rq_psn = other.first_packet;
  attributes.max_dest_rd_atomic = reads_;
  attributes.min_rnr_timer = kNotReadyTimer;
  attributes.ah_attr.port_num = device_->port;
  attributes.ah_attr.dlid = other.lid;
  attributes.ah_attr.is_global = device_->is_ethernet ? 1 : 0;
  std::copy(other.gid.begin(), other.gid.end(), std::begin(attributes.ah_attr.grh.dgid.raw));
  attributes.ah_attr.grh.sgid_index = device_->gid_index;
  attributes.ah_attr.grh.hop_limit = 64;
  return modify(attributes,
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                "connected to the other side; does its address answer?");
}

Result<void, std::string> QueuePair::talk(const Card& other) {
  if (auto listening = listen(other); !listening) return listening;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = first_packet_;
  attributes.timeout = device_->repeats ? kTimeout : 0;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kNotReadyRetries;
  attributes.max_rd_atomic = reads_;
  return modify(attributes,
                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_MAX_QP_RD_ATOMIC,
                "made ready to send");
}

bool QueuePair::post(ibv_send_wr& first) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_.get(), &first, &bad) == 0;
}

void QueuePair::stop() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  CHECK(ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE) == 0);
}

}  // namespace declock::verbs
