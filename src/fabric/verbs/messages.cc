#include "verbs/messages.h"

#include <algorithm>
#include <random>

#include "base/check.h"

namespace declock::verbs {

Result<std::unique_ptr<Messages>, std::string> Messages::make(const Device& device, Slabs& slabs,
                                                              ibv_comp_channel* channel) {
  auto completions = SendCompletions<Line>::make(device, channel);
  if (!completions) return Failure{completions.error()};
  std::unique_ptr<Messages> made{new Messages{device, slabs, std::move(*completions)}};
  if (const auto opened = made->open_inboxes(channel); !opened) return Failure{opened.error()};
  return made;
}

Result<void, std::string> Messages::open_inboxes(ibv_comp_channel* channel) {
  received_.reset(ibv_create_cq(device_.context.get(), kReceives, nullptr, channel, 0));
  if (!received_) return Failure{device_.error("no completion queue can be made")};
  ibv_srq_init_attr wanted{};
  wanted.attr = {.max_wr = kReceives, .max_sge = 1, .srq_limit = 0};
  room_.reset(ibv_create_srq(device_.domain.get(), &wanted));
  if (!room_) return Failure{device_.error("no shared receive queue can be made")};
  slots_ = slabs_.take(kReceives * kEnvelopeWordsMax);
  for (std::uint64_t slot = 0; slot < kReceives; ++slot) offer_room(slot);
  return {};
}

void Messages::offer_room(std::uint64_t slot) {
  std::uint64_t* words = slots_.data() + slot * kEnvelopeWordsMax;
  ibv_sge local{reinterpret_cast<std::uint64_t>(words), kEnvelopeWordsMax * sizeof *words,
                slabs_.key(words)};
  ibv_recv_wr request{};
  request.wr_id = slot;
  request.sg_list = &local;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  CHECK(ibv_post_srq_recv(room_.get(), &request, &bad) == 0);  // there is room for each slot
}

// ---------------------------------------------------------------- sending

net::Blob Messages::address() const {
  return card_of(device_, Card::Kind::address).blob();
}

// None: nothing can be sent to such an address.
Messages::Outbox* Messages::outbox(const net::PeerId& to, const net::Blob& address) {
  const auto found = outboxes_.find(to);
  if (found != outboxes_.end()) return &found->second;
  if (!Card::read(address, Card::Kind::address)) return nullptr;
  Outbox& box = outboxes_[to];
  box.to = to;
  // Random: a receiver must not take it for what an earlier outbox sent.
  std::random_device random;
  box.stream = std::uint64_t{random()} << 32 | random();
  return &box;
}

bool Messages::send(const net::PeerId& to, const net::Blob& address, const net::Packet& packet) {
  Outbox* box = outbox(to, address);
  if (box == nullptr) return false;
  if (box->line == nullptr) prepare_to_ask(*box);
  if (box->line == nullptr || !box->line->is_connected) return false;
  if (box->envelopes.size() == kDepth || !completions_.take_room(1)) return false;
  net::PacketWords words;
  const std::size_t count = net::pack(packet, words);
  const std::span<std::uint64_t> envelope = slabs_.take(1 + count);
  envelope[0] = ++box->last;
  std::copy_n(words.begin(), count, envelope.begin() + 1);
  box->envelopes.push_back(envelope);
  post(*box, envelope);
  return true;
}

// REQUIRES: connected, and room was taken.
void Messages::post(Outbox& box, std::span<std::uint64_t> envelope) {
  ibv_sge local{reinterpret_cast<std::uint64_t>(envelope.data()),
                static_cast<std::uint32_t>(envelope.size_bytes()), slabs_.key(envelope.data())};
  ibv_send_wr request{};
  request.wr_id = reinterpret_cast<std::uint64_t>(box.line.get());
  request.sg_list = &local;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  box.line->posted += 1;
  if (!box.line->queue_pair->post(request)) prepare_to_ask(box);
}

void Messages::on_sent(Line& line, ibv_wc_status status) {
  if (line.queue_pair == nullptr) return;
  if (status != IBV_WC_SUCCESS) return prepare_to_ask(*line.box);
  line.posted -= 1;
  slabs_.give_back(line.box->envelopes.front());  // they arrive in order
  line.box->envelopes.pop_front();
  completions_.give_room(1);
}

void Messages::hang_up(Outbox& box) {
  if (box.line == nullptr) return;
  box.line->queue_pair.reset();
  const std::size_t posted = box.line->posted;
  completions_.bury(std::move(box.line), posted);
}

// Nothing comes of it if the device has no queue pair left: send() tries again.
void Messages::prepare_to_ask(Outbox& box) {
  hang_up(box);
  auto made = QueuePair::make(
      device_, {.sends = completions_.queue(), .receives = completions_.queue(), .depth = kDepth});
  if (!made) return;
  box.line =
      std::make_unique<Line>(Line{&box, std::make_unique<QueuePair>(std::move(*made)), ++requests_});
  asks_.add(box.to);
}

void Messages::accepted(const net::PeerId& by, const net::Blob& answer) {
  const auto found = outboxes_.find(by);
  if (found == outboxes_.end()) return;
  Outbox& box = found->second;
  const Line* line = box.line.get();
  const Result<Card, std::string> card = Card::read(answer, Card::Kind::grant);
  // An answer to an earlier request is of no use.
  if (!card || line == nullptr || line->is_connected || card->request != line->request) return;
  if (!box.line->queue_pair->talk(*card)) return prepare_to_ask(box);
  box.line->is_connected = true;
  for (std::size_t i = 0; i < box.envelopes.size() && box.line.get() == line; ++i) {
    if (!completions_.take_room(1)) return prepare_to_ask(box);
    post(box, box.envelopes[i]);
  }
}

// ---------------------------------------------------------------- receiving

Result<net::Blob, std::string> Messages::accept(const net::PeerId& from, const net::Blob& asked) {
  const Result<Card, std::string> card = Card::read(asked, Card::Kind::ask);
  if (!card) return Failure{card.error()};
  Inbox& inbox = inboxes_[from];
  close(inbox);
  if (inbox.stream != card->stream) {
    inbox.stream = card->stream;
    inbox.last = 0;
  }
  auto made = QueuePair::make(
      device_, {.sends = completions_.queue(), .receives = received_.get(), .inbox = room_.get()});
  if (!made) return Failure{made.error()};
  if (const auto listening = made->listen(*card); !listening) return Failure{listening.error()};
  inbox.queue_pair = std::make_unique<QueuePair>(std::move(*made));
  inbox_of_[inbox.queue_pair->number()] = &inbox;
  Card grant = inbox.queue_pair->card(Card::Kind::grant);
  grant.request = card->request;
  return grant.blob();
}

// What has arrived counts, and its slots are needed: it is all received before the queue pair is destroyed, as that may
// take it along.
void Messages::close(Inbox& inbox) {
  if (inbox.queue_pair == nullptr) return;
  inbox.queue_pair->stop();
  for (std::uint32_t seen = 0; seen < kReceives && receive(); ++seen) {
  }
  inbox_of_.erase(inbox.queue_pair->number());
  inbox.queue_pair.reset();
}

bool Messages::receive() {
  std::array<ibv_wc, 32> found;
  const int count = ibv_poll_cq(received_.get(), static_cast<int>(found.size()), found.data());
  CHECK(count >= 0);
  for (int i = 0; i < count; ++i) {
    const ibv_wc& one = found[static_cast<std::size_t>(i)];
    const auto inbox = inbox_of_.find(one.qp_num);
    if (one.status == IBV_WC_SUCCESS && one.byte_len >= sizeof(std::uint64_t) &&
        inbox != inbox_of_.end()) {
      const std::uint64_t* words = slots_.data() + one.wr_id * kEnvelopeWordsMax;
      const std::uint64_t number = words[0];
      std::optional<net::Packet> packet =
          net::unpack({reinterpret_cast<const std::byte*>(words + 1), one.byte_len - sizeof number});
      if (packet && number > inbox->second->last) {
        inbox->second->last = number;
        arrived_.add(std::move(*packet));
      }
    }
    offer_room(one.wr_id);
  }
  return count > 0;
}

// ---------------------------------------------------------------- both

bool Messages::anything_undelivered() const {
  return std::any_of(outboxes_.begin(), outboxes_.end(),
                     [](const auto& entry) { return !entry.second.envelopes.empty(); });
}

void Messages::forget(const net::PeerId& peer) {
  if (const auto out = outboxes_.find(peer); out != outboxes_.end()) {
    hang_up(out->second);
    for (const std::span<std::uint64_t> envelope : out->second.envelopes) slabs_.give_back(envelope);
    outboxes_.erase(out);
  }
  if (const auto in = inboxes_.find(peer); in != inboxes_.end()) {
    close(in->second);
    inboxes_.erase(in);
  }
}

bool Messages::collect() {
  const bool sent =
      completions_.collect([this](Line& line, ibv_wc_status status) { on_sent(line, status); });
  return receive() || sent;
}

bool Messages::tell(net::Transport::Sink& sink) {
  const bool any = arrived_.tell([&](const net::Packet& packet) { sink.on_packet(packet); });
  return asks_.tell([&](const net::PeerId& peer) {
    const auto found = outboxes_.find(peer);
    Line* line = found == outboxes_.end() ? nullptr : found->second.line.get();
    if (line == nullptr || std::exchange(line->is_asked, true)) return;
    Card card = line->queue_pair->card(Card::Kind::ask);
    card.stream = found->second.stream;
    card.request = line->request;
    sink.on_ask(peer, card.blob());
  }) || any;
}

}  // namespace declock::verbs
