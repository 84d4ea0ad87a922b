// The flat CQL lock as a family: a slot per client, endpoints numbered in the order of the clients.
#pragma once

#include <memory>

#include "cql/cql.h"
#include "locks/family.h"

namespace declock::locks {

template <cql::Rules kRules = cql::kAllRules>
class CqlFamily final : public LockFamily {
 public:
  CqlFamily(const LockShape& shape, cql::Options options) : shape_(shape), options_(options) {}

  std::uint64_t stride() const override { return shape_.bytes(); }
  std::unique_ptr<LockClient> client(const Seat& seat) override {
    const cql::Membership self{.slot = Slot{static_cast<std::uint16_t>(seat.endpoint.id().value)}};
    return std::make_unique<cql::CqlLock<kRules>>(seat.endpoint, shape_, self, options_);
  }

 private:
  LockShape shape_;
  cql::Options options_;
};

}  // namespace declock::locks
