#include "verbs/exposure.h"

#include <fmt/format.h>

#include "base/check.h"

namespace declock::verbs {
namespace {

constexpr int kAccess = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

}  // namespace

Result<std::unique_ptr<VerbsExposure>, std::string> VerbsExposure::expose(const VerbsConfig& config,
                                                                          std::span<std::byte> memory) {
  CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 8 == 0 && !memory.empty());
  auto device = Device::open(config);
  if (!device) return Failure{device.error()};
  std::unique_ptr<VerbsExposure> made{new VerbsExposure{std::move(*device), memory}};
  made->unused_.reset(ibv_create_cq(made->device_.context.get(), 1, nullptr, nullptr, 0));
  if (!made->unused_) return Failure{made->device_.error("no completion queue can be made")};
  return made;
}

Result<net::Blob, std::string> VerbsExposure::open(const net::PeerId& peer, const net::Blob& offer) {
  const Result<Card, std::string> card = Card::read(offer, Card::Kind::offer);
  if (!card) return Failure{card.error()};
  close(peer);
  Region region{ibv_reg_mr(device_.domain.get(), memory_.data(), memory_.size(),
                           IBV_ACCESS_LOCAL_WRITE | kAccess)};
  if (!region)
    return Failure{device_.error(fmt::format("{} bytes cannot be registered", memory_.size()))};
  auto made =
      QueuePair::make(device_, {.sends = unused_.get(), .receives = unused_.get(), .access = kAccess});
  if (!made) return Failure{made.error()};
  if (const auto listening = made->listen(*card); !listening) return Failure{listening.error()};

  Card answer = made->card(Card::Kind::answer);
  answer.key = region->rkey;
  answer.memory = reinterpret_cast<std::uint64_t>(memory_.data());
  answer.memory_bytes = memory_.size();
  accesses_.emplace(peer, Access{std::move(region), std::move(*made)});
  return answer.blob();
}

void VerbsExposure::close(const net::PeerId& peer) {
  const auto found = accesses_.find(peer);
  if (found == accesses_.end()) return;
  found->second.queue_pair.stop();
  accesses_.erase(found);
}

}  // namespace declock::verbs
