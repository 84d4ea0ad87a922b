// Fairness policies: whom a compute node (CN) hands a lock to (paper section 5.3, and `slack`, ours).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/time.h"
#include "layout/timestamp.h"

namespace declock::hier {

enum class PolicyKind : std::uint8_t {
  task_fair,   // in the order in which clients asked, local or remote
  phase_fair,  // the same among local and remote, but readers and writers take turns among local ones
  slack,       // phase-fair, and a local client may go first if it asked at most a little later
  remote_prefer,  // local only if nobody remote is known to wait
  local_prefer,   // local whenever somebody local waits
  local_bound,    // local, a bounded number of times in a row
  token,  // in visits of the token (cql/token.h): writers in gates, readers of all nodes in phases
};

// By the names of the locks that have them, behind "declock-".
inline constexpr std::array<std::pair<std::string_view, PolicyKind>, 7> kPolicyNames{{
    {"tf", PolicyKind::task_fair},
    {"pf", PolicyKind::phase_fair},
    {"slack", PolicyKind::slack},
    {"remote-prefer", PolicyKind::remote_prefer},
    {"local-prefer", PolicyKind::local_prefer},
    {"local-bound", PolicyKind::local_bound},
    {"token", PolicyKind::token},
}};

struct Policy {
  PolicyKind kind = PolicyKind::phase_fair;
  Duration slack = microseconds(200);  // of `slack`
  std::uint32_t bound = 4;             // of `local_bound`
  std::uint32_t gate = 64;             // of `token`: writers of one node in a visit at most
  // Sections up to this length count as short: sharing them between nodes is worth less than a hand-over between
  // nodes costs.
  Duration short_section = microseconds(12);

  // Among local clients: do readers and writers take turns, or is it first come, first served?
  constexpr bool phases() const { return kind != PolicyKind::task_fair; }

  // May a local client that asked then go before the remote one that has waited longest, if one is known?
  constexpr bool in_time(const Asked& asked, const std::optional<RemoteWait>& remote) const {
    if (!remote || kind == PolicyKind::token) return !remote;
    return later_by(asked, *remote) <= (kind == PolicyKind::slack ? slack : Duration{});
  }

  // May a CN that has the CQL lock in mode `held` let a local client of mode `wanted` use it? In the paper only
  // if they are the same. Exclusive covers shared: no client elsewhere holds the lock. But readers elsewhere, who
  // could share it, wait meanwhile: only for short sections.
  constexpr bool covers(Mode held, Mode wanted, Duration section) const {
    const bool ours = kind == PolicyKind::slack && section <= short_section;
    return held == wanted || (ours && held == Mode::exclusive);
  }

  // In which mode does a CN ask for the CQL lock when `next` is the mode of the client that is next? Where
  // exclusive covers shared, it asks once for all if a writer waits as well.
  constexpr Mode mode_to_ask(Mode next, bool writer_waits, Duration section) const {
    const bool for_all = kind == PolicyKind::token || covers(Mode::exclusive, Mode::shared, section);
    return for_all && writer_waits ? Mode::exclusive : next;
  }

  // When readers are let in together: may one that is not in time come along? A shared lock is shared by all
  // readers that wait; what is held exclusively keeps remote clients out, so there the slack is kept.
  constexpr bool late_reader_comes_along(Mode held) const { return phases() && held == Mode::shared; }

  // May the lock be handed to a local client? `in_a_row`: local hand-overs since it came to this CN.
  constexpr bool hand_over_locally(const Asked& asked, const std::optional<RemoteWait>& remote,
                                   std::uint32_t in_a_row) const {
    switch (kind) {
      case PolicyKind::task_fair:
      case PolicyKind::phase_fair:
      case PolicyKind::slack:
        return in_time(asked, remote);
      case PolicyKind::remote_prefer:
        return !remote;
      case PolicyKind::local_prefer:
        return true;
      case PolicyKind::local_bound:
        return in_a_row < bound;
      case PolicyKind::token:
        break;  // decided by the gate (local_locks.cc)
    }
    return false;
  }
};

}  // namespace declock::hier
