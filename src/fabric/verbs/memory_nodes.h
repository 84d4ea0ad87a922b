// A worker's connections to memory nodes, and the one-sided operations on them.
//
// A batch is posted with one doorbell and completes with its last operation: a reliable connection completes in order.
// The first completion with an error breaks the connection: everything outstanding ends with Errc::outcome_unknown.
//
// F1 on a reliable connection. Whatever follows a WRITE comes after it, and READs and atomics come after READs and atomics
// as the memory node executes them. But a WRITE may overtake the READs and atomics before it; and a READ whose answer was
// lost is executed again, by then behind an atomic that followed it. Those two wait for what is outstanding, by a fence.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "net/transport.h"
#include "verbs/completions.h"
#include "verbs/queue_pair.h"
#include "verbs/slabs.h"

namespace declock::verbs {

class MemoryNodes {
 public:
  static Result<std::unique_ptr<MemoryNodes>, std::string> make(const Device& device,
                                                                const Slabs& slabs,
                                                                ibv_comp_channel* channel);
  MemoryNodes(const MemoryNodes&) = delete;
  MemoryNodes& operator=(const MemoryNodes&) = delete;

  // As in net::Transport.
  Result<net::Blob, std::string> offer(MnId mn);
  Result<void, std::string> connect(MnId mn, const net::Blob& answer);
  void drop(MnId mn);
  bool post(net::Batch& batch);
  const net::TransportCounts& counts() const { return counts_; }

  ibv_cq* queue() const { return completions_.queue(); }
  // Takes what is complete. True: there was something.
  bool collect();
  bool anything_untold() const { return !done_.empty(); }
  bool tell(net::Transport::Sink& sink);

 private:
  static constexpr std::uint32_t kDepth = 512;  // work requests outstanding on one connection

  struct Connection {
    MnId mn;
    std::unique_ptr<QueuePair> queue_pair;  // none: it is broken
    bool is_connected = false;
    std::uint32_t key = 0;
    std::uint64_t memory = 0;
    std::uint64_t memory_bytes = 0;
    // A ring of batches that were posted and are not complete.
    std::array<net::Batch*, kDepth> posted{};
    std::uint64_t first = 0;
    std::uint64_t end = 0;
    std::size_t requests = 0;  // in those batches
    std::array<std::size_t, kOpKinds> by_kind{};
  };
  struct Done {
    net::Batch* batch;
    Errc status;
  };

  MemoryNodes(const Device& device, const Slabs& slabs, SendCompletions<Connection> completions)
      : device_(device), slabs_(slabs), completions_(std::move(completions)) {}
  std::unique_ptr<Connection>& connection_to(MnId mn);
  ibv_send_wr request(Connection& on, const net::Work& work, ibv_sge& local) const;
  void complete_first(Connection& on);
  void break_down(MnId mn);

  const Device& device_;
  const Slabs& slabs_;
  SendCompletions<Connection> completions_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by memory node
  Untold<Done> done_;
  net::TransportCounts counts_;
};

}  // namespace declock::verbs
