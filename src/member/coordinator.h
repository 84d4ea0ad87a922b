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

class Coordinator {
 public:
  // At most `slots` members at a time: a lock's queue has no room for more.
  Coordinator(std::uint32_t slots, std::uint32_t mns, Duration lease);

  const View& view() const { return view_; }

  // Errc::busy: every slot is taken. The member is in the view from now on; then it may be given access (H30).
  Result<Member> join(EndpointId first_endpoint, Time now);
  // False: it is suspected, or no member any more. There is no way back but to join again.
  bool renew(const Member& member, Time now);
  // Whose lease has ended since the last call: to be fenced at every MN.
  std::vector<Member> suspects(Time now);
  // It was: it leaves the view.
  void remove(const Member& member);
  // The MN is back, with fresh memory.
  void restarted(MnId mn);
  // Something that the view says is different now.
  void changed() { view_.number += 1; }

 private:
  struct Lease {
    Member member;
    Time until;
    bool suspected = false;
  };
  Lease* find(const Member& member);

  Duration lease_;
  std::vector<std::uint32_t> incarnations_;  // by slot: the last that was given away
  std::vector<Lease> leases_;
  View view_;
};

}  // namespace declock::member
