#include "shm/mailbox.h"

namespace declock::shm {

bool Mailbox::send(const Sender& sender, EndpointId from, const Message& message) {
  for (;;) {  // each time around, somebody has claimed a slot
    std::uint64_t ticket = tail_.load();
    MessageSlot& slot = slots_[ticket % kSlots];
    std::uint64_t found = State{round_of(ticket), Status::free, {}}.word();
    const State claim{round_of(ticket), Status::claimed, sender};
    if (slot.state.compare_exchange_strong(found, claim.word())) {
      slot.from = from;
      slot.message = message;
      slot.state.store(State{claim.round, Status::published, sender}.word());
      tail_.compare_exchange_strong(ticket, ticket + 1);
      return true;
    }
    if (State::of(found).round == round_of(ticket - kSlots)) return false;  // not read yet
    // Claimed, perhaps read already, by a sender that has not come to this, and may never.
    tail_.compare_exchange_strong(ticket, ticket + 1);
  }
}

}  // namespace declock::shm
