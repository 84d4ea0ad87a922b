// The flat CQL lock as a family: a slot per client, endpoints numbered in the order of the clients.
#pragma once

#include <deque>
#include <memory>

#include "cql/cql.h"
#include "locks/family.h"

namespace declock::locks {

template <cql::Rules kRules = cql::kAllRules>
class CqlFamily final : public LockFamily {
 public:
  CqlFamily(std::uint32_t members, const LockShape& shape, cql::Options options)
      : members_(members), shape_(shape), options_(options) {}

  std::uint64_t stride() const override { return shape_.bytes(); }
  std::unique_ptr<LockClient> client(const Seat& seat) override {
    const Slot slot{static_cast<std::uint16_t>(seat.endpoint.id().value)};
    Alone& alone = alone_.emplace_back(slot, members_);
    return std::make_unique<cql::CqlLock<kRules>>(
        seat.endpoint, shape_, cql::Party{alone.membership, alone.requests}, options_);
  }
  bool restart() override {
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
  std::deque<Alone> alone_;
};

}  // namespace declock::locks
