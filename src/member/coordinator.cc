#include "member/coordinator.h"

#include <algorithm>

namespace declock::member {

Coordinator::Coordinator(std::uint32_t slots, std::uint32_t mns, Duration lease)
    : lease_(lease), incarnations_(slots) {
  view_.mns.assign(mns, 1);
}

Coordinator::Lease* Coordinator::find(const Member& member) {
  const auto at =
      std::find_if(leases_.begin(), leases_.end(), [&](const Lease& l) { return l.member == member; });
  return at == leases_.end() ? nullptr : &*at;
}

Result<Member> Coordinator::join(EndpointId first_endpoint, Time now) {
  for (std::size_t i = 0; i < incarnations_.size(); ++i) {
    const Slot slot{static_cast<std::uint16_t>(i)};
    if (view_.find(slot) != nullptr) continue;
    const Member member{slot, Incarnation{++incarnations_[i]}, first_endpoint};
    leases_.push_back({member, now + lease_});
    const auto behind = std::find_if(view_.members.begin(), view_.members.end(),
                                     [&](const Member& m) { return m.slot.value > slot.value; });
    view_.members.insert(behind, member);
    view_.number += 1;
    return member;
  }
  return Failure{Errc::busy};
}

bool Coordinator::renew(const Member& member, Time now) {
  Lease* lease = find(member);
  if (lease == nullptr || lease->suspected) return false;
  lease->until = now + lease_;
  return true;
}

std::vector<Member> Coordinator::suspects(Time now) {
  std::vector<Member> found;
  for (Lease& lease : leases_) {
    if (lease.suspected || lease.until > now) continue;
    lease.suspected = true;
    found.push_back(lease.member);
  }
  return found;
}

void Coordinator::remove(const Member& member) {
  std::erase_if(leases_, [&](const Lease& l) { return l.member == member; });
  if (std::erase(view_.members, member) == 0) return;
  view_.number += 1;
  view_.removals += 1;
}

void Coordinator::restarted(MnId mn) {
  view_.mns[mn.value] += 1;
  view_.number += 1;
}

}  // namespace declock::member
