// Verbs and memory nodes, on a verbs device: Soft-RoCE does (tests/vm/run). Skipped where there is none.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <numeric>
#include <set>

#include "verbs/peer.h"

namespace declock::verbs {
namespace {

TEST_F(Verbs, EachOperationHasItsEffectAndItsResult) {
  connect(64);
  Work write = peer_->work(OpKind::write, 16, 3);
  std::iota(write.local.begin(), write.local.end(), 100);
  EXPECT_EQ(peer_->run({write}), Errc::ok);
  EXPECT_EQ(std::vector(memory_.begin(), memory_.begin() + 6),
            (std::vector<std::uint64_t>{0, 0, 100, 101, 102, 0}));

  const Work read = peer_->work(OpKind::read, 24, 2);
  EXPECT_EQ(peer_->run({read}), Errc::ok);
  EXPECT_EQ(read.local[0], 101u);
  EXPECT_EQ(read.local[1], 102u);

  const Work add = peer_->add(16, std::uint64_t{0} - 7);
  EXPECT_EQ(peer_->run({add}), Errc::ok);
  EXPECT_EQ(add.local[0], 100u);
  EXPECT_EQ(memory_[2], 93u);

  Work swap = peer_->work(OpKind::compare_swap, 16);
  swap.expected = 93;
  swap.operand = 0xFEDC'BA98'7654'3210;
  EXPECT_EQ(peer_->run({swap}), Errc::ok);
  EXPECT_EQ(swap.local[0], 93u);
  EXPECT_EQ(memory_[2], 0xFEDC'BA98'7654'3210);
  EXPECT_EQ(peer_->run({swap}), Errc::ok);
  EXPECT_EQ(swap.local[0], 0xFEDC'BA98'7654'3210) << "the old word, as it did not match";
  EXPECT_EQ(memory_[2], 0xFEDC'BA98'7654'3210);
}

TEST_F(Verbs, AChainTakesEffectInOrderAndCompletesOnce) {
  connect(64);
  for (std::uint64_t round = 1; round <= 200; ++round) {
    const Work write = peer_->work(OpKind::write, 0, 8, round * 1000);
    const Work add = peer_->add(0, round);
    const Work read = peer_->work(OpKind::read, 0, 8);
    ASSERT_EQ(peer_->run({write, add, read}), Errc::ok);
    EXPECT_EQ(add.local[0], round * 1000);
    EXPECT_EQ(read.local[0], round * 1001);
    EXPECT_EQ(read.local[7], round * 1000);
    for (const Work& work : {write, add, read}) peer_->transport->give_back(work.local);
  }
  EXPECT_FALSE(peer_->transport->poll(*peer_)) << "one completion per chain";
}

TEST_F(Verbs, WhatFollowsAReadOrAnAtomicDoesNotOvertakeIt) {
  constexpr std::size_t kWords = 4096;
  connect(kWords);
  for (std::uint64_t round = 1; round <= 100; ++round) {
    const Work read = peer_->work(OpKind::read, 0, kWords);
    const Work write = peer_->work(OpKind::write, 0, kWords, round);
    const Work read_again = peer_->work(OpKind::read, 0, kWords);
    const Work add = peer_->add(8 * (kWords - 1), 5);
    const Work undo = peer_->work(OpKind::write, 8 * (kWords - 1), 1, round);
    // In a chain, and from one to the next.
    Batch& first = peer_->batch({read, write, read_again, add});
    Batch& second = peer_->batch({undo});
    peer_->post(first);
    peer_->post(second);
    ASSERT_EQ(peer_->outcome(first), Errc::ok);
    ASSERT_EQ(peer_->outcome(second), Errc::ok);
    EXPECT_EQ(std::count(read.local.begin(), read.local.end(), round - 1), kWords);
    EXPECT_EQ(std::count(read_again.local.begin(), read_again.local.end(), round), kWords);
    EXPECT_EQ(add.local[0], round);
    EXPECT_EQ(memory_[kWords - 1], round);
    for (const Work& work : {read, write, read_again, add, undo})
      peer_->transport->give_back(work.local);
  }
}

TEST_F(Verbs, ManyAreOutstandingAndEachIsCountedOnce) {
  connect(64);
  Peer other{1};
  other.connect_to(*exposure_);
  std::vector<std::pair<Batch*, Work>> mine, others;
  for (int i = 0; i < 1500; ++i) {  // more than fit at once
    for (auto [peer, list] : {std::pair{peer_.get(), &mine}, std::pair{&other, &others}}) {
      const Work add = peer->add(8, 1);
      list->emplace_back(&peer->batch({add}), add);
      peer->post(*list->back().first);
    }
  }
  std::set<std::uint64_t> olds;
  for (auto [peer, list] : {std::pair{peer_.get(), &mine}, std::pair{&other, &others}}) {
    for (auto& [batch, add] : *list) {
      ASSERT_EQ(peer->outcome(*batch), Errc::ok);
      olds.insert(add.local[0]);
    }
    const net::TransportCounts& counts = peer->transport->counts();
    EXPECT_EQ(counts.completed[static_cast<std::size_t>(OpKind::fetch_add)], 1500u);
    EXPECT_EQ(std::accumulate(counts.completed.begin(), counts.completed.end(), 0u), 1500u);
  }
  EXPECT_EQ(memory_[1], 3000u);
  EXPECT_EQ(olds.size(), 3000u) << "atomic: each has seen another word";
}

TEST_F(Verbs, AfterCloseNotAByteChanges) {
  constexpr std::size_t kWords = 4 * kMiB / 8;
  constexpr std::size_t kWrites = 100;  // more than are done when it closes, on a busy machine too
  constexpr std::uint64_t kRounds = 5;
  connect(kWords, kRepeats);
  int stopped = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    peer_->told.clear();
    // In turn: one that is stopped half-way is seen.
    const std::array writes{peer_->work(OpKind::write, 0, kWords, round * 16),
                            peer_->work(OpKind::write, 0, kWords, round * 16 + 1)};
    std::vector<Batch*> batches;
    for (std::size_t i = 0; i < kWrites; ++i) batches.push_back(&peer_->batch({writes[i % 2]}));
    for (Batch* batch : batches) peer_->post(*batch);
    const std::size_t somewhere = kWords / 7 * round;
    ASSERT_TRUE(soon([&] { peer_->poll(); },
                     [&] { return std::atomic_ref{memory_[somewhere]}.load() >= round * 16; }));
    exposure_->close(peer_->id);
    const std::vector<std::uint64_t> then = memory_;
    stopped += then.front() != then.back() ? 1 : 0;
    bool is_over = false;
    for (Batch* batch : batches) {
      const Errc outcome = peer_->outcome(*batch);
      EXPECT_TRUE(outcome == Errc::outcome_unknown || (outcome == Errc::ok && !is_over));
      is_over = outcome != Errc::ok;
    }
    for (const Work& write : writes) peer_->transport->give_back(write.local);
    // Meanwhile it has sent again, several times, what nobody has answered.
    if (round == kRounds) usleep(200'000);
    EXPECT_EQ(memory_, then);
    // What is posted before anybody knows ends the same way.
    EXPECT_EQ(peer_->run({peer_->add(0, 1)}), Errc::outcome_unknown);
    peer_->connect_to(*exposure_);
    EXPECT_EQ(peer_->run({peer_->add(0, 1)}), Errc::ok);
    EXPECT_EQ(memory_[0], then[0] + 1);
  }
  EXPECT_GT(stopped, 0) << "it was closed when nothing was under way";
}

TEST_F(Verbs, AConnectionThatIsDroppedCanBeMadeAgain) {
  connect(kMiB / 8);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    Batch& large = peer_->batch({peer_->work(OpKind::write, 8, kMiB / 8 - 1, round)});
    peer_->post(large);
    if (round % 2 == 0) peer_->transport->drop(kMn);
    peer_->connect_to(*exposure_);  // drops, if nobody has
    const Work add = peer_->add(0, 1);
    EXPECT_EQ(peer_->run({add}), Errc::ok);
    EXPECT_EQ(add.local[0], round - 1);
    EXPECT_EQ(peer_->outcome(large), Errc::outcome_unknown);
  }
}

TEST_F(Verbs, MemoryNodesAreProcessesThatMayDie) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::vector<std::uint64_t> memory(64, 7);
    const auto exposure = value(VerbsExposure::expose({}, std::as_writable_bytes(std::span{memory})));
    char buffer[net::kBlobMax];
    const ssize_t got = read(sockets[1], buffer, sizeof buffer);
    const Blob answer = value(exposure->open({}, Blob(buffer, static_cast<std::size_t>(got))));
    if (write(sockets[1], answer.data(), answer.size()) > 0) pause();
    _exit(1);
  }
  Peer peer{0, kRepeats};
  const Blob offer = value(peer.transport->offer(kMn));
  ASSERT_GT(write(sockets[0], offer.data(), offer.size()), 0);
  char buffer[net::kBlobMax];
  const ssize_t got = read(sockets[0], buffer, sizeof buffer);
  ASSERT_GT(got, 0);
  ASSERT_TRUE(peer.transport->connect(kMn, Blob(buffer, static_cast<std::size_t>(got))));
  const Work add = peer.add(8, 1);
  EXPECT_EQ(peer.run({add}), Errc::ok);
  EXPECT_EQ(add.local[0], 7u);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(peer.run({add}), Errc::outcome_unknown);
  close(sockets[0]);
  close(sockets[1]);
}

TEST_F(Verbs, MemoryThatIsGivenBackIsUsedAgain) {
  connect(kMiB);
  for (std::size_t words = 1; words <= kMiB / 2; words = words * 3 + 1) {
    const Work write = peer_->work(OpKind::write, 0, words, words);
    EXPECT_EQ(peer_->run({write}), Errc::ok);
    EXPECT_EQ(memory_[words - 1], words);
    EXPECT_EQ(memory_[words], 0u);
    // A part of it, too.
    EXPECT_EQ(peer_->run({{OpKind::read, 8 * (words - 1), write.local.last(1)}}), Errc::ok);
    EXPECT_EQ(write.local.back(), words);
    peer_->transport->give_back(write.local);
    const std::span<std::uint64_t> again = peer_->transport->take(words);
    EXPECT_TRUE(again.data() == write.local.data() || words > 2048);
    peer_->transport->give_back(again);
  }
}

TEST_F(Verbs, ADeviceThatIsNotThereIsNamed) {
  const std::vector<VerbsDevice> devices = value(verbs_devices());
  ASSERT_FALSE(devices.empty());
  const std::string name = devices[0].name;
  EXPECT_EQ(devices[0].state, "active");
  EXPECT_TRUE(VerbsTransport::open({name, devices[0].port, -1, 256}));
  const auto expect_error = [](const VerbsConfig& config, const std::string& what) {
    const auto opened = VerbsTransport::open(config);
    ASSERT_FALSE(opened);
    EXPECT_NE(opened.error().find(what), std::string::npos) << opened.error();
    EXPECT_EQ(opened.error().find('\n'), std::string::npos);
  };
  expect_error({"nowhere0"}, name);
  expect_error({name, 99}, "1 to");
  expect_error({name, -1}, "1 to");
  expect_error({name, 0, 1 << 20}, "it has 0=");
  expect_error({name, 0, -1, 1000}, "256 to");
  expect_error({name, 0, -1, 1 << 30}, "256 to");
}

}  // namespace
}  // namespace declock::verbs
