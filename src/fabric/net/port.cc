#include "net/port.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace declock::net {
namespace {

// What goes from port to port through a memory node begins with one of these.
const Blob kOfTransport = "t";
const Blob kPacket = "p";

static_assert(sizeof(PacketWords) < kBlobMax);

Blob as_blob(const Packet& packet) {
  PacketWords words;
  const std::size_t count = pack(packet, words);
  Blob blob = kPacket;
  blob.append(reinterpret_cast<const char*>(words.data()), count * sizeof words[0]);
  return blob;
}

std::optional<Packet> packet_in(const Blob& blob) {
  if (!blob.starts_with(kPacket)) return {};
  return unpack(std::as_bytes(std::span{blob}.subspan(kPacket.size())));
}

}  // namespace

Port::Port(Config config, std::unique_ptr<Transport> transport, Worker& worker,
           Switchboard& switchboard)
    : config_(config),
      transport_(std::move(transport)),
      worker_(worker),
      switchboard_(switchboard),
      streams_(
          config.self, [this](const PeerId& to, Packet& packet) { return transmit(to, packet); },
          [this](const PeerId& to) { transport_->reconnect(to); },
          [this](const PeerId& to, Packet& packet) { relay(to, packet); }),
      behind_(worker.frames()) {}

Port::~Port() {
  behind_.clear();
}

void Port::add(NetEndpoint& endpoint) {
  endpoints_.push_back(&endpoint);
}

Port::Link& Port::link(MnId mn) {
  while (mn.value >= links_.size()) links_.emplace_back();
  return links_[mn.value];
}

std::uint32_t Port::incarnation(MnId mn) const {
  return mn.value < links_.size() ? links_[mn.value].incarnation : 1;
}

// ---------------------------------------------------------------- operations

void Port::submit(Doorbell& doorbell) {
  const MnId mn = doorbell.ops()[0]->addr.mn;
  Link& over = link(mn);
  if (evicted_) return doorbell.complete(Errc::evicted);
  for (const Op* op : doorbell.ops()) {
    const std::uint32_t meant = op->incarnation != 0 ? op->incarnation : switchboard_.meant(mn);
    if (meant != 0 && meant != over.incarnation) return doorbell.complete(Errc::mn_restarted);
  }
  if (!over.is_open) return doorbell.complete(Errc::outcome_unknown);

  if (spare_flights_.empty()) spare_flights_.push_back(std::make_unique<Flight>());
  flights_.push_back(std::move(spare_flights_.back()));
  spare_flights_.pop_back();
  Flight& flight = *flights_.back();
  flight.index = flights_.size() - 1;
  flight.doorbell = &doorbell;
  flight.connection = over.connection;
  flight.since = worker_.now();
  flight.is_posted = flight.ends = false;
  flight.mn = mn;
  flight.count = 0;
  for (const Op* op : doorbell.ops()) {
    // The caller's memory may be gone before the network is done with it, so it gets ours.
    Work& work = flight.works[flight.count++];
    work = {op->kind, op->addr.offset, transport_->take(op->words()), op->operand, op->expected};
    if (op->kind == OpKind::write) std::copy(op->from.begin(), op->from.end(), work.local.begin());
  }
  over.unposted.push_back(&flight);
  unposted_ += 1;
  post_unposted(mn);
  if (!watching_) {
    watching_ = true;
    behind_.spawn(watch_the_clock());
  }
}

// In their order (F1).
void Port::post_unposted(MnId mn) {
  Link& over = link(mn);
  while (!over.unposted.empty()) {
    Flight& first = *over.unposted.front();
    if (!transport_->post(first)) return;
    first.is_posted = true;
    over.unposted.pop_front();
    unposted_ -= 1;
  }
}

void Port::abandon(Doorbell& doorbell) {
  for (const auto& flight : flights_) {
    if (flight->doorbell == &doorbell) flight->doorbell = nullptr;
  }
}

void Port::on_complete(Batch& batch, Errc status) {
  Flight& flight = static_cast<Flight&>(batch);
  // Ends this one too. One that is left over from an earlier connection has been ended.
  if (status != Errc::ok && flight.connection == link(batch.mn).connection) break_link(batch.mn);
  Doorbell* doorbell = flight.doorbell;
  if (status == Errc::ok && doorbell != nullptr) {
    for (std::size_t i = 0; i < batch.count; ++i) {
      Op& op = *doorbell->ops()[i];
      const std::span<std::uint64_t> local = batch.works[i].local;
      if (op.kind == OpKind::read) std::copy(local.begin(), local.end(), op.into.begin());
      if (is_atomic(op.kind)) op.old = local[0];
    }
  }
  release(flight);
  if (doorbell != nullptr) doorbell->complete(status);
}

void Port::release(Flight& flight) {
  for (std::size_t i = 0; i < flight.count; ++i) transport_->give_back(flight.works[i].local);
  flight.doorbell = nullptr;
  const std::size_t index = flight.index;
  spare_flights_.push_back(std::move(flights_[index]));
  if (index + 1 < flights_.size()) {
    flights_[index] = std::move(flights_.back());
    flights_[index]->index = index;
  }
  flights_.pop_back();
}

void Port::break_link(MnId mn, Errc unposted) {
  Link& over = link(mn);
  if (!over.is_open) return;
  over.is_open = false;
  over.connection += 1;
  transport_->drop(mn);
  for (const auto& flight : flights_) {
    if (flight->mn == mn) flight->ends = true;
  }
  unposted_ -= over.unposted.size();
  std::deque<Flight*> never_posted = std::exchange(over.unposted, {});
  // Each may post again, or destroy another that is about to be told: so one at a time, looked up each time.
  for (;;) {
    const auto next = std::find_if(flights_.begin(), flights_.end(),
                                   [](const auto& f) { return f->ends && f->doorbell != nullptr; });
    if (next == flights_.end()) break;
    const Errc status = (*next)->is_posted ? Errc::outcome_unknown : unposted;
    std::exchange((*next)->doorbell, nullptr)->complete(status);
  }
  for (Flight* flight : never_posted) release(*flight);
}

// Nothing says that a peer has died but that it does not answer.
Task<void> Port::watch_the_clock() {
  while (!flights_.empty()) {
    co_await worker_.sleep_for(Duration{config_.patience.ns / 4});
    const Time latest{worker_.now().ns - config_.patience.ns};
    std::vector<MnId> late;
    for (const auto& flight : flights_) {
      if (flight->doorbell != nullptr && flight->since < latest) late.push_back(flight->mn);
    }
    for (const MnId mn : late) break_link(mn);
  }
  watching_ = false;
}

// ---------------------------------------------------------------- connections

Port::Opened::~Opened() {
  if (woken.armed_as != 0) port.worker_.disarm(woken);
  std::erase(port.link(mn).waiting, &woken);
}

void Port::Opened::await_suspend(std::coroutine_handle<> coroutine) {
  woken.waiter = coroutine;
  port.link(mn).waiting.push_back(&woken);
}

Task<Result<void>> Port::reopen(Worker&, Port& port, MnId mn) {
  for (;;) {  // until the memory node is there
    Link& over = port.link(mn);
    if (port.evicted_) co_return Failure{Errc::evicted};
    // Everything that was posted before it opened is closed for good.
    if (over.is_open && over.incarnation >= port.switchboard_.incarnation(mn)) co_return Result<void>{};
    port.attach(mn);
    co_await Opened{port, mn};
  }
}

void Port::attach(MnId mn) {
  Link& over = link(mn);
  if (evicted_ || over.is_attaching) return;
  break_link(mn);
  const Result<Blob, std::string> offer = transport_->offer(mn);
  CHECK(offer);
  over.is_attaching = true;
  switchboard_.attach(config_.self.worker, mn, *offer);
}

void Port::on_attached(MnId mn, std::uint32_t incarnation, const Blob& answer) {
  Link& over = link(mn);
  over.is_attaching = false;
  if (evicted_) return;
  if (!transport_->connect(mn, answer)) return attach(mn);
  over.incarnation = incarnation;
  over.is_open = true;
  wake_waiting(over);
}

void Port::wake_waiting(Link& over) {
  for (Timer* woken : std::exchange(over.waiting, {})) worker_.arm(*woken, worker_.now());
}

void Port::lose(MnId mn) {
  break_link(mn);
}

void Port::evict() {
  if (evicted_) return;
  evicted_ = true;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    break_link(MnId{static_cast<std::uint16_t>(i)}, Errc::evicted);
    wake_waiting(links_[i]);
  }
}

// ---------------------------------------------------------------- messages

const PeerAddresses* Port::find(Slot slot) const {
  return slot.value < peers_.size() && !peers_[slot.value].workers.empty() ? &peers_[slot.value]
                                                                           : nullptr;
}

// It was a member before, or its slot belongs to a later one. Whoever is not known yet may come.
bool Port::is_gone(const PeerId& peer) const {
  if (peer.slot.value >= peers_.size()) return false;
  const PeerAddresses& last = peers_[peer.slot.value];
  return last.incarnation > peer.incarnation ||
         (last.incarnation == peer.incarnation && last.workers.empty());
}

void Port::on_peers(const std::vector<PeerAddresses>& peers) {
  for (PeerAddresses& old : peers_) {
    const bool stays = std::any_of(peers.begin(), peers.end(), [&](const PeerAddresses& p) {
      return p.slot == old.slot && p.incarnation == old.incarnation;
    });
    if (stays) continue;
    for (std::size_t w = 0; w < old.workers.size(); ++w) {
      const PeerId gone{old.slot, old.incarnation, static_cast<std::uint16_t>(w)};
      transport_->forget(gone);
    }
    old.workers.clear();
  }
  for (const PeerAddresses& peer : peers) {
    if (peer.slot.value >= peers_.size()) peers_.resize(peer.slot.value + 1u);
    peers_[peer.slot.value] = peer;
  }
  // Also of those that came and went between two views, and were heard.
  streams_.forget([this](const PeerId& peer) { return is_gone(peer); });
}

void Port::send(EndpointId from, EndpointId to, const Message& message) {
  const std::uint32_t number = to.value % config_.endpoints;
  const PeerAddresses* peer = find(Slot{static_cast<std::uint16_t>(to.value / config_.endpoints)});
  if (peer == nullptr) return;  // it has left
  const auto worker = static_cast<std::uint16_t>(number % peer->workers.size());
  const PeerId id{peer->slot, peer->incarnation, worker};
  const Packet packet{.from = from, .to = to, .message = message};
  if (id == config_.self) return early_.push_back(packet);  // heard at the next turn
  streams_.send(id, packet, worker_.now());
  watch_streams();
}

const Address* Port::address_of(const PeerId& to) const {
  const PeerAddresses* peer = find(to.slot);
  // Not heard of yet: this node's view is older than its message.
  if (peer == nullptr || peer->incarnation != to.incarnation) return nullptr;
  return &peer->workers[to.worker % peer->workers.size()];
}

bool Port::transmit(const PeerId& to, Packet& packet) {
  const Address* address = address_of(to);
  // It counts as lost, and whoever is not thanked sends again. To try until the address is known would never end if the
  // peer has died meanwhile.
  if (address == nullptr) return true;
  packet.cookie = address->cookie;
  return transport_->send(to, address->blob, packet);
}

// Through a memory node, over control connections.
void Port::relay(const PeerId& to, Packet& packet) {
  const Address* address = address_of(to);
  if (address == nullptr) return;
  packet.cookie = address->cookie;
  switchboard_.ask(config_.self.worker, to, as_blob(packet));
}

void Port::watch_streams() {
  if (std::exchange(streams_watched_, true)) return;
  behind_.spawn(keep_streams_going());
}

Task<void> Port::keep_streams_going() {
  while (streams_.is_busy() && !evicted_) {
    co_await worker_.sleep_for(Streams::kAcknowledgeAfter);
    streams_.pump(worker_.now());
  }
  streams_watched_ = false;
}

void Port::on_packet(const Packet& packet) {
  if (packet.cookie != config_.cookie) return;  // from somebody who is no member
  if (is_gone(packet.sender)) return;           // there is nobody to thank
  const bool is_next = streams_.arrives(packet, worker_.now());
  watch_streams();
  if (is_next) hear(packet);
}

void Port::hear(const Packet& packet) {
  for (NetEndpoint* endpoint : endpoints_) {
    if (endpoint->id() != packet.to) continue;
    const bool is_first =
        std::none_of(early_.begin(), early_.end(), [&](const Packet& p) { return p.to == packet.to; });
    if (endpoint->listens() && is_first) return endpoint->hear(packet.from, packet.message);
    constexpr std::size_t kEarlyMax = 65'536;
    if (early_.size() < kEarlyMax) early_.push_back(packet);
  }
}

void Port::hear_early() {
  std::deque<Packet> early;
  early.swap(early_);
  for (const Packet& packet : early) hear(packet);
}

void Port::on_ask(const PeerId& peer, const Blob& blob) {
  switchboard_.ask(config_.self.worker, peer, kOfTransport + blob);
}

Result<Blob, std::string> Port::accept(const PeerId& from, const Blob& asked) {
  if (const std::optional<Packet> packet = packet_in(asked)) {
    on_packet(*packet);
    Packet thanks = streams_.thanks_to(from);
    const Address* address = address_of(from);
    if (address != nullptr) thanks.cookie = address->cookie;
    return as_blob(thanks);
  }
  if (!asked.starts_with(kOfTransport))
    return Failure{std::string{"neither a message nor a transport's"}};
  streams_.starts_again(from, worker_.now());
  Result<Blob, std::string> answer = transport_->accept(from, asked.substr(kOfTransport.size()));
  if (answer) *answer = kOfTransport + *answer;
  return answer;
}

void Port::on_accepted(const PeerId& by, const Blob& answer) {
  if (const std::optional<Packet> packet = packet_in(answer)) return on_packet(*packet);
  if (answer.starts_with(kOfTransport)) transport_->accepted(by, answer.substr(kOfTransport.size()));
}

bool Port::poll() {
  if (!early_.empty()) hear_early();
  if (streams_.is_urgent()) streams_.pump(worker_.now());
  if (unposted_ > 0) {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      if (links_[i].is_open) post_unposted(MnId{static_cast<std::uint16_t>(i)});
    }
  }
  return transport_->poll(*this);
}

}  // namespace declock::net
