// The locks that can be explored: the production code, and the same code with one rule left out.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cql/cql.h"
#include "declock/result.h"
#include "locks/family.h"

namespace declock::explore {

// An index into cql::kRuleInfos, or nothing for the production code.
using LeftOut = std::optional<std::size_t>;

// Takes a hazard's id ("H28") or a rule's name ("writer-owes").
Result<LeftOut, std::string> find_rule(std::string_view name);

using Memberships = std::span<member::Membership* const>;  // by client; empty: nobody ever fails

// The flat CQL lock, one client per endpoint.
std::unique_ptr<locks::LockFamily> make_cql_family(LeftOut rule, std::uint32_t members,
                                                   const LockShape& shape, cql::Options options,
                                                   Memberships memberships = {});

}  // namespace declock::explore
