// The flat CQL lock as a family: a slot per client, endpoints numbered in the order of the clients.
#pragma once

#include <deque>
#include <memory>
#include <span>

#include "cql/cql.h"
#include "locks/family.h"

namespace declock::locks {

class CqlFamily final : public LockFamily {
 public:
  // With memberships, by client; otherwise nobody ever fails.
  CqlFamily(std::uint32_t members, const LockShape& shape, cql::Options options,
            std::span<member::Membership* const> memberships = {})
      : members_(members), shape_(shape), options_(options), given_(memberships) {}

  std::uint64_t stride() const override { return shape_.bytes(); }
  std::unique_ptr<LockClient> client(const Seat& seat) override {
    const Slot slot{static_cast<std::uint16_t>(seat.endpoint.id().value)};
    Alone& alone = alone_.emplace_back(slot, members_);
    member::Membership& membership = given_.empty() ? alone.membership : *given_[slot.value];
    return std::make_unique<cql::CqlLock>(seat.endpoint, shape_, cql::Party{membership, alone.requests},
                                          options_);
  }
  bool restart() override {
    if (!given_.empty()) return false;
    for (Alone& alone : alone_) alone.requests.clear();
    return true;
  }

 private:
  struct Alone {  // a client that is a member by itself
    Alone(Slot slot, std::uint32_t members) : membership(slot, members, 1) {}
    member::FixedMembership membership;
    cql::Requests requests;
  };
  std::uint32_t members_;
  LockShape shape_;
  cql::Options options_;
  std::span<member::Membership* const> given_;
  std::deque<Alone> alone_;
};

}  // namespace declock::locks
