#include "verbs/memory_nodes.h"

#include <algorithm>

#include "base/check.h"

namespace declock::verbs {
namespace {

std::size_t index(OpKind kind) {
  return static_cast<std::size_t>(kind);
}

bool is_pending(const std::array<std::size_t, kOpKinds>& by_kind, OpKind kind) {
  return by_kind[index(kind)] > 0;
}

// Why: see the header.
bool needs_fence(OpKind kind, const std::array<std::size_t, kOpKinds>& outstanding) {
  if (kind == OpKind::read) return false;
  if (is_pending(outstanding, OpKind::read)) return true;
  return kind == OpKind::write &&
         (is_pending(outstanding, OpKind::fetch_add) || is_pending(outstanding, OpKind::compare_swap));
}

}  // namespace

Result<std::unique_ptr<MemoryNodes>, std::string> MemoryNodes::make(const Device& device,
                                                                    const Slabs& slabs,
                                                                    ibv_comp_channel* channel) {
  auto completions = SendCompletions<Connection>::make(device, channel);
  if (!completions) return Failure{completions.error()};
  return std::unique_ptr<MemoryNodes>{new MemoryNodes{device, slabs, std::move(*completions)}};
}

std::unique_ptr<MemoryNodes::Connection>& MemoryNodes::connection_to(MnId mn) {
  if (mn.value >= connections_.size()) connections_.resize(mn.value + 1u);
  return connections_[mn.value];
}

Result<net::Blob, std::string> MemoryNodes::offer(MnId mn) {
  drop(mn);
  auto made = QueuePair::make(device_, {.sends = queue(), .receives = queue(), .depth = kDepth});
  if (!made) return Failure{made.error()};
  auto connection = std::make_unique<Connection>();
  connection->mn = mn;
  connection->queue_pair = std::make_unique<QueuePair>(std::move(*made));
  const net::Blob blob = connection->queue_pair->card(Card::Kind::offer).blob();
  connection_to(mn) = std::move(connection);
  return blob;
}

Result<void, std::string> MemoryNodes::connect(MnId mn, const net::Blob& answer) {
  const Result<Card, std::string> card = Card::read(answer, Card::Kind::answer);
  if (!card) return Failure{card.error()};
  Connection* on = connection_to(mn).get();
  if (on == nullptr || on->is_connected)
    return Failure{std::string{"this memory node was offered no connection"}};
  if (auto talking = on->queue_pair->talk(*card); !talking) return talking;
  on->key = card->key;
  on->memory = card->memory;
  on->memory_bytes = card->memory_bytes;
  on->is_connected = true;
  return {};
}

void MemoryNodes::drop(MnId mn) {
  break_down(mn);
  connection_to(mn).reset();
}

// What is left is a connection without a queue pair: whoever does not know it yet may go on posting.
void MemoryNodes::break_down(MnId mn) {
  std::unique_ptr<Connection>& slot = connection_to(mn);
  if (slot == nullptr || slot->queue_pair == nullptr) return;
  std::unique_ptr<Connection> broken = std::exchange(slot, std::make_unique<Connection>());
  slot->mn = mn;
  slot->is_connected = broken->is_connected;
  broken->queue_pair.reset();  // the device touches no batch's memory any more
  for (; broken->first < broken->end; ++broken->first)
    done_.add({broken->posted[broken->first % kDepth], Errc::outcome_unknown});
  const std::size_t requests = broken->requests;
  completions_.bury(std::move(broken), requests);
}

ibv_send_wr MemoryNodes::request(Connection& on, const net::Work& work, ibv_sge& local) const {
  const std::size_t bytes = work.local.size_bytes();
  CHECK(bytes <= on.memory_bytes && work.offset <= on.memory_bytes - bytes &&
        bytes <= device_.message_bytes_max);
  local = {reinterpret_cast<std::uint64_t>(work.local.data()), static_cast<std::uint32_t>(bytes),
           slabs_.key(work.local.data())};
  const std::uint64_t remote = on.memory + work.offset;
  ibv_send_wr request{};
  request.wr_id = reinterpret_cast<std::uint64_t>(&on);
  request.sg_list = &local;
  request.num_sge = 1;
  if (needs_fence(work.kind, on.by_kind)) request.send_flags = IBV_SEND_FENCE;
  switch (work.kind) {
    case OpKind::read:
    case OpKind::write:
      request.opcode = work.kind == OpKind::read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
      request.wr.rdma = {remote, on.key};
      return request;
    case OpKind::fetch_add:
      request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
      request.wr.atomic = {remote, work.operand, 0, on.key};
      return request;
    case OpKind::compare_swap:
      request.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
      request.wr.atomic = {remote, work.expected, work.operand, on.key};
      return request;
    case OpKind::masked_compare_swap:
      break;
  }
  CHECK(work.kind != OpKind::masked_compare_swap);  // not promised
  return request;
}

bool MemoryNodes::post(net::Batch& batch) {
  Connection* on = connection_to(batch.mn).get();
  CHECK(on != nullptr && on->is_connected && batch.count > 0);
  if (on->queue_pair == nullptr) {
    done_.add({&batch, Errc::outcome_unknown});
    return true;
  }
  if (on->requests + batch.count > kDepth || !completions_.take_room(batch.count)) return false;

  std::array<ibv_send_wr, Doorbell::kOpsMax> requests;
  std::array<ibv_sge, Doorbell::kOpsMax> locals;
  for (std::size_t i = 0; i < batch.count; ++i) {
    requests[i] = request(*on, batch.works[i], locals[i]);
    if (i > 0) requests[i - 1].next = &requests[i];
    on->by_kind[index(batch.works[i].kind)] += 1;
  }
  requests[batch.count - 1].send_flags |= IBV_SEND_SIGNALED;
  on->posted[on->end++ % kDepth] = &batch;
  on->requests += batch.count;
  if (!on->queue_pair->post(requests[0])) break_down(batch.mn);
  return true;
}

void MemoryNodes::complete_first(Connection& on) {
  CHECK(on.first < on.end);
  net::Batch& batch = *on.posted[on.first++ % kDepth];
  for (std::size_t i = 0; i < batch.count; ++i) {
    const std::size_t kind = index(batch.works[i].kind);
    on.by_kind[kind] -= 1;
    counts_.completed[kind] += 1;
  }
  on.requests -= batch.count;
  completions_.give_room(batch.count);
  done_.add({&batch, Errc::ok});
}

bool MemoryNodes::collect() {
  return completions_.collect([this](Connection& on, ibv_wc_status status) {
    if (on.queue_pair == nullptr) return;  // all of it has been told
    if (status == IBV_WC_SUCCESS) return complete_first(on);
    break_down(on.mn);
  });
}

bool MemoryNodes::tell(net::Transport::Sink& sink) {
  return done_.tell([&](const Done& done) { sink.on_complete(*done.batch, done.status); });
}

}  // namespace declock::verbs
