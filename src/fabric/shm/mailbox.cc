#include "shm/mailbox.h"

namespace declock::shm {

bool Mailbox::send(const Sender& sender, EndpointId from, const Message& message, std::size_t& sent) {
  do {
    if (!send_part(sender, from, message.words, sent)) return false;
    sent += Part::kWords;
  } while (sent < message.words.size());
  return true;
}

bool Mailbox::send_part(const Sender& sender, EndpointId from, const MessageWords& words,
                        std::size_t first) {
  // Each time around somebody has claimed a slot, or one is passed over that is late.
  for (std::uint64_t passed = 0; passed < kSlots;) {
    std::uint64_t ticket = tail_.load();
    MessageSlot& slot = slots_[ticket % kSlots];
    const State claim{round_of(ticket), Status::claimed, sender, false};
    std::uint64_t found = State{claim.round, Status::free, {}, false}.word();
    bool mine = slot.state.compare_exchange_strong(found, claim.word());
    if (!mine && found == kLateFree.word() && slot.state.compare_exchange_strong(found, claim.word())) {
      mine = tail_.load() == ticket;  // M2
      if (!mine) {
        end_claim(slot, claim, kLateFree, kLateFree);
        continue;
      }
    }
    if (mine) {
      Part& part = slot.part;
      part.from = from;
      part.size = static_cast<std::uint16_t>(words.size());
      part.first = static_cast<std::uint16_t>(first);
      std::copy_n(words.begin() + first, part.count(), part.words.begin());
      end_claim(slot, claim, claim.as(Status::published, false), claim.as(Status::published, true));
      tail_.compare_exchange_strong(ticket, ticket + 1);
      return true;
    }
    const State state = State::of(found);
    if (state.late) {
      if (state.status == Status::free) continue;
      passed += 1;
    } else if (state.round == round_of(ticket - kSlots)) {
      return false;  // not read yet
    }
    // Late; or claimed, perhaps read already, by a sender that has not come to this, and may never.
    tail_.compare_exchange_strong(ticket, ticket + 1);
  }
  return false;
}

// The reader may have marked it meanwhile. If it is neither, the sender was removed, and nobody expects anything of it.
void Mailbox::end_claim(MessageSlot& slot, const State& claim, const State& ended,
                        const State& ended_late) {
  std::uint64_t found = claim.word();
  if (slot.state.compare_exchange_strong(found, ended.word())) return;
  found = claim.as(Status::claimed, true).word();
  (void)slot.state.compare_exchange_strong(found, ended_late.word());
}

}  // namespace declock::shm
