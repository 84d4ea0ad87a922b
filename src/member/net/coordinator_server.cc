#include "member_net/coordinator_server.h"

#include <fmt/format.h>

#include <algorithm>

namespace declock::member {

using wire::LineId;

// What goes with it in a frame, and memory nodes that come later, need the rest.
constexpr std::size_t kStateBytesMax = wire::kFrameMax - (64 << 10);

Result<std::unique_ptr<CoordinatorServer>, std::string> CoordinatorServer::open(
    const ClusterShape& shape, std::optional<StateFile> file, Send send, Log log, Time now) {
  ClusterState state;
  state.shape = shape;
  state.incarnations.resize(shape.members);
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
      server->mns_[static_cast<std::uint16_t>(&mn - server->state_.mns.data())].heard = now;
  }
  const std::vector<MemberEntry> before = server->state_.members;
  for (const MemberEntry& m : before) server->evict({m.slot, m.incarnation}, true, now);
  server->publish();
  return server;
}

bool CoordinatorServer::on_frame(LineId line, const std::string& frame, Time now) {
  return dispatch<Join, Renew, Fetch, Leave, RegisterMn, RenewMn, Fenced>(
      frame, [&](const auto& message) { on(message, line, now); });
}

void CoordinatorServer::refuse(LineId line, bool evicted, const std::string& why) {
  send_(line, frame_of(Refused{evicted, why}));
}

// ---------------------------------------------------------------- compute nodes

void CoordinatorServer::on(const Join& join, LineId line, Time now) {
  if (join.workers.empty() || join.workers.size() > kWorkersMax ||
      join.endpoints > state_.shape.endpoints) {
    return refuse(
        line, false,
        fmt::format("{} workers with {} endpoints: this cluster admits 1 to {} endpoints per compute "
                    "node; start it with a larger --endpoints",
                    join.workers.size(), join.endpoints, state_.shape.endpoints));
  }
  // It would post to memory nodes that it does not know yet.
  if (mns_.empty()) return waiting_.push_back({line, join});
  const std::optional<Slot> wanted =
      join.wanted.value == Join::kAnySlot ? std::nullopt : std::optional{join.wanted};
  const Result<MemberEntry> joined = state_.join(join.workers, wanted);
  if (!joined) {
    // A slot will be free once somebody who is dead has been fenced.
    if (!evictions_.empty()) return waiting_.push_back({line, join});
    return refuse(
        line, false,
        wanted ? fmt::format("member slot {} is taken", wanted->value)
               : fmt::format("all {} member slots are taken; wait until one leaves, or start the "
                             "cluster with a larger --members",
                             state_.shape.members));
  }
  const MemberId self{joined->slot, joined->incarnation};
  // Everybody is told of everybody in one frame.
  if (to_bytes(state_).size() > kStateBytesMax) {
    state_.remove(self.slot, self.incarnation, false);
    return refuse(
        line, false,
        fmt::format("{} workers: with the addresses of {} members that is more than a message holds; "
                    "open the cluster with fewer workers",
                    join.workers.size(), state_.members.size()));
  }
  leases_.grant(self, now);
  lines_[self] = line;
  publish();  // it is in the view before anybody gives it access (H30)
  send_(line, frame_of(Joined{self, state_}));
}

void CoordinatorServer::try_waiting_joins(Time now) {
  std::vector<WaitingJoin> waiting;
  waiting.swap(waiting_);
  for (const WaitingJoin& w : waiting) on(w.join, w.line, now);
}

void CoordinatorServer::on(const Renew& renew, LineId line, Time now) {
  if (!leases_.renew(renew.self, now)) return refuse(line, true, "");
  lines_[renew.self] = line;
}

void CoordinatorServer::on(const Fetch& fetch, LineId line, Time) {
  send_(line, frame_of(StateIs{fetch.ask, state_}));
}

void CoordinatorServer::on(const Leave& leave, LineId line, Time now) {
  if (!leases_.renew(leave.self, now)) return refuse(line, true, "");
  leases_.forget(leave.self);
  evict(leave.self, false, now);
}

void CoordinatorServer::evict(const MemberId& member, bool counts, Time now) {
  Eviction& eviction = evictions_[member];
  eviction.counts = counts;
  for (const auto& [id, seat] : mns_) {
    eviction.unconfirmed.insert(id);
    if (seat.line != 0) send_(seat.line, frame_of(Fence{member}));
  }
  remove_if_fenced(member, now);
}

void CoordinatorServer::remove_if_fenced(const MemberId& member, Time now) {
  const auto at = evictions_.find(member);
  if (at == evictions_.end() || !at->second.unconfirmed.empty()) return;
  const bool counts = at->second.counts;
  evictions_.erase(at);
  leases_.forget(member);
  state_.remove(member.slot, member.incarnation, counts);
  if (counts)
    log_(fmt::format(
        "removed the compute node in slot {} (incarnation {}): every memory node has fenced it",
        member.slot.value, member.incarnation.value));
  publish();
  if (const auto line = lines_.find(member); line != lines_.end()) {
    send_(line->second, counts ? frame_of(Refused{true, ""}) : frame_of(Left{}));
    lines_.erase(line);
  }
  try_waiting_joins(now);
}

// ---------------------------------------------------------------- memory nodes

void CoordinatorServer::on(const RegisterMn& mn, LineId line, Time now) {
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
    if (seat != mns_.end()) lose_mn(mn.id, now);
    const std::uint32_t incarnation = state_.mn_comes(mn.id, mn.address);
    log_(fmt::format("memory node {} is here, at {} (incarnation {})", mn.id, mn.address, incarnation));
    // It knows of nobody whom it must not let in: whoever is on the way out is still in the state.
    for (auto& [member, eviction] : evictions_) eviction.unconfirmed.insert(mn.id);
  }
  mns_[mn.id] = {0, now};
  publish();
  // Not told of the state before it knows that this is its incarnation: it would think that it was given up again.
  mns_[mn.id].line = line;
  send_(line, frame_of(Registered{state_.mns[mn.id].incarnation, state_}));
  for (const auto& [member, eviction] : evictions_) {
    if (eviction.unconfirmed.contains(mn.id)) send_(line, frame_of(Fence{member}));
  }
  try_waiting_joins(now);
}

void CoordinatorServer::on(const RenewMn& mn, LineId line, Time now) {
  const auto seat = mns_.find(mn.id);
  if (seat == mns_.end()) {  // it was silent for too long: it finds out, and registers again
    send_(line, frame_of(StateIs{0, state_}));
  } else if (seat->second.line == line) {
    seat->second.heard = now;
  }
}

void CoordinatorServer::on(const Fenced& fenced, LineId line, Time now) {
  const auto seat = mns_.find(fenced.mn);
  if (seat == mns_.end() || seat->second.line != line) return;
  seat->second.heard = now;
  const auto at = evictions_.find(fenced.member);
  if (at == evictions_.end()) return;
  at->second.unconfirmed.erase(fenced.mn);
  remove_if_fenced(fenced.member, now);
}

// Its memory is void from now on, so it need not fence anybody any more.
void CoordinatorServer::lose_mn(std::uint16_t id, Time now) {
  mns_.erase(id);
  state_.mn_goes(id);
  log_(fmt::format("memory node {} is gone: its memory is void", id));
  publish();
  std::vector<MemberId> perhaps_fenced;
  for (auto& [member, eviction] : evictions_) {
    eviction.unconfirmed.erase(id);
    perhaps_fenced.push_back(member);
  }
  for (const MemberId& member : perhaps_fenced) remove_if_fenced(member, now);
}

// ---------------------------------------------------------------- time, and everybody

void CoordinatorServer::on_down(LineId line) {
  std::erase_if(lines_, [&](const auto& entry) { return entry.second == line; });
  std::erase_if(waiting_, [&](const WaitingJoin& w) { return w.line == line; });
  for (auto& [id, seat] : mns_) {
    if (seat.line == line) seat.line = 0;
  }
}

void CoordinatorServer::on_tick(Time now) {
  // Whoever did not listen cannot say that others were silent: after a pause of its own it first reads what has come in.
  const Duration gap = now - last_tick_.value_or(now);
  last_tick_ = now;
  has_waited_ = gap.ns > state_.shape.lease.ns / 4 && !has_waited_;
  if (has_waited_) return;
  for (const MemberId& suspect : leases_.suspects(now)) {
    log_(fmt::format("the compute node in slot {} (incarnation {}) is silent: fencing it",
                     suspect.slot.value, suspect.incarnation.value));
    evict(suspect, true, now);
  }
  std::vector<std::uint16_t> silent;
  for (const auto& [id, seat] : mns_) {
    if (now - seat.heard > state_.shape.lease) silent.push_back(id);
  }
  for (const std::uint16_t id : silent) lose_mn(id, now);
}

void CoordinatorServer::publish() {
  if (file_) file_->save(state_);
  const std::string frame = frame_of(StateIs{0, state_});
  for (const auto& [member, line] : lines_) send_(line, frame);
  for (const auto& [id, seat] : mns_) {
    if (seat.line != 0) send_(seat.line, frame);
  }
}

}  // namespace declock::member
