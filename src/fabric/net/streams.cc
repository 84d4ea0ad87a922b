#include "net/streams.h"

#include <algorithm>

namespace declock::net {

void Streams::send(const PeerId& to, const Packet& packet, Time now) {
  Stream& stream = streams_[to];
  if (stream.kept.empty()) stream.moved = now;
  Packet& kept = stream.kept.emplace_back(packet);
  kept.sender = self_;
  kept.number = ++stream.sent;
  flush(to, stream, now);
}

void Streams::acknowledged(Stream& stream, std::uint64_t up_to, Time now) {
  while (!stream.kept.empty() && stream.kept.front().number <= up_to) {
    stream.kept.pop_front();
    if (stream.posted > 0) stream.posted -= 1;
    stream.moved = now;
    stream.patience = kSendAgainAfter;
  }
}

bool Streams::arrives(const Packet& packet, Time now) {
  Stream& stream = streams_[packet.sender];
  acknowledged(stream, packet.acknowledged, now);
  // A message is missing there: all that it has not heard follows again, but not for every one of a burst.
  if (packet.has_gap && now - stream.moved > kAcknowledgeAfter) {
    stream.posted = 0;
    stream.moved = now;
    is_urgent_ = true;
  }
  if (packet.number == 0) return false;
  const bool is_next = packet.number == stream.heard + 1;
  if (is_next) {
    stream.heard += 1;
    if (stream.unthanked++ == 0) stream.since = now;
  } else {
    stream.has_gap = stream.has_gap || packet.number > stream.heard;
  }
  stream.acknowledge_now = stream.acknowledge_now || !is_next || stream.unthanked >= kThankAfter;
  is_urgent_ = is_urgent_ || stream.acknowledge_now;
  return is_next;
}

void Streams::flush(const PeerId& peer, Stream& stream, Time now) {
  const auto leaves = [&](Packet& packet) {
    packet.acknowledged = stream.heard;
    packet.has_gap = stream.has_gap;
    if (!transmit_(peer, packet)) return false;
    stream.unthanked = 0;
    stream.acknowledge_now = stream.has_gap = false;
    return true;
  };
  // In order: not before what could not be sent yet.
  for (; stream.posted < stream.kept.size(); ++stream.posted) {
    if (!leaves(stream.kept[stream.posted])) {
      is_urgent_ = true;
      return;
    }
    if (stream.posted == 0) stream.moved = now;
  }
  const bool due = stream.unthanked > 0 && now - stream.since >= kAcknowledgeAfter;
  if (!due && !stream.acknowledge_now) return;
  Packet thanks{};
  thanks.sender = self_;
  if (!leaves(thanks)) is_urgent_ = true;
}

// Another connection may never come about: a provider can lose track of who is connected.
void Streams::reach_otherwise(const PeerId& peer, Stream& stream) {
  reconnect_(peer);
  for (std::size_t i = 0; i < std::min(stream.kept.size(), kRelayedMax); ++i) {
    stream.kept[i].acknowledged = stream.heard;
    relay_(peer, stream.kept[i]);
  }
}

Packet Streams::thanks_to(const PeerId& peer) {
  Packet thanks{};
  thanks.sender = self_;
  const auto stream = streams_.find(peer);
  if (stream != streams_.end()) thanks.acknowledged = stream->second.heard;
  return thanks;
}

void Streams::pump(Time now) {
  is_urgent_ = false;
  for (auto& [peer, stream] : streams_) {
    // Also what the network does not take: it may wait for a connection that the peer refuses.
    if (!stream.kept.empty() && now - stream.moved > stream.patience) {
      stream.posted = 0;
      stream.moved = now;
      if (stream.patience >= kReconnectAfter * (self_ < peer ? 1 : 2)) reach_otherwise(peer, stream);
      stream.patience = std::min(stream.patience + stream.patience, kSendAgainAfterMax);
    }
    flush(peer, stream, now);
  }
}

void Streams::starts_again(const PeerId& peer, Time now) {
  const auto at = streams_.find(peer);
  if (at == streams_.end()) return;
  at->second.posted = 0;
  at->second.moved = now;
  at->second.patience = kSendAgainAfter;
  is_urgent_ = true;
}

bool Streams::anything_unsaid() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& s) { return !s.second.kept.empty(); });
}

bool Streams::is_busy() const {
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& s) {
    return !s.second.kept.empty() || s.second.unthanked > 0 || s.second.acknowledge_now;
  });
}

}  // namespace declock::net
