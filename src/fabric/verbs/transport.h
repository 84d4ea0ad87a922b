// A worker's window on a network with verbs: InfiniBand, RoCE, or Soft-RoCE.
#pragma once

#include <memory>

#include "net/transport.h"
#include "verbs/memory_nodes.h"
#include "verbs/messages.h"

namespace declock::verbs {

class VerbsTransport final : public net::Transport {
 public:
  // An error says what is wrong, and what to do.
  static Result<std::unique_ptr<VerbsTransport>, std::string> open(const VerbsConfig& config);

  Result<net::Blob, std::string> offer(MnId mn) override { return memory_nodes_->offer(mn); }
  Result<void, std::string> connect(MnId mn, const net::Blob& answer) override {
    return memory_nodes_->connect(mn, answer);
  }
  void drop(MnId mn) override { memory_nodes_->drop(mn); }
  bool post(net::Batch& batch) override { return memory_nodes_->post(batch); }
  std::span<std::uint64_t> take(std::size_t words) override { return slabs_->take(words); }
  void give_back(std::span<std::uint64_t> words) override { slabs_->give_back(words); }

  net::Blob address() const override { return messages_->address(); }
  bool send(const net::PeerId& to, const net::Blob& address, const net::Packet& packet) override {
    return messages_->send(to, address, packet);
  }
  bool anything_undelivered() const override { return messages_->anything_undelivered(); }
  void forget(const net::PeerId& peer) override { messages_->forget(peer); }
  Result<net::Blob, std::string> accept(const net::PeerId& from, const net::Blob& asked) override {
    return messages_->accept(from, asked);
  }
  void accepted(const net::PeerId& by, const net::Blob& answer) override {
    messages_->accepted(by, answer);
  }

  bool poll(Sink& sink) override;
  int wait_descriptor() const override { return channel_->fd; }
  bool may_wait() override;

  const net::TransportCounts& counts() const override { return memory_nodes_->counts(); }

 private:
  explicit VerbsTransport(Device device) : device_(std::move(device)) {}
  // True: there was something.
  bool collect();

  Device device_;
  Channel channel_;
  std::unique_ptr<Slabs> slabs_;
  std::unique_ptr<MemoryNodes> memory_nodes_;
  std::unique_ptr<Messages> messages_;
};

}  // namespace declock::verbs
