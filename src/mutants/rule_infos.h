// The rules of the CQL protocol that can be left out, by name, and what happens then.
#pragma once

#include <array>
#include <string_view>

#include "cql/rules.h"

namespace declock::mutants {

using cql::Rules;

template <class... Members>
constexpr Rules without(Members... members) {
  Rules rules;
  ((rules.*members = false), ...);
  return rules;
}

struct RuleInfo {
  std::string_view hazard;  // its id in the list of hazards; empty if it has none
  std::string_view name;
  Rules rules;                // the others
  std::string_view without;   // what happens when it is left out
  bool needs_faults = false;  // nothing happens where nobody fails
};

inline constexpr std::array kRuleInfos{
    RuleInfo{
        "H2", "passed-ticket", without(&Rules::passed_ticket_frees_reader, &Rules::first_takes_turn),
        "a releasing reader goes on looking for a successor after others have moved the queue past it"},
    RuleInfo{"H27", "gap", without(&Rules::gap_is_not_the_end, &Rules::first_takes_turn),
             "a releasing writer takes a missing entry for the end of the group of readers"},
    RuleInfo{"H28", "writer-owes", without(&Rules::writer_owes_its_successor, &Rules::first_takes_turn),
             "a releasing writer owes nothing once the header's ticket has passed its successor's"},
    RuleInfo{"H29", "group-at-once", without(&Rules::group_at_once, &Rules::first_takes_turn),
             "a releasing writer grants the readers it sees and goes on refetching for the rest"},
    RuleInfo{
        "", "writers-counted", without(&Rules::writers_are_counted, &Rules::first_takes_turn),
        "a releasing reader takes a missing entry for a reader without counting the writers it sees"},
    RuleInfo{
        "H20", "ticket-match", without(&Rules::tickets_match),
        "a grant goes to any entry, whatever its ticket, and a waiter takes any grant for the lock"},
    RuleInfo{"H35", "leave-behind-readers", without(&Rules::leave_behind_readers_only),
             "a writer that gave up leaves the queue before its turn although a writer is ahead of it"},
    RuleInfo{"H3", "quiet", without(&Rules::answer_when_quiet, &Rules::abort_by_epoch),
             "a member answers a reset while an operation of its own is on its way, and what that "
             "finds counts",
             true},
    RuleInfo{"H9", "answer-while-holding", without(&Rules::answer_when_free),
             "a member answers a reset although a client of its holds the lock", true},
    RuleInfo{"H32", "one-answer-per-claim", without(&Rules::answer_every_claim, &Rules::ask_again),
             "a member answers the first claimant of an epoch and nobody who takes over", true},
    RuleInfo{"H14", "no-undo", without(&Rules::aborted_never_undoes),
             "an acquisition that a reset aborts takes its own count back", true},
    RuleInfo{"", "drain-self", without(&Rules::drain_self),
             "a claimant asks everybody but itself to get out of the way", true},
    RuleInfo{"H30", "view-after-claim", without(&Rules::view_after_claim, &Rules::first_takes_turn),
             "a claimant drains those that it knows, and not those that joined meanwhile", true},
    RuleInfo{
        "H31", "take-over",
        without(&Rules::ask_before_take_over, &Rules::view_after_claim, &Rules::first_takes_turn),
        "a claim is taken over if the claimant is unknown, without asking the coordinator, and only "
        "those that are known are drained",
        true},
    RuleInfo{"H18", "adopt", without(&Rules::adopt_own_claim),
             "nobody adopts a claim of its own that an earlier incarnation left, nor is asked about it",
             true},
    RuleInfo{"H6", "stale-entry",
             without(&Rules::epochs_match, &Rules::tickets_never_go_back, &Rules::answer_when_quiet),
             "entries and grants have no epoch, tickets start again at each reset, and a member "
             "answers while "
             "its entry is on its way; each alone does no harm",
             true},
    RuleInfo{"H33", "old-removals", without(&Rules::old_removals_count),
             "who joins later does not know that anybody was ever removed", true},
    RuleInfo{"H15", "refetch-ends", without(&Rules::refetch_ends_in_reset),
             "a releaser looks for the entry of a dead waiter for ever", true},
    RuleInfo{"H21", "unknown-outcome", without(&Rules::unknown_until_closed),
             "an operation whose outcome is unknown is taken for one that failed", true},
    RuleInfo{"H12", "void-holds", without(&Rules::restart_voids_holds),
             "a hold from before a restart of the memory node is used and released as if it were good",
             true},
    RuleInfo{"", "joiner-grant", without(&Rules::grants_name_incarnations, &Rules::first_takes_turn),
             "a grant goes to whom the releaser knows in the slot, be it the predecessor of the one "
             "who waits",
             true},
    RuleInfo{"H8", "local-grants", without(&Rules::no_local_grants_in_reset),
             "a compute node lets local clients in while the lock is being reset", true},
    // Of the token:
    RuleInfo{"H37", "ring-gaps", without(&Rules::ring_has_no_gaps, &Rules::first_takes_turn),
             "a token takes in whom it sees, although somebody ahead is not in sight yet"},
    RuleInfo{"H38", "base-below-unmet", without(&Rules::base_below_unmet),
             "those who have left a token's ring are taken out of the header beyond the tickets of "
             "those who may yet look at it",
             true},
    RuleInfo{"H40", "look-behind-entry", without(&Rules::looks_behind_entry, &Rules::first_takes_turn),
             "who has written its entry does not look whether its turn has come meanwhile"},
    RuleInfo{"H41", "hop-match", without(&Rules::hops_match),
             "a message of the token's that comes twice counts twice", true},
    RuleInfo{"H42", "early-answers", without(&Rules::early_answers_count),
             "the answer of readers that comes before the token is forgotten"},
    RuleInfo{"H43", "answers-awaited", without(&Rules::answers_are_awaited),
             "a token goes on before the readers of all nodes are done"},
    RuleInfo{"H44", "newcomers", without(&Rules::newcomers_are_granted, &Rules::first_takes_turn),
             "a token ends without a look at those who have come since"},
};

}  // namespace declock::mutants
