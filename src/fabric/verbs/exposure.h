// A memory node's side of verbs: the device serves its memory, the processor takes no part.
//
// Each worker of a member has a queue pair and a key of its own, and both are taken away to close it out: a queue pair
// that is destroyed executes nothing, whatever is on its way.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "net/transport.h"
#include "verbs/queue_pair.h"

namespace declock::verbs {

class VerbsExposure final : public net::Exposure {
 public:
  // The memory stays the caller's, and must stay where it is. An error says what is wrong, and what to do.
  // REQUIRES: it begins at a whole word.
  static Result<std::unique_ptr<VerbsExposure>, std::string> expose(const VerbsConfig& config,
                                                                    std::span<std::byte> memory);

  Result<net::Blob, std::string> open(const net::PeerId& peer, const net::Blob& offer) override;
  void close(const net::PeerId& peer) override;

  bool progress() override { return false; }
  int wait_descriptor() const override { return -1; }
  bool may_wait() override { return true; }

 private:
  struct Access {
    Region region;
    QueuePair queue_pair;  // goes first
  };

  VerbsExposure(Device device, std::span<std::byte> memory)
      : device_(std::move(device)), memory_(memory) {}

  Device device_;
  std::span<std::byte> memory_;
  CompletionQueue unused_;  // a queue pair must have one
  std::map<net::PeerId, Access> accesses_;
};

}  // namespace declock::verbs
