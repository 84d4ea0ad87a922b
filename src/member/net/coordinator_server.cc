#include "member_net/coordinator_server.h"

#include <fmt/format.h>

#include <algorithm>

namespace declock::member {

using wire::LineId;

// What goes with it in a frame, and memory nodes that come later, need the rest.
constexpr std::size_t kStateBytesMax = wire::kFrameMax - (64 << 10);

Result<std::unique_ptr<CoordinatorServer>, std::string> CoordinatorServer::open(
    const ClusterShape& shape, std::optional<StateFile> file, Send send, Log log) {
  ClusterState state = ClusterState::empty(shape);
  if (file) {
    Result<std::optional<ClusterState>, std::string> loaded = file->load();
    if (!loaded) return Failure{loaded.error()};
    if (*loaded) {
      const ClusterShape& was = (*loaded)->shape;
      if (was.members != shape.members || was.endpoints != shape.endpoints) {
        return Failure{fmt::format(
            "{}: made for --members {} and --endpoints {}; use those, or another --state directory",
            file->path(), was.members, was.endpoints)};
      }
      state = std::move(**loaded);
      state.shape.lease = shape.lease;
    }
  }
  std::unique_ptr<CoordinatorServer> server{
      new CoordinatorServer{std::move(state), std::move(file), std::move(send), std::move(log)}};
  // Whoever was here before cannot be told from a stranger who was taken for dead meanwhile.
  for (const MnEntry& mn : server->state_.mns) {
    if (!mn.address.empty())
      server->mns_[static_cast<std::uint16_t>(&mn - server->state_.mns.data())].heard = server->clock_;
  }
  const std::vector<MemberEntry> before = server->state_.members;
  for (const MemberEntry& m : before) server->evict({m.slot, m.incarnation}, true);
  if (server->file_) server->file_->save(server->state_);
  return server;
}

CoordinatorServer::CoordinatorServer(ClusterState state, std::optional<StateFile> file, Send send,
                                     Log log)
    : state_(std::move(state)),
      file_(std::move(file)),
      send_(std::move(send)),
      log_(std::move(log)),
      leases_(state_.shape.lease),
      state_bytes_(to_bytes(state_).size()),
      published_(state_.number) {}

bool CoordinatorServer::on_frame(LineId line, const std::string& frame) {
  return dispatch<Join, Renew, Fetch, Leave, RegisterMn, RenewMn, Fenced>(
      frame, [&](const auto& message) { on(message, line); });
}

void CoordinatorServer::refuse(LineId line, bool evicted, const std::string& why) {
  answer(line, Refused{evicted, why});
}

// ---------------------------------------------------------------- compute nodes

void CoordinatorServer::on(const Join& join, LineId line) {
  std::erase_if(waiting_, [&](const WaitingJoin& w) { return w.line == line; });
  admit({line, join});
}

void CoordinatorServer::admit(const WaitingJoin& asking) {
  const Join& join = asking.join;
  const LineId line = asking.line;
  if (join.workers.empty() || join.workers.size() > kWorkersMax ||
      join.endpoints > state_.shape.endpoints) {
    return refuse(
        line, false,
        fmt::format("{} workers with {} endpoints: this cluster admits 1 to {} endpoints per compute "
                    "node; start it with a larger --endpoints",
                    join.workers.size(), join.endpoints, state_.shape.endpoints));
  }
  // It would post to memory nodes that it does not know yet.
  if (mns_.empty()) return keep_waiting(asking, "the cluster has no memory node yet; start one");
  // Everybody is told of everybody in one frame.
  const std::size_t bytes = to_bytes(MemberEntry{.workers = join.workers}).size();
  if (state_bytes_ + bytes > kStateBytesMax) {
    return refuse(
        line, false,
        fmt::format("{} workers: with the addresses of {} members that is more than a message holds; "
                    "open the cluster with fewer workers",
                    join.workers.size(), state_.members.size()));
  }
  const std::optional<Slot> wanted =
      join.wanted.value == Join::kAnySlot ? std::nullopt : std::optional{join.wanted};
  const Result<MemberEntry> joined = state_.join(join.workers, wanted, {}, acknowledged());
  if (!joined) {
    if (state_.has_free(wanted))
      return keep_waiting(asking,
                          "the free member slots have just become so, and a compute node has not heard "
                          "of that yet; try again");
    if (!evictions_.empty())
      return keep_waiting(asking,
                          "no member slot is free before a dead compute node has been fenced by every "
                          "memory node; try again");
    return refuse(
        line, false,
        wanted ? fmt::format("member slot {} is taken", wanted->value)
               : fmt::format("all {} member slots are taken; wait until one leaves, or start the "
                             "cluster with a larger --members",
                             state_.shape.members));
  }
  const MemberId self{joined->slot, joined->incarnation};
  state_bytes_ += bytes;
  changed_.insert(self.slot);
  leases_.grant(self, clock_);
  lines_[self] = line;
  seen_[self] = state_.number;  // it begins with that
  answer_with_state<Joined>(line, self);
}

void CoordinatorServer::keep_waiting(const WaitingJoin& asking, const std::string& why) {
  waiting_.push_back({asking.line, asking.join, why});
  if (asking.why != why) answer(asking.line, Refused{false, why, false});
}

void CoordinatorServer::try_waiting_joins() {
  std::vector<WaitingJoin> waiting;
  waiting.swap(waiting_);
  for (const WaitingJoin& w : waiting) admit(w);
}

// By everybody who may yet send something to who had a slot before. Those on the way out do not count: what they have
// not said is said by who mends their locks.
std::uint64_t CoordinatorServer::acknowledged() const {
  std::uint64_t least = state_.number;
  for (const auto& [member, number] : seen_) {
    if (!evictions_.contains(member)) least = std::min(least, number);
  }
  return least;
}

void CoordinatorServer::on(const Renew& renew, LineId line) {
  if (!leases_.renew(renew.self, clock_)) return refuse(line, true, "");
  lines_[renew.self] = line;
  std::uint64_t& seen = seen_[renew.self];
  if (renew.seen <= seen) return;
  seen = renew.seen;
  may_join_ = true;
}

void CoordinatorServer::on(const Fetch& fetch, LineId line) {
  const bool has_it =
      fetch.cluster == state_.shape.id && fetch.have == state_.number && state_.number == published_;
  if (!has_it) return answer_with_state<StateIs>(line, fetch.ask);
  told_[line] = published_;
  answer(line, Changed{fetch.ask, state_.change_from(published_, {})});
}

void CoordinatorServer::on(const Leave& leave, LineId line) {
  if (!leases_.renew(leave.self, clock_)) return refuse(line, true, "");
  leases_.forget(leave.self);
  evict(leave.self, false);
}

void CoordinatorServer::evict(const MemberId& member, bool counts) {
  Eviction& eviction = evictions_[member];
  eviction.counts = counts;
  for (const auto& [id, seat] : mns_) {
    eviction.unconfirmed.insert(id);
    if (seat.line != 0) answer(seat.line, Fence{member});
  }
  may_join_ = true;  // nobody waits for it to acknowledge anything
  remove_if_fenced(member);
}

void CoordinatorServer::remove_if_fenced(const MemberId& member) {
  const auto at = evictions_.find(member);
  if (at == evictions_.end() || !at->second.unconfirmed.empty()) return;
  const bool counts = at->second.counts;
  evictions_.erase(at);
  leases_.forget(member);
  seen_.erase(member);
  if (const MemberEntry* gone = state_.find(member.slot))
    state_bytes_ -= to_bytes(MemberEntry{.workers = gone->workers}).size();
  state_.remove(member.slot, member.incarnation, counts);
  changed_.insert(member.slot);
  if (counts)
    log_(fmt::format(
        "removed the compute node in slot {} (incarnation {}): every memory node has fenced it",
        member.slot.value, member.incarnation.value));
  if (const auto line = lines_.find(member); line != lines_.end()) {
    if (counts) {
      answer(line->second, Refused{true, ""});
    } else {
      answer(line->second, Left{});
    }
    lines_.erase(line);
  }
  may_join_ = true;
}

// ---------------------------------------------------------------- memory nodes

void CoordinatorServer::on(const RegisterMn& mn, LineId line) {
  if (mn.id >= kMnsMax)
    return refuse(line, false, fmt::format("--id {}: at most {}", mn.id, kMnsMax - 1));
  const auto seat = mns_.find(mn.id);
  if (seat != mns_.end() && seat->second.line != 0 && seat->second.line != line) {
    return refuse(line, false,
                  fmt::format("memory node {} is here already, at {}; give this one another --id",
                              mn.id, state_.mns[mn.id].address));
  }
  const bool goes_on = seat != mns_.end() && mn.cluster == state_.shape.id &&
                       mn.incarnation == state_.mns[mn.id].incarnation && mn.incarnation != 0;
  if (!goes_on) {
    if (seat != mns_.end()) lose_mn(mn.id);
    const std::uint32_t incarnation = state_.mn_comes(mn.id, mn.address);
    log_(fmt::format("memory node {} is here, at {} (incarnation {})", mn.id, mn.address, incarnation));
    // It knows of nobody whom it must not let in: whoever is on the way out is still in the state.
    for (auto& [member, eviction] : evictions_) eviction.unconfirmed.insert(mn.id);
  }
  mns_[mn.id] = {line, clock_};
  // Told so before it is told of the state: it would think that it was given up again.
  answer_with_state<Registered>(line, state_.mns[mn.id].incarnation);
  for (const auto& [member, eviction] : evictions_) {
    if (eviction.unconfirmed.contains(mn.id)) answer(line, Fence{member});
  }
  may_join_ = true;
}

void CoordinatorServer::on(const RenewMn& mn, LineId line) {
  const auto seat = mns_.find(mn.id);
  if (seat == mns_.end()) {  // it was silent for too long: it finds out, and registers again
    answer_with_state<StateIs>(line, std::uint64_t{0});
  } else if (seat->second.line == line) {
    seat->second.heard = clock_;
  }
}

void CoordinatorServer::on(const Fenced& fenced, LineId line) {
  const auto seat = mns_.find(fenced.mn);
  if (seat == mns_.end() || seat->second.line != line) return;
  seat->second.heard = clock_;
  const auto at = evictions_.find(fenced.member);
  if (at == evictions_.end()) return;
  at->second.unconfirmed.erase(fenced.mn);
  remove_if_fenced(fenced.member);
}

// Its memory is void from now on, so it need not fence anybody any more.
void CoordinatorServer::lose_mn(std::uint16_t id) {
  mns_.erase(id);
  state_.mn_goes(id);
  log_(fmt::format("memory node {} is gone: its memory is void", id));
  std::vector<MemberId> perhaps_fenced;
  for (auto& [member, eviction] : evictions_) {
    eviction.unconfirmed.erase(id);
    perhaps_fenced.push_back(member);
  }
  for (const MemberId& member : perhaps_fenced) remove_if_fenced(member);
}

// ---------------------------------------------------------------- time, and everybody

void CoordinatorServer::on_down(LineId line) {
  std::erase_if(lines_, [&](const auto& entry) { return entry.second == line; });
  std::erase_if(waiting_, [&](const WaitingJoin& w) { return w.line == line; });
  std::erase_if(answers_, [&](const Answer& a) { return a.line == line; });
  told_.erase(line);
  for (auto& [id, seat] : mns_) {
    if (seat.line == line) seat.line = 0;
  }
}

void CoordinatorServer::on_tick(Time now) {
  // Whatever had been said when the last turn began has been read, and counts as said at its end. So who is silent by
  // this clock has said nothing in at least four turns, however long they took.
  const Duration gap = now - last_tick_.value_or(now);
  last_tick_ = now;
  clock_ = clock_ + std::min(gap, Duration{state_.shape.lease.ns / 4});
  for (const MemberId& suspect : leases_.suspects(clock_)) {
    log_(fmt::format("the compute node in slot {} (incarnation {}) is silent: fencing it",
                     suspect.slot.value, suspect.incarnation.value));
    evict(suspect, true);
  }
  std::vector<std::uint16_t> silent;
  for (const auto& [id, seat] : mns_) {
    if (seat.line != kHost && clock_ - seat.heard > state_.shape.lease) silent.push_back(id);
  }
  for (const std::uint16_t id : silent) lose_mn(id);
}

void CoordinatorServer::flush() {
  if (std::exchange(may_join_, false)) try_waiting_joins();
  const bool is_new = state_.number != published_;
  if (is_new && file_) file_->save(state_);
  std::string state;
  for (const Answer& a : std::exchange(answers_, {})) {
    if (a.with_state && state.empty()) state = to_bytes(state_);
    if (a.with_state) told_[a.line] = state_.number;
    send_(a.line, a.with_state ? a.frame + state : a.frame);
  }
  if (is_new) tell_everybody();
}

void CoordinatorServer::tell_everybody() {
  const std::string change = frame_of(Changed{0, state_.change_from(published_, changed_)});
  std::string all;
  const auto tell = [&](LineId line) {
    std::uint64_t& told = told_[line];
    if (told == state_.number) return;
    if (told != published_ && all.empty()) all = frame_of(StateIs{0, state_});
    send_(line, told == published_ ? change : all);
    told = state_.number;
  };
  for (const auto& [member, line] : lines_) tell(line);
  for (const auto& [id, seat] : mns_) {
    if (seat.line != 0) tell(seat.line);
  }
  published_ = state_.number;
  changed_.clear();
}

}  // namespace declock::member
