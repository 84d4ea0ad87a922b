// What a coordinator decides: who is a member, whose lease ended, when a member is removed. No network and no clock
// of its own; each kind of coordinator brings those.
//
//   joins -> in the view -> has access -> lease ends -> suspected -> fenced at every MN -> removed from the view
#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "member/membership.h"

namespace declock::member {

// Who has been heard of lately.
template <class Id>
class Leases {
 public:
  explicit Leases(Duration lease) : lease_(lease) {}

  void grant(const Id& id, Time now) { leases_.push_back({id, now + lease_}); }
  // False: it is suspected, or has no lease. There is no way back.
  bool renew(const Id& id, Time now) {
    Lease* lease = find(id);
    if (lease == nullptr || lease->suspected) return false;
    lease->until = now + lease_;
    return true;
  }
  // Whose lease has ended since the last call.
  std::vector<Id> suspects(Time now) {
    std::vector<Id> found;
    for (Lease& lease : leases_) {
      if (lease.suspected || lease.until > now) continue;
      lease.suspected = true;
      found.push_back(lease.id);
    }
    return found;
  }
  void forget(const Id& id) {
    std::erase_if(leases_, [&](const Lease& l) { return l.id == id; });
  }

 private:
  struct Lease {
    Id id;
    Time until;
    bool suspected = false;
  };
  Lease* find(const Id& id) {
    for (Lease& lease : leases_) {
      if (lease.id == id) return &lease;
    }
    return nullptr;
  }

  Duration lease_;
  std::vector<Lease> leases_;
};

class Coordinator {
 public:
  // At most `slots` members at a time: a lock's queue has no room for more.
  Coordinator(std::uint32_t slots, std::uint32_t mns, Duration lease);

  const View& view() const { return view_; }

  // Errc::busy: every slot is taken. The member is in the view from now on; then it may be given access (H30).
  Result<Member> join(EndpointId first_endpoint, Time now);
  // False: it is suspected, or no member any more. There is no way back but to join again.
  bool renew(const Member& member, Time now) { return leases_.renew(member, now); }
  // Whose lease has ended since the last call: to be fenced at every MN.
  std::vector<Member> suspects(Time now) { return leases_.suspects(now); }
  // It is to be fenced at once, because it says so itself. False: it is suspected already.
  bool end_lease(const Member& member, Time now) {
    if (!leases_.renew(member, now)) return false;
    leases_.forget(member);
    return true;
  }
  // It was fenced: it leaves the view. `counts`: as one that was removed, rather than one that has left by itself.
  void remove(const Member& member, bool counts = true);
  // The MN is back, with fresh memory.
  void restarted(MnId mn);
  // Something that the view says is different now.
  void changed() { view_.number += 1; }

 private:
  std::vector<std::uint32_t> incarnations_;  // by slot: the last that was given away
  Leases<Member> leases_;
  View view_;
};

}  // namespace declock::member
