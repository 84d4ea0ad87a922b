#include "member_shm/compute_node.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/futex.h"

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

// How long a process that has lost its lock has to find out by itself. Then it has gone on to another program, or is stopped.
constexpr Duration kFindsOutIn = seconds(1);

// Whoever had the slot is dead: nothing that it began can take effect any more.
void remove_dead(const shm::Cluster& cluster, Slot slot, std::uint64_t seen) {
  if (!MemberWord::of(seen).live) return;
  // If it fails somebody else has done it.
  cluster.member(slot).word.compare_exchange_strong(seen, MemberWord::of(seen).removed().word());
}

// Of this process; 0: it cannot be known, and numbers of processes say nothing.
std::uint64_t own_pid_space() {
  struct stat space {};
  return stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
}

// The process that a member is, if it can be watched: its number has to be from this name space.
//
// When it has ended the member is dead, whatever its lock says: a child made with _Fork() or clone() runs no handlers, and
// keeps the description that has the lock open. That is right although numbers are used again: the descriptor was opened
// for the number that the member wrote before it joined. If the member was alive then, the number was its own; if it was
// not, it is dead.
class ProcessEnd {
 public:
  ProcessEnd(const shm::Cluster::MemberLine& line, std::uint64_t own_space) : pid_(line.pid.load()) {
    if (own_space != 0 && line.pid_space.load() == own_space) open();
  }
  int descriptor() const { return descriptor_.number(); }
  // Will it say when the process ends? If not, only the lock does.
  bool tells() const { return descriptor_.number() >= 0; }
  bool is_over() const { return is_over_; }
  // Something was heard from the descriptor. A program may have closed it, and opened something else under its number.
  void look() {
    if (!is_of_process()) {
      descriptor_.forget();
      open();
    }
    pollfd end{descriptor_.number(), POLLIN, 0};
    is_over_ = is_over_ || (tells() && ::poll(&end, 1, 0) == 1);
  }

  ProcessEnd(const ProcessEnd&) = delete;
  ProcessEnd& operator=(const ProcessEnd&) = delete;
  ~ProcessEnd() {
    if (!is_of_process()) descriptor_.forget();
  }

 private:
  // Descriptors of processes are one file with many others, before Linux 6.9: the kernel has to say what it is.
  bool is_of_process() const {
    if (!descriptor_.is_ours()) return false;
    std::ifstream info{fmt::format("/proc/self/fdinfo/{}", descriptor_.number())};
    for (std::string line; std::getline(info, line);) {
      if (line.starts_with("Pid:"))  // -1: it has ended, and its parent has heard of that
        return line == fmt::format("Pid:\t{}", pid_) || line == "Pid:\t-1";
    }
    return false;
  }
  void open() {
    const long number = syscall(SYS_pidfd_open, static_cast<pid_t>(pid_), 0);
    is_over_ = number < 0 && errno == ESRCH;
    descriptor_ = Descriptor{static_cast<int>(number)};
  }

  std::uint32_t pid_;
  Descriptor descriptor_;
  bool is_over_ = false;
};

// A member that has lost its lock, but lives, as far as is known, and uses what it has in shared memory.
bool still_lives(const shm::Cluster& cluster, Slot slot) {
  const shm::Cluster::MemberLine& line = cluster.member(slot);
  const std::uint64_t word = line.word.load();
  if (!MemberWord::of(word).live) return false;
  ProcessEnd end{line, own_pid_space()};
  end.look();
  return end.tells() && !end.is_over() && line.word.load() == word;
}

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

ShmMembership::ShmMembership(const shm::Cluster& cluster, const Member& self,
                             std::atomic<bool>& evicted)
    : cluster_(cluster), self_(self), view_(view_of(cluster)), evicted_(evicted) {}

void ShmMembership::look() {
  View now = view_of(cluster_);
  if (now.number == view_.number && (ended_ || !evicted())) return;
  view_ = std::move(now);
  if (!view_.has(self_)) evicted_.store(true);
  const bool ends =
      evicted();  // if that comes while listeners are told of a view, they have to be told again
  for (ViewListener* listener : listeners_) listener->on_view(view_);
  ended_ = ends;
}

Task<Result<void>> ShmMembership::look_now(Worker&, ShmMembership& self) {
  self.look();
  if (self.evicted()) co_return Failure{Errc::evicted};
  co_return Result<void>{};
}

Result<std::unique_ptr<ComputeNode>, std::string> ComputeNode::join(const Config& config,
                                                                    std::optional<Slot> wanted) {
  for (int tries = 0;; ++tries) {  // again only if the cluster is being removed
    auto cluster = shm::Cluster::open_or_create_members(config.cluster);
    if (!cluster) return Failure{cluster.error()};
    auto lock = SlotLock::open(cluster->file().path());
    if (!lock) {
      if (!cluster->file().is_at_its_path()) continue;
      return Failure{lock.error()};
    }
    constexpr int kTriesMax = 1000;
    std::optional<Slot> slot;
    bool any_finds_out = false;  // that it has lost its slot
    const std::uint32_t members = cluster->shape().members;
    for (std::uint32_t i = wanted ? wanted->value : 0; i < (wanted ? wanted->value + 1u : members);
         ++i) {
      slot = Slot{static_cast<std::uint16_t>(i)};
      const bool taken = lock->try_take(*slot);
      if (taken && (tries >= kTriesMax || !still_lives(*cluster, *slot))) break;
      if (taken) lock->give_back(*slot);
      any_finds_out = any_finds_out || taken;
      slot.reset();
    }
    if (!cluster->file().is_at_its_path()) continue;
    // Whoever removes the cluster holds all slots for a moment. Somebody may also have inherited them (_Fork()), for good.
    if (!slot && tries < kTriesMax && (any_finds_out || view_of(*cluster).members.empty())) {
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
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      return Failure{fmt::format("{}: a pipe: {}", cluster->file().path(), std::strerror(errno))};
    }
    Descriptor stopped{ends[0]};
    Descriptor stop{ends[1]};
    // The slot is this process's alone. It becomes a member with the swap, and whoever had it before and died is
    // removed first.
    shm::Cluster::MemberLine& line = cluster->member(*slot);
    remove_dead(*cluster, *slot, line.word.load());
    line.pid.store(static_cast<std::uint32_t>(getpid()));
    line.pid_space.store(own_pid_space());
    line.news.store(0);
    const MemberWord joined = MemberWord::of(line.word.load()).joined();
    for (std::uint32_t w = 0; w <= cluster->shape().workers; ++w) {
      cluster->bell(*slot, w).store(static_cast<std::uint32_t>(Bell::away));
    }
    const Member self{*slot, Incarnation{joined.incarnation},
                      EndpointId{slot->value * cluster->shape().endpoints}};
    // What was meant for whoever had the slot before. Whatever comes once this is a member is for this one, and waits
    // until it is read.
    for (std::uint32_t i = 0; i < cluster->shape().endpoints; ++i) {
      shm::Parts parts;
      (void)cluster->mailbox(EndpointId{self.first_endpoint.value + i})
          .receive(
              parts, [&](const shm::Sender& sender) { return cluster->is_alive(sender); },
              [](EndpointId, const Message&) {});
    }
    line.word.store(joined.word());
    if (config.cluster.step) config.cluster.step("be a member");
    std::unique_ptr<ComputeNode> node{
        new ComputeNode{std::move(*cluster), std::move(*lock), self, config}};
    node->stopped_ = std::move(stopped);
    node->stop_ = std::move(stop);
    return node;
  }
}

ComputeNode::ComputeNode(shm::Cluster cluster, SlotLock lock, const Member& self, const Config& config)
    : cluster_(std::move(cluster)),
      lock_(std::move(lock)),
      self_(self),
      config_(config),
      pid_space_(cluster_.member(self.slot).pid_space.load()),
      dispatcher_bell_(&cluster_.dispatcher_bell(self.slot)) {
  for (std::uint32_t i = 0; i < cluster_.shape().workers; ++i) {
    workers_.push_back(
        std::make_unique<shm::ShmWorker>(Prng{config.seed, std::uint64_t{self.slot.value} << 8 | i},
                                         cluster_.bell(self.slot, i), dispatcher_bell_));
    memberships_.push_back(std::make_unique<ShmMembership>(cluster_, self, evicted_));
    workers_[i]->set_dispatcher_until(&dispatcher_until_ns_);
    workers_[i]->set_on_news([membership = memberships_[i].get()] { membership->look(); });
  }
  for (std::uint32_t i = 0; i < cluster_.shape().endpoints; ++i) {
    shm::ShmWorker& worker = *workers_[i % workers_.size()];
    endpoints_.push_back(std::make_unique<shm::ShmEndpoint>(
        cluster_, self.incarnation.value, evicted_, EndpointId{self.first_endpoint.value + i}, worker));
    worker.add(*endpoints_.back());
  }
}

ComputeNode::~ComputeNode() {
  stop();
  if (!has_left_) give_up_slot();
}

void ComputeNode::start() {
  watcher_ = std::thread{[this] { watch(); }};
  dispatcher_ = std::thread{[this] { dispatch(); }};
}

void ComputeNode::stop() {
  if (!watcher_.joinable() || stopping_.exchange(true)) return;
  if (stop_.is_ours()) (void)!write(stop_.number(), "", 1);  // if not, it looks soon enough
  watcher_.join();
  futex_clear_and_wake(*dispatcher_bell_.load(), kAsleepBit);
  dispatcher_.join();
}

void ComputeNode::leave() {
  CHECK(!watcher_.joinable());
  if (evicted_.load() || !say_everything(seconds(1))) return;
  const std::string lost = what_is_lost();
  if (!lost.empty()) return evict(lost);
  std::atomic<std::uint64_t>& word = cluster_.member(self_.slot).word;
  std::uint64_t member = word.load();
  has_left_ =
      is_mine(member) && word.compare_exchange_strong(member, MemberWord::of(member).left().word());
  if (!has_left_) return;
  lock_.give_back(self_.slot);
  // An error: somebody else is a member.
  if (config_.remove_when_last)
    (void)shm::remove_cluster(config_.cluster.directory, config_.cluster.name);
}

// Of a slot: has this member still got it?
bool ComputeNode::is_mine(std::uint64_t member) const {
  const MemberWord word = MemberWord::of(member);
  return word.live && word.incarnation == self_.incarnation.value;
}

// As others do it for the dead, but they need not find out first. REQUIRES: nothing that this member began can take effect
// any more.
void ComputeNode::give_up_slot() {
  const std::uint64_t member = cluster_.member(self_.slot).word.load();
  if (is_mine(member)) remove_dead(cluster_, self_.slot, member);
  wake_others();
}

void ComputeNode::wake_others() const {
  for (std::uint32_t i = 0; i < cluster_.shape().members; ++i) {
    const Slot slot{static_cast<std::uint16_t>(i)};
    shm::Cluster::MemberLine& line = cluster_.member(slot);
    if (!MemberWord::of(line.word.load()).live) continue;
    line.news.store(1);
    (void)ring(cluster_.dispatcher_bell(slot));
  }
}

Result<Node::Memory, std::string> ComputeNode::as_memory(
    MnId mn, const Result<shm::Named, std::string>& named) const {
  if (!named) return Failure{named.error()};
  return Node::Memory{{mn, named->offset}, named->bytes, cluster_.incarnation()};
}

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

// One's own lock is seen through another description alone.
bool ComputeNode::has_its_descriptors() const {
  return lock_.is_ours() && cluster_.has_its_descriptors() &&
         SlotLock::is_taken(cluster_.file().descriptor(), self_.slot).value_or(false);
}

// Empty: nothing.
std::string ComputeNode::what_is_lost() const {
  if (!has_its_descriptors())
    return "this process has closed descriptors that are not its own (close_range?), and with them its "
           "membership";
  if (!is_mine(cluster_.member(self_.slot).word.load()))
    return "other members have taken this process for dead";
  if (!config_.names_may_go && cluster_.has_lost_its_names())
    return "its files were removed or replaced while they were in use (by hand, or by logind at "
           "log-out: "
           "RemoveIPC=no in /etc/systemd/logind.conf)";
  return {};
}

void ComputeNode::evict(const std::string& why) {
  evicted_.store(true);
  if (on_evicted_) on_evicted_();
  fmt::print(stderr,
             "declock: {}: {}; this process is no member any more, and its locks are lost: close the "
             "cluster and open it again\n",
             cluster_.file().path(), why);
  // What it has in shared memory is for whoever gets the slot next.
  BellWord* bell = dispatcher_bell_.exchange(&own_dispatcher_bell_);
  if (bell != &own_dispatcher_bell_) futex_clear_and_wake(*bell, kAsleepBit);
  for (const auto& worker : workers_) {
    worker->part_with_bell();
    worker->tell_news();
  }
}

// Who is a member, as far as the watcher has seen.
struct ComputeNode::Watched {
  std::uint64_t word = 0;         // of its slot
  std::optional<ProcessEnd> end;  // its process
  Time free_since{};              // nobody has held its lock; not so: Time{}

  void is_now(std::uint64_t member) {
    word = member;
    end.reset();
    free_since = Time{};
  }
};

// True: there are news.
bool ComputeNode::look_at(std::uint32_t i, Watched& member, bool look_at_lock) {
  const Slot slot{static_cast<std::uint16_t>(i)};
  const shm::Cluster::MemberLine& line = cluster_.member(slot);
  const std::uint64_t word = line.word.load();
  const bool is_new = word != member.word;
  if (is_new) member.is_now(word);
  if (!MemberWord::of(word).live || slot == self_.slot) return is_new;
  if (is_new) {
    member.end.emplace(line, pid_space_);
    if (line.word.load() != word) {  // the number may be the next one's
      member.is_now(0);
      return true;
    }
  }
  // A process that has ended is dead. So is one whose lock nobody holds, but if it is known to live it is to find out first.
  const bool look = is_new || !member.end->tells() || look_at_lock || member.free_since != Time{};
  const bool is_taken = !look || lock_.is_taken(slot).value_or(true);
  const Time now = monotonic_now();
  if (is_taken) {
    member.free_since = Time{};
  } else if (member.free_since == Time{}) {
    member.free_since = now;
  }
  const bool finds_out = member.end->tells() && now - member.free_since < kFindsOutIn;
  if ((is_taken || finds_out) && !member.end->is_over()) return is_new;
  remove_dead(cluster_, slot, word);
  member.is_now(0);
  return true;
}

void ComputeNode::watch() {
  std::vector<Watched> watched(cluster_.shape().members);
  std::vector<pollfd> waiting;
  std::vector<Watched*> waited_for;  // of the same place in `waiting`
  bool is_lost = false;
  bool has_slot = true;
  for (std::uint64_t round = 0; !stopping_.load(); ++round) {
    bool news = false;
    waiting.clear();
    waited_for.clear();
    if (!is_lost) {
      const std::string lost = what_is_lost();
      is_lost = !lost.empty();
      if (is_lost) evict(lost);
    }
    // Who is evicted judges nobody else any more.
    for (std::uint32_t i = 0; i < watched.size() && !is_lost; ++i) {
      news = look_at(i, watched[i], round % kRoundsBetweenLooks == 0) || news;
      if (!watched[i].end || !watched[i].end->tells()) continue;
      waiting.push_back({watched[i].end->descriptor(), POLLIN, 0});
      waited_for.push_back(&watched[i]);
    }
    if (news) {
      for (const auto& worker : workers_) worker->tell_news();
    }
    const bool all_know = std::all_of(memberships_.begin(), memberships_.end(),
                                      [](const auto& membership) { return membership->has_ended(); });
    if (has_slot && all_know) {
      give_up_slot();
      has_slot = false;
    }
    if (stopped_.is_ours()) waiting.push_back({stopped_.number(), POLLIN, 0});
    (void)::poll(waiting.data(), waiting.size(), kWatchMs);
    for (std::size_t i = 0; i < waited_for.size(); ++i) {
      if (waiting[i].revents != 0) waited_for[i]->end->look();
    }
  }
}

void ComputeNode::dispatch() {
  while (!stopping_.load()) {
    BellWord& bell = *dispatcher_bell_.load();
    // Asleep first: whoever rings from now on is not missed.
    bell.store(static_cast<std::uint32_t>(Bell::asleep));
    dispatcher_until_ns_.store(ThreadWorker::kNever.ns);
    std::atomic<std::uint32_t>& news = cluster_.member(self_.slot).news;
    if (!evicted_.load() && news.load() != 0 && news.exchange(0) != 0) {
      for (const auto& worker : workers_) worker->tell_news();
    }
    Time next = ThreadWorker::kNever;
    for (const auto& worker : workers_) next = std::min(next, worker->progress());
    if (stopping_.load()) break;
    dispatcher_until_ns_.store(next.ns);
    if (&bell != dispatcher_bell_.load()) continue;
    futex_wait(bell, static_cast<std::uint32_t>(Bell::asleep), next);
  }
}

}  // namespace declock::member
