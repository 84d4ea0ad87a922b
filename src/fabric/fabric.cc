#include "fabric/fabric.h"

namespace declock {

std::string_view to_string(OpKind kind) {
  constexpr std::array<std::string_view, kOpKinds> kNames{"read", "write", "fetch_add", "compare_swap",
                                                          "masked_compare_swap"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Purpose purpose) {
  constexpr std::array<std::string_view, kPurposes> kNames{"acquire", "release", "refetch", "prefetch",
                                                           "reset",   "sync",    "data",    "verify"};
  return kNames[static_cast<std::size_t>(purpose)];
}

Op Op::masked_compare_swap(RemoteAddr addr, std::uint64_t expected, std::uint64_t compare_mask,
                           std::uint64_t desired, std::uint64_t swap_mask, Purpose purpose) {
  return {.kind = OpKind::masked_compare_swap,
          .purpose = purpose,
          .addr = addr,
          .operand = desired,
          .expected = expected,
          .compare_mask = compare_mask,
          .swap_mask = swap_mask};
}

std::uint64_t OpCounts::of(OpKind kind) const {
  std::uint64_t sum = 0;
  for (const std::uint64_t n : by_kind_and_purpose[static_cast<std::size_t>(kind)]) sum += n;
  return sum;
}

std::uint64_t OpCounts::of(Purpose purpose) const {
  std::uint64_t sum = 0;
  for (const auto& by_purpose : by_kind_and_purpose) {
    sum += by_purpose[static_cast<std::size_t>(purpose)];
  }
  return sum;
}

OpCounts& OpCounts::operator+=(const OpCounts& other) {
  for (std::size_t k = 0; k < kOpKinds; ++k) {
    for (std::size_t p = 0; p < kPurposes; ++p) {
      by_kind_and_purpose[k][p] += other.by_kind_and_purpose[k][p];
    }
  }
  messages += other.messages;
  return *this;
}

OpCounts& OpCounts::operator-=(const OpCounts& other) {
  for (std::size_t k = 0; k < kOpKinds; ++k) {
    for (std::size_t p = 0; p < kPurposes; ++p) {
      by_kind_and_purpose[k][p] -= other.by_kind_and_purpose[k][p];
    }
  }
  messages -= other.messages;
  return *this;
}

void Doorbell::complete(Errc status) {
  done_ = true;
  status_ = status;
  if (waiter_) waiter_.resume();
}

Task<Result<void>> post_until_known(Endpoint& endpoint, Op& op) {
  const std::uint32_t meant_for = endpoint.incarnation(op.addr.mn);
  bool perhaps_done = false;  // by an earlier attempt
  const auto failed = [&](Errc error) {
    return Failure{perhaps_done && op.kind != OpKind::read ? Errc::outcome_unknown : error};
  };
  for (;;) {  // ends: the connection is made again, or this compute node is evicted
    const Result<void> done = co_await endpoint.post(op);
    if (done) co_return done;
    if (done.error() != Errc::outcome_unknown) co_return failed(done.error());
    perhaps_done = true;
    const Result<void> closed = co_await endpoint.reconnect(op.addr.mn);
    if (!closed) co_return failed(closed.error());
    if (endpoint.incarnation(op.addr.mn) != meant_for) co_return failed(Errc::mn_restarted);
  }
}

}  // namespace declock
