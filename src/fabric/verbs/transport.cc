#include "verbs/transport.h"

#include <fcntl.h>

#include "base/check.h"

namespace declock::verbs {

Result<std::unique_ptr<VerbsTransport>, std::string> VerbsTransport::open(const VerbsConfig& config) {
  auto device = Device::open(config);
  if (!device) return Failure{device.error()};
  std::unique_ptr<VerbsTransport> made{new VerbsTransport{std::move(*device)}};

  made->channel_.reset(ibv_create_comp_channel(made->device_.context.get()));
  // Reading events must end when there are none.
  if (!made->channel_ || fcntl(made->channel_->fd, F_SETFL, O_NONBLOCK) != 0)
    return Failure{made->device_.error("no completion channel can be made")};

  auto slabs = Slabs::make(made->device_);
  if (!slabs) return Failure{slabs.error()};
  made->slabs_ = std::move(*slabs);
  auto memory_nodes = MemoryNodes::make(made->device_, *made->slabs_, made->channel_.get());
  if (!memory_nodes) return Failure{memory_nodes.error()};
  made->memory_nodes_ = std::move(*memory_nodes);
  auto messages = Messages::make(made->device_, *made->slabs_, made->channel_.get());
  if (!messages) return Failure{messages.error()};
  made->messages_ = std::move(*messages);
  return made;
}

bool VerbsTransport::collect() {
  const bool any = memory_nodes_->collect();
  return messages_->collect() || any;
}

bool VerbsTransport::poll(Sink& sink) {
  bool any = collect();
  any = memory_nodes_->tell(sink) || any;
  return messages_->tell(sink) || any;
}

bool VerbsTransport::may_wait() {
  ibv_cq* queue = nullptr;
  void* unused = nullptr;
  // Bounded: a queue has at most one event since it was asked for one.
  while (ibv_get_cq_event(channel_.get(), &queue, &unused) == 0) ibv_ack_cq_events(queue, 1);
  if (memory_nodes_->anything_untold() || messages_->anything_untold()) return false;
  // Asked for first, and looked at after that: what arrives in between is seen or leads to an event.
  CHECK(ibv_req_notify_cq(memory_nodes_->queue(), 0) == 0);
  for (ibv_cq* of_messages : messages_->queues()) CHECK(ibv_req_notify_cq(of_messages, 0) == 0);
  return !collect();
}

}  // namespace declock::verbs
