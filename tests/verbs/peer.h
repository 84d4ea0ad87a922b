// What the tests of verbs share: workers that remember what they were told.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "support/soon.h"
#include "verbs/exposure.h"
#include "verbs/transport.h"

namespace declock::verbs {

using net::Batch;
using net::Blob;
using net::Packet;
using net::PeerId;
using net::Work;

inline constexpr MnId kMn{3};
// Finds out that nobody listens any more also on Soft-RoCE, at the risk of what is wrong with that.
inline constexpr bool kRepeats = true;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;

template <class T>
T value(Result<T, std::string> result) {
  EXPECT_TRUE(result) << result.error();
  return std::move(*result);
}

// Polls until done(); false: it hangs.
template <class Poll, class Done>
bool soon(Poll poll, Done done) {
  const Time latest = monotonic_now() + kHangs;
  while (!done()) {
    poll();
    if (monotonic_now() > latest) return false;
  }
  return true;
}

// A worker: its transport, and what it was told.
struct Peer : net::Transport::Sink {
  explicit Peer(std::uint16_t slot, std::optional<bool> repeats = {})
      : id{Slot{slot}, 1, 0}, transport(value(VerbsTransport::open({.repeats = repeats}))) {}

  void on_complete(Batch& batch, Errc status) override { told[&batch].push_back(status); }
  void on_packet(const Packet& packet) override { packets.push_back(packet); }
  void on_ask(const PeerId& peer, const Blob& blob) override { asks.emplace_back(peer, blob); }

  void poll() { transport->poll(*this); }
  Batch& batch(std::vector<Work> works) {
    Batch& made = batches.emplace_back();
    made.mn = kMn;
    made.count = works.size();
    std::copy(works.begin(), works.end(), made.works.begin());
    return made;
  }
  Work work(OpKind kind, std::uint64_t offset, std::size_t words = 1, std::uint64_t fill = 0) {
    const std::span<std::uint64_t> local = transport->take(words);
    std::fill(local.begin(), local.end(), fill);
    return {kind, offset, local};
  }
  Work add(std::uint64_t offset, std::uint64_t delta) {
    Work made = work(OpKind::fetch_add, offset);
    made.operand = delta;
    return made;
  }
  void post(Batch& batch) {
    ASSERT_TRUE(soon([&] { poll(); }, [&] { return transport->post(batch); }));
  }
  bool is_told(Batch& batch) { return told.count(&batch) != 0; }
  // What was told of it, once.
  Errc outcome(Batch& batch) {
    EXPECT_TRUE(soon([&] { poll(); }, [&] { return is_told(batch); })) << "no completion";
    EXPECT_EQ(told[&batch].size(), 1u);
    return told[&batch].empty() ? Errc::busy : told[&batch][0];
  }
  Errc run(std::vector<Work> works) {
    Batch& made = batch(std::move(works));
    post(made);
    return outcome(made);
  }
  void connect_to(VerbsExposure& exposure) {
    const Blob answer = value(exposure.open(id, value(transport->offer(kMn))));
    const auto connected = transport->connect(kMn, answer);
    ASSERT_TRUE(connected) << connected.error();
  }

  PeerId id;
  std::unique_ptr<VerbsTransport> transport;
  std::deque<Batch> batches;
  std::map<Batch*, std::vector<Errc>> told;
  std::vector<Packet> packets;
  std::vector<std::pair<PeerId, Blob>> asks;
};

class Verbs : public testing::Test {
 protected:
  void SetUp() override {
    const auto devices = verbs_devices();
    if (!devices) GTEST_SKIP() << devices.error();
  }

  // Something that a memory node has and a worker that is connected to it.
  void connect(std::size_t words, std::optional<bool> repeats = {}) {
    memory_.assign(words, 0);
    exposure_ = value(VerbsExposure::expose({}, std::as_writable_bytes(std::span{memory_})));
    peer_ = std::make_unique<Peer>(std::uint16_t{0}, repeats);
    peer_->connect_to(*exposure_);
  }
  std::vector<std::uint64_t> memory_;
  std::unique_ptr<VerbsExposure> exposure_;
  std::unique_ptr<Peer> peer_;
};

}  // namespace declock::verbs
