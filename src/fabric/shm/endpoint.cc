#include "shm/endpoint.h"

#include <algorithm>

#include "base/check.h"

namespace declock::shm {

ShmEndpoint::ShmEndpoint(const Cluster& cluster, std::uint32_t incarnation,
                         const std::atomic<bool>& evicted, EndpointId id, Worker& worker)
    : Endpoint(id, worker),
      cluster_(cluster),
      self_{cluster.owner_of(id), static_cast<std::uint16_t>(id.value % cluster.shape().endpoints),
            incarnation},
      evicted_(evicted),
      mn_incarnation_(cluster.incarnation()),
      mailbox_(cluster.mailbox(id)) {}

Task<Result<void>> ShmEndpoint::reconnect(MnId) {
  co_return Result<void>{};  // nothing is ever on its way
}

bool ShmEndpoint::add_at_once(RemoteAddr addr, std::uint64_t expected, std::uint64_t delta,
                              Purpose purpose) {
  if (is_evicted() || !cluster_.word(addr).compare_exchange_strong(expected, expected + delta))
    return false;
  count(Op::fetch_add(addr, delta, purpose));
  return true;
}

void ShmEndpoint::ring(Doorbell& doorbell) {
  if (is_evicted()) return doorbell.complete(Errc::evicted);
  for (const Op* op : doorbell.ops()) {
    if (op->incarnation != 0 && op->incarnation != mn_incarnation_)
      return doorbell.complete(Errc::mn_restarted);
  }
  for (Op* op : doorbell.ops()) perform(*op);
  doorbell.complete(Errc::ok);
}

// In program order. All is sequentially consistent but the first words of a long WRITE, so others see that order too
// (F1); the words of a READ or a WRITE are accessed one by one (F3, H13).
void ShmEndpoint::perform(Op& op) const {
  CHECK(cluster_.holds(op.addr, op.words()));
  const auto word = [&](std::size_t i) { return cluster_.word(op.addr + i * 8); };
  switch (op.kind) {
    case OpKind::read:
      for (std::size_t i = 0; i < op.into.size(); ++i) {
        op.into[i] = word(i).load();
      }
      break;
    case OpKind::write:
      // Release: no earlier operation goes behind it. The last one keeps later ones from going before it.
      for (std::size_t i = 0; i + 1 < op.from.size(); ++i) {
        word(i).store(op.from[i], std::memory_order_release);
      }
      word(op.from.size() - 1).store(op.from.back());
      break;
    case OpKind::fetch_add:
      op.old = word(0).fetch_add(op.operand);
      break;
    case OpKind::compare_swap:
      op.old = op.expected;
      word(0).compare_exchange_strong(op.old, op.operand);
      break;
    case OpKind::masked_compare_swap:
      op.old = word(0).load();
      while ((op.old & op.compare_mask) ==
             (op.expected & op.compare_mask)) {  // ends: somebody else got on
        if (word(0).compare_exchange_weak(op.old,
                                          (op.old & ~op.swap_mask) | (op.operand & op.swap_mask)))
          break;
      }
      break;
  }
}

void ShmEndpoint::transmit(EndpointId to, const Message& message) {
  if (!is_evicted()) send_rest(to, message, 0);
}

void ShmEndpoint::send_rest(EndpointId to, const Message& message, std::size_t sent) {
  // In order: not before what could not be sent yet, or not all of it (M4).
  if (is_waiting(to) || !try_send(to, message, sent)) unsent_.push_back({to, message, sent});
}

bool ShmEndpoint::is_waiting(EndpointId to) const {
  return std::any_of(unsent_.begin(), unsent_.end(), [&](const Unsent& u) { return u.to == to; });
}

void ShmEndpoint::send_again() {
  std::vector<Unsent> all;
  all.swap(unsent_);
  for (const Unsent& u : all) {
    const bool gone = !MemberWord::of(cluster_.member(cluster_.owner_of(u.to)).word.load()).live;
    if (!gone) send_rest(u.to, u.message, u.sent);
  }
}

bool ShmEndpoint::try_send(EndpointId to, const Message& message, std::size_t& sent) {
  const bool all = cluster_.mailbox(to).send(self_, id(), message, sent);
  wake(to);  // also if it is full: a claim that is in the way is passed over once the reader has looked
  return all;
}

void ShmEndpoint::wake(EndpointId to) const {
  if (!declock::ring(cluster_.bell_of(to)))
    (void)declock::ring(cluster_.dispatcher_bell(cluster_.owner_of(to)));
}

// Who is evicted reads nothing either: the mailbox is for whoever has the slot next.
bool ShmEndpoint::poll() {
  if (is_evicted()) return false;
  if (!unsent_.empty()) send_again();
  return mailbox_.receive(
      parts_, [this](const Sender& sender) { return cluster_.is_alive(sender); },
      [this](EndpointId from, const Message& message) {
        if (receiver() != nullptr) receiver()->on_message(from, message);
      });
}

bool ShmWorker::poll() {
  bool any = false;
  if (news_.load(std::memory_order_relaxed) && news_.exchange(false)) {
    if (on_news_) on_news_();
    any = true;
  }
  for (ShmEndpoint* endpoint : endpoints_) any = endpoint->poll() || any;
  return any;
}

bool ShmWorker::anything_arrived() const {
  if (news_.load()) return true;
  for (const ShmEndpoint* endpoint : endpoints_) {
    if (endpoint->anything_arrived()) return true;
  }
  return false;
}

bool ShmWorker::anything_unsaid() const {
  return std::any_of(endpoints_.begin(), endpoints_.end(),
                     [](const ShmEndpoint* endpoint) { return endpoint->anything_unsent(); });
}

Time ShmWorker::look_again() const {
  return anything_unsaid() ? now() + milliseconds(1) : kNever;
}

void ShmWorker::on_away(Time when) {
  if (dispatcher_until_ns_ != nullptr && when.ns >= dispatcher_until_ns_->load()) return;
  (void)declock::ring(*dispatcher_.load());
}

}  // namespace declock::shm
