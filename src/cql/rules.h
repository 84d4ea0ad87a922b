// The rules of the CQL protocol that look as if they could be left out. Each can be, here, at compile
// time, and then `declock explore` finds the violation that the rule prevents: a check that cannot fail
// checks nothing. The library itself only ever uses kAllRules.
#pragma once

#include <array>
#include <string_view>

namespace declock::cql {

struct Rules {
  bool passed_ticket_frees_reader = true;
  bool gap_is_not_the_end = true;
  bool writer_owes_its_successor = true;
  bool group_at_once = true;
  bool writers_are_counted = true;
  bool tickets_match = true;
};

inline constexpr Rules kAllRules{};

struct RuleInfo {
  std::string_view hazard;  // its id in the list of hazards; empty if it has none
  std::string_view name;
  bool Rules::*member;
  std::string_view without;  // what happens when it is left out
};

inline constexpr std::array<RuleInfo, 6> kRuleInfos{{
    {"H2", "passed-ticket", &Rules::passed_ticket_frees_reader,
     "a releasing reader goes on looking for a successor after others have moved the queue past it"},
    {"H27", "gap", &Rules::gap_is_not_the_end,
     "a releasing writer takes a missing entry for the end of the group of readers"},
    {"H28", "writer-owes", &Rules::writer_owes_its_successor,
     "a releasing writer owes nothing once the header's ticket has passed its successor's"},
    {"H29", "group-at-once", &Rules::group_at_once,
     "a releasing writer grants the readers it sees and goes on refetching for the rest"},
    {"", "writers-counted", &Rules::writers_are_counted,
     "a releasing reader takes a missing entry for a reader without counting the writers it sees"},
    {"H20", "ticket-match", &Rules::tickets_match,
     "a grant goes to any entry, whatever its ticket, and a waiter takes any grant for the lock"},
}};

constexpr Rules without(bool Rules::*member) {
  Rules rules;
  rules.*member = false;
  return rules;
}

}  // namespace declock::cql
