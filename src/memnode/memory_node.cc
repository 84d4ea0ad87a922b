#include "memnode/memory_node.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/futex.h"
#include "base/random.h"

namespace declock::memnode {

using member::Incarnation;
using member::MemberId;
using wire::LineId;

namespace {

constexpr std::size_t kAllocationsMax = 65'536;
constexpr std::size_t kEarlyMax = 4096;
constexpr std::uint64_t kStrangersPerSecond = 5;

}  // namespace

MemoryNode::MemoryNode(const Config& config)
    : config_(config), hub_(config.secret, *this, Duration{config.shape.lease.ns / 8}) {}

MemoryNode::~MemoryNode() {
  exposure_.reset();
  if (config_.memory.empty() && !memory_.empty()) munmap(memory_.data(), memory_.size());
}

Result<std::unique_ptr<MemoryNode>, std::string> MemoryNode::open(const Config& config) {
  std::unique_ptr<MemoryNode> node{new MemoryNode{config}};
  const Result<void, std::string> prepared = node->prepare();
  if (!prepared) return Failure{prepared.error()};
  return node;
}

Result<void, std::string> MemoryNode::prepare() {
  if (!hub_.is_open()) return Failure{"this process " + wire::no_descriptors_left()};
  const Result<std::uint16_t, std::string> port = hub_.listen(config_.listen);
  if (!port) return Failure{port.error()};
  address_ = {config_.listen.host, *port};
  memory_ = config_.memory;
  if (memory_.empty()) {
    void* at = mmap(nullptr, config_.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
      return Failure{
          fmt::format("--size: {} bytes of memory: {}", config_.bytes, std::strerror(errno))};
    memory_ = {static_cast<std::byte*>(at), config_.bytes};
  }
  auto exposure = config_.expose(config_.listen.host, memory_);
  if (!exposure) return Failure{exposure.error()};
  exposure_ = std::move(*exposure);
  if (exposure_->wait_descriptor() >= 0) hub_.set_side(this);

  member::MemoryLink::Events& events = *this;
  if (config_.other_coordinator) {
    link_ = config_.other_coordinator(hub_, events);
  } else {
    if (!config_.coordinator) {
      std::optional<member::StateFile> file;
      if (!config_.state_directory.empty()) {
        auto opened = member::StateFile::open(config_.state_directory);
        if (!opened) return Failure{opened.error()};
        file.emplace(std::move(*opened));
      }
      member::ClusterShape shape = config_.shape;
      shape.id = unguessable_number();
      auto coordinator = member::CoordinatorServer::open(
          shape, std::move(file),
          [this](LineId line, const std::string& frame) {
            if (line != member::CoordinatorServer::kHost) return hub_.send(line, frame);
            hub_.post([this, frame] { (void)net_link_->on_frame(frame); });
          },
          config_.log);
      if (!coordinator) return Failure{coordinator.error()};
      coordinator_ = std::move(*coordinator);
    }
    // What a coordinator in this process says and hears is the same, without a line.
    const auto to_own = [this](const std::string& frame) {
      hub_.post(
          [this, frame] { (void)coordinator_->on_frame(member::CoordinatorServer::kHost, frame); });
    };
    auto link = config_.coordinator
                    ? std::make_unique<member::NetMemoryLink>(hub_, *config_.coordinator, events)
                    : std::make_unique<member::NetMemoryLink>(hub_, to_own, events);
    net_link_ = link.get();
    link_ = std::move(link);
  }
  link_->register_as(config_.id, wire::to_string(address_), 0);
  opened_ = monotonic_now();
  take_snapshot();
  return {};
}

Result<void, std::string> MemoryNode::run() {
  hub_.run();
  if (!failure_.empty()) return Failure{failure_};
  return {};
}

Snapshot MemoryNode::snapshot() const {
  Snapshot snapshot;
  {
    const std::lock_guard guard{snapshot_mutex_};
    snapshot = snapshot_;
  }
  snapshot.uptime = monotonic_now() - opened_;
  return snapshot;
}

void MemoryNode::take_snapshot() {
  const auto serving = std::count_if(state_.mns.begin(), state_.mns.end(),
                                     [](const member::MnEntry& mn) { return !mn.address.empty(); });
  const std::lock_guard guard{snapshot_mutex_};
  snapshot_ = {.id = config_.id,
               .memory_bytes = memory_.size(),
               .allocated_bytes = allocated_bytes_,
               .names = allocations_.size(),
               .incarnation = incarnation_,
               .view = state_.number,
               .members = state_.members.size(),
               .members_max = state_.shape.members,
               .removals = state_.removals,
               .memory_nodes = static_cast<std::uint64_t>(serving),
               .fences = fences_,
               .connections_refused = refused_};
}

// ---------------------------------------------------------------- lines

void MemoryNode::on_up(LineId line) {
  if (net_link_ != nullptr && net_link_->is(line)) net_link_->on_up();
}

void MemoryNode::on_frame(LineId line, const std::string& frame) {
  if (net_link_ != nullptr && net_link_->is(line)) {
    (void)net_link_->on_frame(frame);
    return;
  }
  const bool understood = (coordinator_ && coordinator_->on_frame(line, frame)) ||
                          member::dispatch<member::Attach, member::Relay, member::Allocate>(
                              frame, [&](const auto& message) { on(message, line); });
  if (understood) return;
  const std::string why =
      coordinator_ || frame.empty() || frame[0] != static_cast<char>(member::Kind::join)
          ? "a message that a memory node does not understand"
          : "this memory node hosts no coordinator; join at the one that does";
  refused_ += 1;
  hub_.send(line, member::frame_of(member::Refused{false, why}));
  log_stranger(fmt::format("hung up on a peer: it sent {}", why));
  hub_.hang_up(line);
}

void MemoryNode::on_down(LineId line, const std::string& why, bool refused) {
  if (coordinator_) coordinator_->on_down(line);
  if (refused) refused_ += 1;
  const bool to_coordinator =
      net_link_ != nullptr && coordinator_ == nullptr && (net_link_->is(line) || line == 0);
  const bool was_member =
      std::erase_if(lines_, [&](const auto& entry) { return entry.second == line; }) > 0;
  std::erase_if(pending_, [&](const PendingAttach& p) { return p.line == line; });
  std::erase_if(early_, [&](const auto& entry) { return entry.first == line; });
  if (to_coordinator && refused && incarnation_ == 0) {
    failure_ = why;
    hub_.stop();
  } else if (to_coordinator) {
    config_.log(why);
  } else if (refused || (!was_member && coordinator_ == nullptr)) {
    log_stranger(why);
  }
  take_snapshot();
}

void MemoryNode::on_tick(Time now) {
  if (coordinator_) coordinator_->on_tick(now);
  link_->on_tick(now);
  say_what_was_left_out(now);
  take_snapshot();
}

void MemoryNode::log_stranger(const std::string& line) {
  say_what_was_left_out(monotonic_now());
  if (strangers_logged_ == kStrangersPerSecond) {
    strangers_left_out_ += 1;
  } else {
    strangers_logged_ += 1;
    config_.log(line);
  }
}

void MemoryNode::say_what_was_left_out(Time now) {
  if (now - strangers_since_ < seconds(1)) return;
  strangers_since_ = now;
  strangers_logged_ = 0;
  if (const std::uint64_t more = std::exchange(strangers_left_out_, 0); more > 0)
    config_.log(fmt::format("{} more lines like these were left out", more));
}

void MemoryNode::on_turn() {
  if (coordinator_) coordinator_->flush();
}

// ---------------------------------------------------------------- the coordinator's word

void MemoryNode::on_registered(std::uint32_t incarnation, const member::ClusterState& state) {
  is_registering_ = false;
  // A coordinator that begins anew counts incarnations from 1 again.
  const bool is_new = incarnation_ != incarnation || state.shape.id != state_.shape.id;
  if (incarnation_ != 0 && is_new) start_afresh();
  incarnation_ = incarnation;
  if (is_new)
    config_.log(fmt::format("memory node {} serves, incarnation {}", config_.id, incarnation));
  hub_.set_tick(Duration{state.shape.lease.ns / 8});
  on_state(0, state);
  for (const auto& [line, allocate] : std::exchange(early_, {})) on(allocate, line);
}

// The cluster went on without this node: nobody knows what its memory was worth.
void MemoryNode::start_afresh() {
  config_.log("the cluster has given this memory node up: it starts again with fresh memory");
  for (const auto& [member, workers] : accesses_) {
    for (const std::uint16_t worker : workers)
      exposure_->close({member.slot, member.incarnation.value, worker});
  }
  for (const auto& [member, line] : lines_) hub_.hang_up(line);
  accesses_.clear();
  open_accesses_ = 0;
  lines_.clear();
  fenced_.clear();
  allocations_.clear();
  allocated_bytes_ = 0;
  std::memset(memory_.data(), 0, memory_.size());
}

void MemoryNode::on_state(std::uint64_t ask, const member::ClusterState& state) {
  if (state.number >= state_.number || state.shape.id != state_.shape.id) state_ = state;
  // Taken for dead while it was not: it comes back with fresh memory, as everybody believes already.
  const bool is_given_up =
      config_.id >= state_.mns.size() || state_.mns[config_.id].incarnation != incarnation_;
  if (incarnation_ != 0 && is_given_up && !std::exchange(is_registering_, true))
    link_->register_as(config_.id, wire::to_string(address_), incarnation_);
  std::vector<PendingAttach> pending;
  pending.swap(pending_);
  for (const PendingAttach& p : pending) try_attach(p, ask);
  take_snapshot();
}

void MemoryNode::on_fence(const MemberId& member) {
  Incarnation& fenced = fenced_[member.slot];
  fenced = std::max(fenced, member.incarnation);
  fences_ += 1;
  // Every access of that slot up to this incarnation: what it sent before takes no effect any more.
  std::erase_if(accesses_, [&](const auto& entry) {
    if (entry.first.slot != member.slot || entry.first.incarnation > member.incarnation) return false;
    for (const std::uint16_t worker : entry.second)
      exposure_->close({entry.first.slot, entry.first.incarnation.value, worker});
    open_accesses_ -= static_cast<int>(entry.second.size());
    return true;
  });
  link_->fenced(member);
  const auto line = lines_.find(member);
  if (line == lines_.end()) return;
  hub_.send(line->second, member::frame_of(member::Refused{true, ""}));
  lines_.erase(line);
}

void MemoryNode::on_refused(const std::string& why) {
  failure_ = why;
  hub_.stop();
}

// ---------------------------------------------------------------- what compute nodes ask for

void MemoryNode::on(const member::Attach& attach, LineId line) {
  try_attach({line, attach, 0}, 0);
}

// `answered`: the fetch whose answer the state is, or 0.
void MemoryNode::try_attach(const PendingAttach& pending, std::uint64_t answered) {
  const member::Attach& attach = pending.attach;
  const MemberId& self = attach.self;
  const auto fenced = fenced_.find(self.slot);
  if (fenced != fenced_.end() && self.incarnation <= fenced->second) {
    return hub_.send(pending.line, member::frame_of(member::Refused{true, ""}));
  }
  if (incarnation_ == 0 || !state_.has(self.slot, self.incarnation)) {
    // Perhaps it has just joined. It must be in the view before it has access (H30).
    if (pending.ask != 0 && answered >= pending.ask)
      return hub_.send(pending.line, member::frame_of(member::Refused{true, ""}));
    pending_.push_back(pending);
    if (pending.ask != 0 || incarnation_ == 0) return;
    pending_.back().ask = ++asks_;
    return link_->fetch(asks_);
  }
  const net::PeerId peer{self.slot, self.incarnation.value, attach.worker};
  std::vector<std::uint16_t>& workers = accesses_[self];
  const bool is_new = std::find(workers.begin(), workers.end(), attach.worker) == workers.end();
  // Each access takes several descriptors, and one more when it is used. One that is there already gives its own back.
  const Result<net::Blob, std::string> answer =
      is_new && wire::few_descriptors_left(wire::Hub::kSpareDescriptors + open_accesses_)
          ? Failure{"it " + wire::no_descriptors_left()}
          : exposure_->open(peer, attach.offer);
  if (!answer) {
    log_stranger(
        fmt::format("no access for the compute node in slot {}: {}", self.slot.value, answer.error()));
    return hub_.send(pending.line, member::frame_of(member::Refused{false, answer.error()}));
  }
  if (is_new) {
    workers.push_back(attach.worker);
    open_accesses_ += 1;
  }
  lines_[self] = pending.line;
  hub_.send(pending.line,
            member::frame_of(member::Attached{attach.worker, incarnation_, *answer, memory_.size()}));
}

void MemoryNode::on(const member::Relay& relay, LineId line) {
  const auto from = lines_.find(relay.from);
  const auto to = lines_.find(relay.to);
  // From whom it says, and to somebody who is here; whoever asked asks again.
  if (from == lines_.end() || from->second != line || to == lines_.end()) return;
  hub_.send(to->second, member::frame_of(relay));
}

// Not before it is registered: an answer says for which incarnation it is.
void MemoryNode::on(const member::Allocate& allocate, LineId line) {
  if (incarnation_ == 0) {
    if (early_.size() < kEarlyMax)
      early_.emplace_back(line, allocate);  // whoever asks in vain is told by a time-out
    return;
  }
  hub_.send(line, member::frame_of(find_or_make(allocate)));
  take_snapshot();
}

member::Allocated MemoryNode::find_or_make(const member::Allocate& allocate) {
  member::Allocated answer{.ask = allocate.ask, .incarnation = incarnation_};
  const auto at = allocations_.find(allocate.name);
  if (at != allocations_.end()) {
    answer.offset = at->second.offset;
    answer.bytes = at->second.bytes;
    if (allocate.bytes == 0) return answer;
    if (at->second.bytes != allocate.bytes || at->second.use != allocate.use) {
      answer.error =
          fmt::format("'{}' is there already, with {} bytes for {}; use another name, or the same size",
                      allocate.name, at->second.bytes, at->second.use);
    }
    return answer;
  }
  const std::uint64_t room = memory_.size() - allocated_bytes_;
  if (allocate.bytes == 0) {
    answer.error = fmt::format("nothing has the name '{}'", allocate.name);
    return answer;
  }
  if (allocate.name.empty() || allocate.bytes % 8 != 0) {
    answer.error = "an allocation has a name and a size in whole words of 8 bytes";
  } else if (allocate.bytes > room) {
    answer.error =
        fmt::format("{} bytes for '{}': {} of {} are left; start the memory node with a larger --size",
                    allocate.bytes, allocate.name, room, memory_.size());
  } else if (allocations_.size() >= kAllocationsMax) {
    answer.error = fmt::format("there are {} names already", kAllocationsMax);
  } else {
    answer.offset = allocated_bytes_;
    answer.bytes = allocate.bytes;
    allocations_.emplace(allocate.name, Allocation{answer.offset, allocate.bytes, allocate.use});
    allocated_bytes_ += std::min(room, (allocate.bytes + 63) / 64 * 64);
  }
  return answer;
}

}  // namespace declock::memnode
