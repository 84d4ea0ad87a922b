#include "member_shm/compute_node.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/futex.h"
#include "shm/names.h"

namespace declock::member {
namespace {

using shm::MemberWord;

// A death wakes the watcher at once. Joins do not, nor a death that the kernel gives no descriptor for.
constexpr int kWatchMs = 100;
// Even where a descriptor is expected to tell, the locks are looked at once in a while.
constexpr std::uint64_t kRoundsBetweenLooks = 10;

std::vector<std::uint64_t> words_of(const shm::Cluster& cluster) {
  std::vector<std::uint64_t> words;
  for (std::uint32_t i = 0; i < cluster.shape().members; ++i) {
    words.push_back(cluster.member(Slot{static_cast<std::uint16_t>(i)}).word.load());
  }
  return words;
}

// Whoever had the slot is dead: nothing that it began can take effect any more.
void remove_dead(const shm::Cluster& cluster, Slot slot, std::uint64_t seen) {
  if (!MemberWord::of(seen).live) return;
  // If it fails somebody else has done it.
  cluster.member(slot).word.compare_exchange_strong(seen, MemberWord::of(seen).removed().word());
}

// A descriptor that becomes readable when a process ends.
class ProcessEnd {
 public:
  explicit ProcessEnd(std::uint32_t pid)
      : descriptor_(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0))) {}
  ProcessEnd(ProcessEnd&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ProcessEnd& operator=(ProcessEnd&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~ProcessEnd() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int descriptor() const { return descriptor_; }
  // Will it say when the process ends? If not, only the lock does.
  bool tells() const { return descriptor_ >= 0; }
  // It has said so.
  void forget_if_over() {
    pollfd end{descriptor_, POLLIN, 0};
    if (descriptor_ >= 0 && ::poll(&end, 1, 0) == 1) close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_;
};

}  // namespace

View view_of(const shm::Cluster& cluster) {
  // Words only ever grow: if two looks in a row agree, all of them were so at one moment.
  std::vector<std::uint64_t> words = words_of(cluster);
  for (std::vector<std::uint64_t> before; before != words;) {  // ends: members come and go rarely
    before = std::move(words);
    words = words_of(cluster);
  }
  View view;
  for (std::uint32_t i = 0; i < words.size(); ++i) {
    const MemberWord member = MemberWord::of(words[i]);
    view.number += member.changes();
    view.removals += member.removals;
    if (!member.live) continue;
    view.members.push_back({Slot{static_cast<std::uint16_t>(i)}, Incarnation{member.incarnation},
                            EndpointId{i * cluster.shape().endpoints}});
  }
  return view;
}

ShmMembership::ShmMembership(const shm::Cluster& cluster, const Member& self)
    : cluster_(cluster), self_(self), view_(view_of(cluster)) {}

void ShmMembership::look() {
  View now = view_of(cluster_);
  if (now.number == view_.number) return;
  view_ = std::move(now);
  evicted_ = !view_.has(self_);
  for (ViewListener* listener : listeners_) listener->on_view(view_);
}

Task<Result<void>> ShmMembership::look_now(Worker&, ShmMembership& self) {
  self.look();
  if (self.evicted_) co_return Failure{Errc::evicted};
  co_return Result<void>{};
}

Result<std::unique_ptr<ComputeNode>, std::string> ComputeNode::join(const Config& config,
                                                                    std::optional<Slot> wanted) {
  for (;;) {  // again only if the cluster is being removed
    auto cluster = shm::Cluster::open_or_create_members(config.cluster);
    if (!cluster) return Failure{cluster.error()};
    auto lock = SlotLock::open(cluster->file().path());
    if (!lock) {
      if (!cluster->file().is_at_its_path()) continue;
      return Failure{lock.error()};
    }
    std::optional<Slot> slot;
    const std::uint32_t members = cluster->shape().members;
    for (std::uint32_t i = wanted ? wanted->value : 0; i < (wanted ? wanted->value + 1u : members);
         ++i) {
      slot = Slot{static_cast<std::uint16_t>(i)};
      if (lock->try_take(*slot)) break;
      slot.reset();
    }
    if (!cluster->file().is_at_its_path()) continue;
    // Whoever removes the cluster holds all slots for a moment.
    if (!slot && view_of(*cluster).members.empty()) {
      usleep(1000);
      continue;
    }
    if (!slot) {
      return Failure{fmt::format("{}: {}; wait until one leaves, or make a larger cluster",
                                 cluster->file().path(),
                                 wanted ? fmt::format("slot {} is taken", wanted->value)
                                        : fmt::format("all {} member slots are taken", members))};
    }
    const auto memory = cluster->open_memory(&config.cluster);
    if (!memory) {
      lock->give_back(*slot);
      // Where no memory was ever made nothing can be lost: it is not to be in the way of a smaller one.
      if (access(shm::memory_path_of(config.cluster.directory, config.cluster.name, 0).c_str(), F_OK) !=
          0)
        (void)shm::remove_cluster(config.cluster.directory, config.cluster.name);
      return Failure{memory.error()};
    }
    // The slot is this process's alone. It becomes a member with the swap, and whoever had it before and died is
    // removed first.
    shm::Cluster::MemberLine& line = cluster->member(*slot);
    remove_dead(*cluster, *slot, line.word.load());
    line.pid.store(static_cast<std::uint32_t>(getpid()));
    const MemberWord joined = MemberWord::of(line.word.load()).joined();
    for (std::uint32_t w = 0; w <= cluster->shape().workers; ++w) {
      cluster->bell(*slot, w).store(static_cast<std::uint32_t>(Bell::away));
    }
    const Member self{*slot, Incarnation{joined.incarnation},
                      EndpointId{slot->value * cluster->shape().endpoints}};
    // What was meant for whoever had the slot before. Whatever comes once this is a member is for this one, and waits
    // until it is read.
    for (std::uint32_t i = 0; i < cluster->shape().endpoints; ++i) {
      (void)cluster->mailbox(EndpointId{self.first_endpoint.value + i})
          .receive([&](const shm::Sender& sender) { return cluster->is_alive(sender); },
                   [](EndpointId, const Message&) {});
    }
    line.word.store(joined.word());
    if (config.cluster.step) config.cluster.step("be a member");
    return std::unique_ptr<ComputeNode>{
        new ComputeNode{std::move(*cluster), std::move(*lock), self, config}};
  }
}

ComputeNode::ComputeNode(shm::Cluster cluster, SlotLock lock, const Member& self, const Config& config)
    : cluster_(std::move(cluster)), lock_(std::move(lock)), self_(self), config_(config) {
  for (std::uint32_t i = 0; i < cluster_.shape().workers; ++i) {
    workers_.push_back(std::make_unique<shm::ShmWorker>(
        Prng{config.seed, std::uint64_t{self.slot.value} << 8 | i}, cluster_, self.slot, i));
    memberships_.push_back(std::make_unique<ShmMembership>(cluster_, self));
    workers_[i]->set_dispatcher_until(&dispatcher_until_ns_);
    workers_[i]->set_on_news([membership = memberships_[i].get()] { membership->look(); });
  }
  for (std::uint32_t i = 0; i < cluster_.shape().endpoints; ++i) {
    shm::ShmWorker& worker = *workers_[i % workers_.size()];
    endpoints_.push_back(std::make_unique<shm::ShmEndpoint>(
        cluster_, self.incarnation.value, EndpointId{self.first_endpoint.value + i}, worker));
    worker.add(*endpoints_.back());
  }
}

ComputeNode::~ComputeNode() {
  stop();
}

void ComputeNode::start() {
  stop_event_ = eventfd(0, EFD_CLOEXEC);
  CHECK(stop_event_ >= 0);
  watcher_ = std::thread{[this] { watch(); }};
  dispatcher_ = std::thread{[this] { dispatch(); }};
}

void ComputeNode::stop() {
  if (!watcher_.joinable() || stopping_.exchange(true)) return;
  (void)eventfd_write(stop_event_, 1);
  futex_clear_and_wake(cluster_.dispatcher_bell(self_.slot), kAsleepBit);
  watcher_.join();
  dispatcher_.join();
  close(stop_event_);
}

void ComputeNode::leave() {
  CHECK(!watcher_.joinable());
  if (!say_everything(seconds(1))) return;
  std::atomic<std::uint64_t>& word = cluster_.member(self_.slot).word;
  word.store(MemberWord::of(word.load()).left().word());
  lock_.give_back(self_.slot);
  // An error: somebody else is a member.
  if (config_.remove_when_last)
    (void)shm::remove_cluster(config_.cluster.directory, config_.cluster.name);
}

namespace {

Result<Node::Memory, std::string> as_memory(MnId mn, const Result<shm::Named, std::string>& named) {
  if (!named) return Failure{named.error()};
  return Node::Memory{{mn, named->offset}, named->bytes, 1};
}

}  // namespace

Result<Node::Memory, std::string> ComputeNode::allocate(MnId mn, const std::string& name,
                                                        std::uint64_t bytes, const std::string& use) {
  if (bytes == 0 || bytes % 8 != 0) {
    return Failure{fmt::format("'{}': an allocation has a size in whole words of 8 bytes", name)};
  }
  return as_memory(mn, shm::find_or_make(cluster_, mn, name, bytes, use));
}

Result<Node::Memory, std::string> ComputeNode::find(MnId mn, const std::string& name) {
  return as_memory(mn, shm::find(cluster_, mn, name));
}

// Who is a member, as far as the watcher has seen.
struct ComputeNode::Watched {
  std::uint64_t word;               // of its slot
  std::optional<ProcessEnd> end{};  // readable once its process has ended
};

void ComputeNode::watch() {
  std::vector<Watched> watched(cluster_.shape().members);
  std::vector<pollfd> waiting;
  for (std::uint64_t round = 0; !stopping_.load(); ++round) {
    bool news = false;
    waiting.assign(1, {stop_event_, POLLIN, 0});
    for (std::uint32_t i = 0; i < watched.size(); ++i) {
      const Slot slot{static_cast<std::uint16_t>(i)};
      const std::uint64_t word = cluster_.member(slot).word.load();
      Watched& member = watched[i];
      const bool is_new = word != member.word;
      news = news || is_new;
      if (is_new) member = {word, {}};
      if (!MemberWord::of(word).live || slot == self_.slot) continue;
      if (is_new) member.end.emplace(cluster_.member(slot).pid.load());
      // The lock is the truth. If it is held now, the process that was just looked up by its number was the right one,
      // unless that number is from another name space.
      const bool look = is_new || !member.end->tells() || round % kRoundsBetweenLooks == 0;
      if (look && !lock_.is_taken(slot)) {
        remove_dead(cluster_, slot, word);
        news = true;
        member = {};
      } else if (member.end->tells()) {
        waiting.push_back({member.end->descriptor(), POLLIN, 0});
      }
    }
    if (news) {
      for (const auto& worker : workers_) worker->tell_news();
    }
    (void)::poll(waiting.data(), waiting.size(), kWatchMs);
    for (Watched& member : watched) {
      if (member.end) member.end->forget_if_over();
    }
  }
}

void ComputeNode::dispatch() {
  BellWord& bell = cluster_.dispatcher_bell(self_.slot);
  while (!stopping_.load()) {
    // Asleep first: whoever rings from now on is not missed.
    bell.store(static_cast<std::uint32_t>(Bell::asleep));
    dispatcher_until_ns_.store(ThreadWorker::kNever.ns);
    Time next = ThreadWorker::kNever;
    for (const auto& worker : workers_) next = std::min(next, worker->progress());
    if (stopping_.load()) break;
    dispatcher_until_ns_.store(next.ns);
    futex_wait(bell, static_cast<std::uint32_t>(Bell::asleep), next);
  }
}

}  // namespace declock::member
