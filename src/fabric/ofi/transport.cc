#include "ofi/transport.h"

#include <fmt/format.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "base/check.h"
#include "ofi/exposure.h"
#include "ofi/library.h"

namespace declock::ofi {
namespace {

constexpr std::size_t kArriving = 64;
// A completion's context: of a message that arrived, its buffer; of one that was sent, the connection; or else the number of a
// flight and its count of uses.
constexpr std::uint64_t kArrived = std::uint64_t{1} << 63;
constexpr std::uint64_t kSent = std::uint64_t{1} << 62;
constexpr std::uint32_t next_use(std::uint32_t uses) {
  return (uses + 1) & 0x3FFF'FFFF;  // as many bits as a context has left
}

void* as_context(std::uint64_t number) {
  return reinterpret_cast<void*>(number);  // NOLINT: libfabric hands it back untouched
}

}  // namespace

Result<std::unique_ptr<OfiTransport>, std::string> OfiTransport::open(const std::string& host) {
  auto network = Network::open(host);
  if (!network) return Failure{network.error()};
  auto endpoint = (*network)->make_endpoint();
  if (!endpoint) return Failure{endpoint.error()};
  return std::unique_ptr<OfiTransport>{new OfiTransport{std::move(*network), std::move(*endpoint)}};
}

OfiTransport::OfiTransport(std::unique_ptr<Network> network, Owned<fid_ep> endpoint)
    : network_(std::move(network)), endpoint_(std::move(endpoint)), arriving_(kArriving) {
  for (std::size_t i = 0; i < kArriving; ++i) listen_again(i);
}

OfiTransport::~OfiTransport() {
  endpoint_.reset();  // nothing writes to our memory any more
}

void OfiTransport::listen_again(std::size_t buffer) {
  const ssize_t posted = fi_recv(endpoint_.get(), &arriving_[buffer], sizeof(net::PacketWords), nullptr,
                                 FI_ADDR_UNSPEC, as_context(kArrived | buffer));
  // There is room for kArriving. If none is left, all listen: the error was told of one that had never stopped.
  if (posted == 0 || posted == -FI_EAGAIN) return;
  fmt::print(stderr, "declock: libfabric takes no buffer for messages: {}\n",
             library().strerror(static_cast<int>(-posted)));
  std::abort();
}

// ---------------------------------------------------------------- memory nodes

OfiTransport::Link& OfiTransport::link(MnId mn) {
  if (mn.value >= links_.size()) links_.resize(mn.value + 1u);
  return links_[mn.value];
}

Result<net::Blob, std::string> OfiTransport::offer(MnId mn) {
  drop(mn);
  return net::Blob{};  // the memory node needs to know nothing: it is we who connect
}

Result<void, std::string> OfiTransport::connect(MnId mn, const net::Blob& answer) {
  const std::optional<AccessAnswer> access = AccessAnswer::from_blob(answer, *network_);
  if (!access) return Failure{fmt::format("memory node {} gave an address that is none", mn.value)};
  Link& to = link(mn);
  if (fi_av_insert(network_->addresses(), access->address.data(), 1, &to.address, 0, nullptr) != 1)
    return Failure{
        fmt::format("memory node {} gave an address that libfabric does not take", mn.value)};
  to.key = access->key;
  to.connected = true;
  to.connection += 1;
  return {};
}

void OfiTransport::drop(MnId mn) {
  Link& to = link(mn);
  for (const Piece& piece : to.queue) {
    piece.batch->status = Errc::outcome_unknown;
    if (--piece.batch->unfinished == 0) finished_.push_back(piece.batch);
  }
  to.queue.clear();
  to.under_way = {};
  if (!to.connected) return;
  to.connected = false;
  to.connection += 1;
  (void)fi_av_remove(network_->addresses(), &to.address, 1, 0);
}

bool OfiTransport::post(net::Batch& batch) {
  batch.status = Errc::ok;
  batch.unfinished = 0;
  Link& to = link(batch.mn);
  CHECK(to.connected);
  for (std::uint32_t i = 0; i < batch.count; ++i) {
    const net::Work& work = batch.works[i];
    const auto words = static_cast<std::uint32_t>(work.local.size());
    const bool is_large = words > kWholeWordsMax;
    const Way way = !is_large                   ? Way::atomic
                    : work.kind == OpKind::read ? Way::rma_read
                                                : Way::rma_write;
    const std::uint32_t at_most = is_large ? words : static_cast<std::uint32_t>(kWordsPerAtomic);
    for (std::uint32_t from = 0; from < words; from += at_most) {
      const std::uint32_t here = std::min(at_most, words - from);
      to.queue.push_back({&batch, i, from, here, way, from + here == words});
      batch.unfinished += 1;
    }
  }
  pump(to, nullptr, batch.mn);
  return true;
}

bool OfiTransport::may_follow(const Link& link, Way way) {
  const auto under_way = [&](Way w) { return link.under_way[static_cast<std::size_t>(w)] > 0; };
  // A large WRITE is in the memory before what comes behind it in the stream is looked at.
  if (way == Way::atomic) return !under_way(Way::rma_read);
  if (way == Way::rma_read) return !under_way(Way::atomic);
  return !under_way(Way::atomic) && !under_way(Way::rma_read);
}

// Posts what may be posted. Without a sink errors wait until there is one.
void OfiTransport::pump(Link& to, Sink* sink, MnId mn) {
  while (to.connected && !to.queue.empty() && may_follow(to, to.queue.front().way)) {
    if (free_flights_.empty()) {
      free_flights_.push_back(static_cast<std::uint32_t>(flights_.size()));
      flights_.emplace_back();
    }
    const std::uint32_t number = free_flights_.back();
    Flight& flight = flights_[number];
    const Piece piece = to.queue.front();
    const ssize_t posted =
        issue(to, piece, as_context(std::uint64_t{next_use(flight.uses)} << 32 | (number + 1)));
    if (posted == -FI_EAGAIN) return;
    if (posted != 0) {
      if (sink != nullptr) sink->on_broken(mn);
      return;
    }
    flight = {piece, mn, to.connection, next_use(flight.uses), true};
    free_flights_.pop_back();
    to.queue.pop_front();
    to.under_way[static_cast<std::size_t>(piece.way)] += 1;
  }
}

ssize_t OfiTransport::issue(const Link& to, const Piece& piece, void* context) {
  net::Work& work = piece.batch->works[piece.work];
  std::uint64_t* local = work.local.data() + piece.first_word;
  const std::uint64_t offset = work.offset + std::uint64_t{8} * piece.first_word;
  fid_ep* ep = endpoint_.get();
  if (piece.way == Way::rma_read)
    return fi_read(ep, local, std::size_t{8} * piece.words, nullptr, to.address, offset, to.key,
                   context);
  if (piece.way == Way::rma_write)
    return fi_write(ep, local, std::size_t{8} * piece.words, nullptr, to.address, offset, to.key,
                    context);
  switch (work.kind) {
    case OpKind::read:
      return fi_fetch_atomic(ep, local, piece.words, nullptr, local, nullptr, to.address, offset,
                             to.key, FI_UINT64, FI_ATOMIC_READ, context);
    case OpKind::write:
      return fi_atomic(ep, local, piece.words, nullptr, to.address, offset, to.key, FI_UINT64,
                       FI_ATOMIC_WRITE, context);
    case OpKind::fetch_add:
      return fi_fetch_atomic(ep, &work.operand, 1, nullptr, local, nullptr, to.address, offset, to.key,
                             FI_UINT64, FI_SUM, context);
    case OpKind::compare_swap:
      return fi_compare_atomic(ep, &work.operand, 1, nullptr, &work.expected, nullptr, local, nullptr,
                               to.address, offset, to.key, FI_UINT64, FI_CSWAP, context);
    case OpKind::masked_compare_swap:
      break;
  }
  CHECK(false);  // nobody posts what has_masked_compare_swap() denies
  return 0;
}

std::span<std::uint64_t> OfiTransport::take(std::size_t words) {
  auto& spare = spare_[std::bit_ceil(words)];
  if (spare.empty()) {
    auto made = std::make_unique_for_overwrite<std::uint64_t[]>(std::bit_ceil(words));
    spare.push_back(made.get());
    memory_.emplace(made.get(), std::move(made));
  }
  std::uint64_t* memory = spare.back();
  spare.pop_back();
  return {memory, words};
}

void OfiTransport::give_back(std::span<std::uint64_t> words) {
  constexpr std::size_t kWorthKeeping = 4096;
  if (words.size() > kWorthKeeping) {
    memory_.erase(words.data());
  } else {
    spare_[std::bit_ceil(words.size())].push_back(words.data());
  }
}

// ---------------------------------------------------------------- other workers

bool OfiTransport::send(const net::PeerId& to, const net::Blob& address, const net::Packet& packet) {
  auto at = peers_.find(to);
  if (at == peers_.end()) {
    fi_addr_t found = FI_ADDR_UNSPEC;
    if (!network_->is_address(address) ||
        fi_av_insert(network_->addresses(), address.data(), 1, &found, 0, nullptr) != 1)
      return true;  // nobody is there: as lost as if it had just died
    at = peers_.emplace(to, Peer{found, ++peer_connections_}).first;
  }
  net::PacketWords words;
  iovec bytes{words.data(), net::pack(packet, words) * sizeof words[0]};
  fi_msg message{};
  message.msg_iov = &bytes;
  message.iov_count = 1;
  message.addr = at->second.address;
  message.context = as_context(kSent | at->second.connection);
  // Copied. Its completion says nothing of interest but an error.
  return fi_sendmsg(endpoint_.get(), &message, FI_INJECT) == 0;
}

void OfiTransport::forget(const net::PeerId& peer) {
  const auto at = peers_.find(peer);
  if (at == peers_.end()) return;
  (void)fi_av_remove(network_->addresses(), &at->second.address, 1, 0);
  peers_.erase(at);
}

// A message could not be sent. The provider goes on with a connection that was reset, and refuses another from the same peer,
// until the address is removed.
void OfiTransport::drop_peer_connection(std::uint64_t connection) {
  const auto at = std::find_if(peers_.begin(), peers_.end(),
                               [&](const auto& p) { return p.second.connection == connection; });
  if (at != peers_.end()) forget(net::PeerId{at->first});
}

// The other end may not know that the connection is gone, and then it refuses another.
void OfiTransport::reconnect(const net::PeerId& peer) {
  forget(peer);
  not_reached_.push_back(peer);
}

Result<net::Blob, std::string> OfiTransport::accept(const net::PeerId& from, const net::Blob&) {
  forget(from);
  return net::Blob{};
}

// ---------------------------------------------------------------- what arrives

bool OfiTransport::poll(Sink& sink) {
  while (!finished_.empty()) {
    net::Batch* batch = finished_.back();
    finished_.pop_back();
    sink.on_complete(*batch, batch->status);
  }
  for (const net::PeerId& peer : std::exchange(not_reached_, {})) sink.on_ask(peer, {});
  std::array<fi_cq_msg_entry, 16> entries;
  const ssize_t got = fi_cq_read(network_->queue(), entries.data(), entries.size());
  for (ssize_t i = 0; i < got; ++i) {
    const auto context = std::bit_cast<std::uint64_t>(entries[static_cast<std::size_t>(i)].op_context);
    if ((context & kSent) != 0) continue;
    if ((context & kArrived) == 0) {
      complete(context, Errc::ok, sink);
      continue;
    }
    const std::size_t buffer = context & ~kArrived;
    const std::size_t length = entries[static_cast<std::size_t>(i)].len;
    const std::optional<net::Packet> packet =
        net::unpack({reinterpret_cast<const std::byte*>(arriving_[buffer].data()), length});
    listen_again(buffer);
    if (packet) sink.on_packet(*packet);
  }
  if (got == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    if (fi_cq_readerr(network_->queue(), &error, 0) == 1) {
      const auto context = std::bit_cast<std::uint64_t>(error.op_context);
      if ((context & kArrived) != 0) {
        listen_again(context & ~kArrived);
      } else if ((context & kSent) != 0) {
        drop_peer_connection(context & ~kSent);
      } else {
        complete(context, Errc::outcome_unknown, sink);
      }
    }
  }
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (!links_[i].queue.empty()) pump(links_[i], &sink, MnId{static_cast<std::uint16_t>(i)});
  }
  return got > 0 || got == -FI_EAVAIL;
}

void OfiTransport::complete(std::uint64_t context, Errc status, Sink& sink) {
  const std::uint64_t number = (context & 0xFFFF'FFFF) - 1;  // 0: an error that is told twice
  if (number >= flights_.size()) return;
  Flight& flight = flights_[number];
  if (!flight.in_use || flight.uses != context >> 32) return;
  flight.in_use = false;
  free_flights_.push_back(static_cast<std::uint32_t>(number));
  const Piece piece = flight.piece;
  const MnId mn = flight.mn;
  Link& to = link(mn);
  const bool is_current = to.connected && flight.connection == to.connection;
  if (is_current) to.under_way[static_cast<std::size_t>(piece.way)] -= 1;
  net::Batch& batch = *piece.batch;
  if (status != Errc::ok) batch.status = status;
  if (status == Errc::ok && piece.ends_work)
    counts_.completed[static_cast<std::size_t>(batch.works[piece.work].kind)] += 1;
  if (--batch.unfinished == 0) sink.on_complete(batch, batch.status);
  if (status != Errc::ok && is_current) sink.on_broken(mn);
}

}  // namespace declock::ofi
