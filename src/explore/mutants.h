// What is explored: the production code, or the same code with one rule left out.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "declock/result.h"
#include "mutants/rule_infos.h"

namespace declock::explore {

struct Protocol {
  cql::Rules rules{};
  // Of the cluster around the lock:
  bool fence = true;  // a member is removed once the memory node lets nothing of it take effect
  bool acknowledged_slots = true;  // a slot is given again once every member knows that it was free
};

// Rules of which only this search, and no random test, shows what they are for.
struct ExploredRule {
  std::string_view hazard;
  std::string_view name;
  Protocol protocol;
  std::string_view without;
};
inline constexpr std::array kExploredRules{
    ExploredRule{"H4",
                 "fence",
                 {.fence = false},
                 "with --faults: a member is removed although the memory node still lets it in"},
    ExploredRule{"",
                 "lost-grant",
                 {.rules = mutants::without(&cql::Rules::first_takes_turn)},
                 "with --losses: a waiter whose grant is lost does not see that its turn has come"},
    ExploredRule{"",
                 "ask-again",
                 {.rules = mutants::without(&cql::Rules::ask_again)},
                 "with --losses: signals of a reset, and what members ask each other, are sent once"},
    ExploredRule{
        "H36",
        "sleep-by-swap",
        {.rules = mutants::without(&cql::Rules::sleeps_by_swap, &cql::Rules::first_takes_turn)},
        "with --at-once: who watched its entry, and wants to sleep, writes over the grant in it"},
    ExploredRule{
        "H36",
        "late-grant",
        {.rules = mutants::without(&cql::Rules::late_grants_are_sent, &cql::Rules::first_takes_turn)},
        "with --at-once: who wants to grant the lock in an entry, and comes too late, sends no "
        "message"},
    ExploredRule{"",
                 "at-once-owes",
                 {.rules = mutants::without(&cql::Rules::at_once_owes, &cql::Rules::first_takes_turn)},
                 "with --at-once: who releases the lock in one step does not look whether somebody "
                 "waits for it"},
    ExploredRule{"",
                 "at-once-answers",
                 {.rules = mutants::without(&cql::Rules::at_once_answers, &cql::Rules::ask_again)},
                 "with --at-once --resets: who releases the lock in one step owes an answer to a "
                 "reset, and gives none"},
    ExploredRule{
        "",
        "acknowledged-slots",
        {.rules = mutants::without(&cql::Rules::first_takes_turn), .acknowledged_slots = false},
        "with --heirs: a slot is given again although somebody does not know that it was free"},
};

// The protocol without a rule. Takes a hazard's id ("H28") or a rule's name ("writer-owes").
Result<Protocol, std::string> leave_out(std::string_view name);

}  // namespace declock::explore
