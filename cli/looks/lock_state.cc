#include "looks/lock_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"

namespace declock::looks {
namespace {

const char* name_of(Mode mode) {
  return mode == Mode::exclusive ? "exclusive" : "shared";
}

void tell_age(const LockWords& words, std::size_t slot, Request& request) {
  const std::size_t word = 1 + slot;
  if (word < words.before.size() && words.before[word] == words.queue[word]) {
    request.age = words.apart;
    request.is_older = true;
  } else if (!words.before.empty() && words.now) {
    // It is younger than the time between the looks, which is less than what a timestamp can tell.
    const std::int32_t us = microseconds_between(request.entry->timestamp, *words.now);
    if (us >= 0) request.age = microseconds(us);
  }
}

// Entries of this epoch with a ticket that is in the queue belong to it; all others are left over.
void sort_entries(const LockWords& words, LockState& state) {
  std::map<std::uint64_t, Request*> by_ticket;
  for (Request& r : state.queue) by_ticket[r.ticket.value] = &r;
  for (std::uint32_t i = 0; i < words.members; ++i) {
    const std::uint64_t word = words.queue[1 + i];
    if (word == 0) continue;
    const Entry entry = decode_entry(word);
    const Slot slot{static_cast<std::uint16_t>(i)};
    const auto at = by_ticket.find(entry.tag);
    if (entry.epoch != state.header.epoch || at == by_ticket.end() || at->second->entry) {
      state.stale.push_back({slot, entry});
      continue;
    }
    Request& request = *at->second;
    request.slot = slot;
    request.entry = entry;
    request.mode = entry.mode;
    tell_age(words, i, request);
  }
}

// The modes of requests without an entry, where the header's count of writers leaves one possibility.
void infer_modes(LockState& state) {
  std::uint32_t writers = 0;
  std::uint32_t missing = 0;
  for (const Request& r : state.queue) {
    writers += r.mode == Mode::exclusive ? 1 : 0;
    missing += r.mode ? 0 : 1;
  }
  const std::uint32_t unseen = state.header.wcnt - std::min(writers, state.header.wcnt);
  if (unseen != 0 && unseen != missing) return;
  for (Request& r : state.queue) {
    if (!r.mode) r.mode = unseen == 0 ? Mode::shared : Mode::exclusive;
  }
}

// The first holds, and if it is a reader, so do the readers right behind it.
void infer_standings(LockState& state) {
  if (state.header.reset_id != ResetId{0}) return;  // nobody holds for sure, nobody waits for long
  Standing next = Standing::holds;
  for (Request& r : state.queue) {
    const bool first = &r == &state.queue.front();
    if (!first && r.mode == Mode::exclusive) next = Standing::waits;
    if (!first && !r.mode && next == Standing::holds) next = Standing::unknown;
    r.standing = next;
    if (first && r.mode == Mode::exclusive) next = Standing::waits;
    if (first && !r.mode) next = Standing::unknown;
  }
}

std::string who(const Request& request) {
  if (request.slot) return fmt::format("the member in slot {}", request.slot->value);
  return "a member that got it at once";
}

std::string waiters_of(const LockState& state) {
  std::uint32_t waiting = 0;
  std::uint32_t exclusive = 0;
  for (const Request& r : state.queue) {
    if (r.standing != Standing::waits) continue;
    waiting += 1;
    exclusive += r.mode == Mode::exclusive ? 1 : 0;
  }
  if (waiting == 0) return "nobody waits";
  return fmt::format("{} wait{}, {} of them exclusively", waiting, waiting == 1 ? "s" : "", exclusive);
}

std::string header_lines(const LockWords& words, const LockState& state) {
  const Header& h = state.header;
  std::string text = fmt::format("  header    {:#018x}\n", words.queue[0]);
  const auto field = [&](const char* name, std::uint64_t value, const std::string& meaning) {
    text += fmt::format("    {:<9} {:<10}  {}\n", name, value, meaning);
  };
  field("ticket", h.ticket.value, "requests have left the queue");
  field("qsize", h.qsize, "are in it, who holds the lock included");
  field("wcnt", h.wcnt, "of these are exclusive");
  field("epoch", h.epoch.value, "resets so far, modulo 64");
  field("reset_id", h.reset_id.value,
        state.claimant ? fmt::format("the member in slot {} resets the lock", state.claimant->value)
        : h.reset_id == ResetId{0} ? "nobody resets it"
                                   : "somebody resets it, but no member has this number");
  text += fmt::format("  wraps     {:<12}  times that the tickets began again\n", words.wraps);
  return text;
}

std::string since(const Request& r, Duration apart) {
  if (!r.entry) {
    return r.standing == Standing::holds
               ? "got it at once: such a holder writes no entry"
               : "no entry: on its way, or its member died before it wrote it";
  }
  if (r.age && r.is_older) return fmt::format("asked more than {} ago", format_duration(*r.age));
  if (r.age) return fmt::format("asked {} ago", format_duration(*r.age));
  return apart.ns > 0 ? fmt::format("asked within the last {}", format_duration(apart)) : "";
}

std::string queue_lines(const LockWords& words, const LockState& state) {
  if (state.queue.empty()) return "  queue     empty\n";
  std::string text = fmt::format("  queue     {:>10}  {:>5} {:>7}  {:<10} {:<8} since\n", "ticket",
                                 "slot", "worker", "mode", "is");
  // A header that is none could name thousands.
  constexpr std::size_t kShown = 64;
  for (std::size_t i = 0; i < std::min(state.queue.size(), kShown); ++i) {
    const Request& r = state.queue[i];
    const char* standing = r.standing == Standing::holds   ? "holding"
                           : r.standing == Standing::waits ? "waiting"
                           : state.claimant                ? "aborted"
                                                           : "?";
    text += fmt::format("            {:>10}  {:>5} {:>7}  {:<10} {:<8} {}\n", r.ticket.value,
                        r.slot ? std::to_string(r.slot->value) : "-",
                        r.entry ? std::to_string(r.entry->worker.value) : "-",
                        r.mode ? name_of(*r.mode) : "?", standing, since(r, words.apart));
  }
  if (state.queue.size() > kShown)
    text += fmt::format("            and {} more\n", state.queue.size() - kShown);
  // The header counts who has left, not which.
  if (state.queue.front().mode == Mode::shared && state.header.ticket.value > 0)
    text += "            (readers leave in any order: that many hold it, perhaps with other tickets)\n";
  return text;
}

std::string stale_lines(const LockState& state) {
  if (state.stale.empty()) return "";
  std::string text = "  stale    ";
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < std::min(state.stale.size(), kShown); ++i) {
    const StaleEntry& s = state.stale[i];
    text += fmt::format("{} slot {}: ticket {}, epoch {}", i == 0 ? "" : ";", s.slot.value, s.entry.tag,
                        s.entry.epoch.value);
  }
  if (state.stale.size() > kShown) text += fmt::format("; and {} more", state.stale.size() - kShown);
  return text + "\n            (left over from waits that are over)\n";
}

}  // namespace

std::string to_text(RemoteAddr at) {
  return fmt::format("mn{}+{:#x}", at.mn.value, at.offset);
}

LockState decode(const LockWords& words) {
  CHECK(words.queue.size() == words.members + std::size_t{1});
  LockState state;
  Header& h = state.header;
  h = HeaderLayout{words.members}.decode(words.queue[0]);
  // Two bits of the reset_id are the claimant's incarnation.
  if (h.reset_id != ResetId{0} && h.reset_id.value >> 2 >= 1 && h.reset_id.value >> 2 <= words.members)
    state.claimant = Slot{static_cast<std::uint16_t>((h.reset_id.value >> 2) - 1)};
  state.is_sound = h.wcnt <= h.qsize && (h.reset_id == ResetId{0} || state.claimant);
  for (Ticket t = h.ticket; t < h.end(); t.value += 1) state.queue.push_back({.ticket = t});
  sort_entries(words, state);
  infer_modes(state);
  infer_standings(state);
  return state;
}

std::string headline(const LockState& state) {
  const Header& h = state.header;
  if (!state.is_sound) return "no lock: nothing that locks writes such a header";
  if (state.claimant) {
    return fmt::format("being reset by the member in slot {}; who wants it waits until that is done",
                       state.claimant->value);
  }
  if (h.qsize == 0) return "free";
  const Request& first = state.queue.front();
  if (!first.mode) {
    return fmt::format(
        "held, but entries are missing: whether shared cannot be told; {} requests, {} of them "
        "exclusive",
        h.qsize, h.wcnt);
  }
  if (*first.mode == Mode::exclusive)
    return fmt::format("held exclusively by {}; {}", who(first), waiters_of(state));
  const auto holders = std::count_if(state.queue.begin(), state.queue.end(),
                                     [](const Request& r) { return r.standing == Standing::holds; });
  return fmt::format("held shared by {}; {}", holders, waiters_of(state));
}

std::string describe(const LockWords& words) {
  const LockState state = decode(words);
  std::string text =
      fmt::format("{} at {}, {} bytes: a header, {} slots, wraps\n", words.name, to_text(words.at),
                  LockShape{words.members, words.members, QueueLayout::owner}.bytes(), words.members);
  text += fmt::format("  is        {}\n", headline(state));
  if (state.is_sound && state.header.qsize > words.members) {
    text +=
        "            more requests than members: some are of members that died; a reset removes them\n";
  }
  return text + header_lines(words, state) + queue_lines(words, state) + stale_lines(state);
}

}  // namespace declock::looks
