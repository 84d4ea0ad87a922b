// The rules of the CQL protocol that look as if they could be left out. Each can be, and then `declock explore` or
// `declock torture` finds the violation that the rule prevents: a check that cannot fail checks nothing. Only those two
// leave a rule out (src/mutants); they run the very code that the library runs.
#pragma once

namespace declock::cql {

struct Rules {
  bool passed_ticket_frees_reader = true;
  bool gap_is_not_the_end = true;
  bool writer_owes_its_successor = true;
  bool group_at_once = true;
  bool writers_are_counted = true;
  bool tickets_match = true;
  bool leave_behind_readers_only = true;
  // Of resets and failures:
  bool answer_when_quiet = true;
  bool answer_when_free = true;
  bool answer_every_claim = true;
  bool abort_by_epoch = true;
  bool aborted_never_undoes = true;
  bool drain_self = true;
  bool view_after_claim = true;
  bool ask_before_take_over = true;
  bool adopt_own_claim = true;
  bool epochs_match = true;
  bool tickets_never_go_back = true;
  bool old_removals_count = true;
  bool refetch_ends_in_reset = true;
  bool unknown_until_closed = true;
  bool restart_voids_holds = true;
  bool no_local_grants_in_reset = true;
  bool grants_name_incarnations = true;
  // Of locks in memory that operations reach at once:
  bool sleeps_by_swap = true;
  bool late_grants_are_sent = true;
  bool at_once_owes = true;
  bool at_once_answers = true;
  // Of the token (token.h):
  bool ring_has_no_gaps = true;
  bool base_below_unmet = true;
  bool looks_behind_entry = true;
  bool hops_match = true;
  bool early_answers_count = true;
  bool answers_are_awaited = true;
  bool newcomers_are_granted = true;
  // What mends a lost message. It hides the want of other rules, and is left out together with them:
  bool ask_again = true;
  bool first_takes_turn = true;
};

}  // namespace declock::cql
