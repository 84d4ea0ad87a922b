#include "member/coordinator.h"

#include <algorithm>

namespace declock::member {

Coordinator::Coordinator(std::uint32_t slots, std::uint32_t mns, Duration lease)
    : incarnations_(slots), leases_(lease) {
  view_.mns.assign(mns, 1);
}

Result<Member> Coordinator::join(EndpointId first_endpoint, Time now) {
  for (std::size_t i = 0; i < incarnations_.size(); ++i) {
    const Slot slot{static_cast<std::uint16_t>(i)};
    if (view_.find(slot) != nullptr) continue;
    const Member member{slot, Incarnation{++incarnations_[i]}, first_endpoint};
    leases_.grant(member, now);
    const auto behind = std::find_if(view_.members.begin(), view_.members.end(),
                                     [&](const Member& m) { return m.slot.value > slot.value; });
    view_.members.insert(behind, member);
    view_.number += 1;
    return member;
  }
  return Failure{Errc::busy};
}

void Coordinator::remove(const Member& member, bool counts) {
  leases_.forget(member);
  if (std::erase(view_.members, member) == 0) return;
  view_.number += 1;
  view_.removals += counts ? 1 : 0;
}

void Coordinator::restarted(MnId mn) {
  view_.mns[mn.value] += 1;
  view_.number += 1;
}

}  // namespace declock::member
