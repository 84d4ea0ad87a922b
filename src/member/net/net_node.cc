#include "member_net/net_node.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "base/futex.h"
#include "base/random.h"

namespace declock::member {

using wire::LineId;

namespace {

std::chrono::nanoseconds as_chrono(Duration d) {
  return std::chrono::nanoseconds{d.ns};
}

Failure<std::string> no_descriptors() {
  return Failure{"this process " + wire::no_descriptors_left()};
}

}  // namespace

// ---------------------------------------------------------------- what a worker knows

void NetMembership::hear(const View& view, bool evicted) {
  if (view.number < view_.number && !evicted) return;
  const bool is_news = view.number > view_.number || (evicted && !evicted_);
  if (view.number > view_.number) view_ = view;
  evicted_ = evicted_ || evicted;
  if (!is_news) return;
  const std::vector<ViewListener*> told = listeners_;
  for (ViewListener* listener : told) listener->on_view(view_);
  if (!evicted_) return;
  ThreadWorker& worker = node_.worker(worker_);
  for (const auto& [ask, woken] : std::exchange(asking_, {})) worker.arm(*woken, worker.now());
}

void NetMembership::answered(std::uint64_t ask) {
  const auto at = asking_.find(ask);
  if (at == asking_.end()) return;
  ThreadWorker& worker = node_.worker(worker_);
  worker.arm(*at->second, worker.now());
  asking_.erase(at);
}

// Woken by a timer, which forgets who is destroyed meanwhile.
struct NetMembership::Answer {
  NetMembership& self;
  std::uint64_t number;
  Timer woken{};
  explicit Answer(NetMembership& s) : self(s), number(++s.asks_) {}
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  ~Answer() {
    if (woken.armed_as != 0) self.node_.worker(self.worker_).disarm(woken);
    self.asking_.erase(number);
  }
  bool await_ready() const { return self.evicted_; }
  void await_suspend(std::coroutine_handle<> me) {
    woken.waiter = me;
    self.asking_[number] = &woken;
    self.node_.fetch(self.worker_, number);
  }
  void await_resume() const {}
};

Task<Result<void>> NetMembership::ask(Worker&, NetMembership& self) {
  co_await Answer{
      self};  // ends: the coordinator answers, or whoever comes after it says that this node is evicted
  if (self.evicted_) co_return Failure{Errc::evicted};
  co_return Result<void>{};
}

// ---------------------------------------------------------------- joining and leaving

NetNode::NetNode(const NetNodeConfig& config)
    : config_(config), hub_(config.secret, *this, milliseconds(20)) {}

Result<std::unique_ptr<NetNode>, std::string> NetNode::join(const NetNodeConfig& config) {
  const Time latest = monotonic_now() + config.patience;
  for (;;) {
    std::unique_ptr<NetNode> node{new NetNode{config}};
    const Result<void, std::string> opened = node->open();
    if (opened) return node;
    // On a busy machine it may be taken for dead before it is there. It has done nothing yet that another attempt would lose.
    const bool is_evicted = std::any_of(node->ports_.begin(), node->ports_.end(),
                                        [](const auto& port) { return port->is_evicted(); });
    if (node->no_access_.load() || !is_evicted || monotonic_now() >= latest)
      return Failure{opened.error()};
  }
}

Result<void, std::string> NetNode::open() {
  if (!hub_.is_open()) return no_descriptors();
  std::string host = config_.host;
  if (host.empty()) {
    const Result<std::string, std::string> towards = wire::local_host_towards(config_.coordinator);
    if (!towards) return Failure{towards.error()};
    host = *towards;
  }
  for (std::uint32_t i = 0; i < config_.workers; ++i) {
    auto transport = config_.transport(host);
    if (!transport) return Failure{transport.error()};
    addresses_.push_back({(*transport)->address(), unguessable_number()});
    transports_.push_back(std::move(*transport));
  }
  const Join join{config_.endpoints, addresses_, config_.slot.value_or(Slot{Join::kAnySlot})};
  ComputeLink::Events& events = *this;
  if (config_.other_coordinator) {
    link_ = config_.other_coordinator(hub_, events);
  } else {
    auto link = std::make_unique<NetComputeLink>(hub_, config_.coordinator, events);
    net_link_ = link.get();
    link_ = std::move(link);
  }
  hub_.post([this, join] { link_->join(join); });
  hub_thread_ = std::thread{[this] { hub_.run(); }};
  {
    std::unique_lock guard{mutex_};
    changed_.wait_for(guard, as_chrono(config_.patience), [&] { return joined_ || is_refused_; });
    if (!joined_)
      return Failure{refused_.empty()
                         ? fmt::format("{} does not answer", to_string(config_.coordinator))
                         : refused_};
  }
  const Result<void, std::string> built = build(joined_->first, joined_->second);
  return built ? attach_all() : built;
}

Result<void, std::string> NetNode::build(const MemberId& self, const ClusterState& state) {
  id_ = self;
  shape_ = state.shape;
  self_ = {self.slot, self.incarnation, EndpointId{self.slot.value * shape_.endpoints}};
  net::Switchboard& switchboard = *this;
  dispatcher_rung_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (dispatcher_rung_ < 0) return no_descriptors();
  watched_ = std::make_unique<std::atomic<bool>[]>(config_.workers);
  goes_by_ = std::make_unique<std::atomic<std::uint64_t>[]>(config_.workers);
  for (std::uint32_t i = 0; i < config_.workers; ++i) {
    workers_.push_back(std::make_unique<net::NetWorker>(
        Prng{config_.seed, std::uint64_t{self.slot.value} << 8 | i}, [this, i](Time when) {
          if (when < ThreadWorker::kNever || !watched_[i].load())
            (void)eventfd_write(dispatcher_rung_, 1);
        }));
    if (!workers_.back()->is_open()) return no_descriptors();
    net::Port::Config port{{self.slot, self.incarnation.value, static_cast<std::uint16_t>(i)},
                           addresses_[i].cookie,
                           shape_.endpoints,
                           std::max(shape_.lease, milliseconds(500))};
    ports_.push_back(
        std::make_unique<net::Port>(port, std::move(transports_[i]), *workers_[i], switchboard));
    workers_[i]->set_port(ports_[i].get());
    memberships_.push_back(std::make_unique<NetMembership>(*this, i, self_, state.view()));
  }
  for (std::size_t i = 0; i < state.mns.size(); ++i) incarnations_[i].store(state.mns[i].incarnation);
  for (std::uint32_t i = 0; i < config_.endpoints; ++i) {
    const std::uint32_t on = i % config_.workers;
    endpoints_.push_back(std::make_unique<net::NetEndpoint>(EndpointId{self_.first_endpoint.value + i},
                                                            *workers_[on], *ports_[on]));
  }
  hub_.post([this, state] {
    is_built_ = true;
    take(state_.number > state.number ? ClusterState{state_} : state);
    if (is_evicted_) return end_membership();  // it heard so before
    if (!state_.has(id_.slot, id_.incarnation)) on_evicted();
  });
  return {};
}

namespace {

// True: open, or the cluster has given the memory node up meanwhile, and then there is nothing to wait for.
Task<bool> until_open(Worker& worker, net::Port& port, MnId mn, std::uint32_t joined_at,
                      const std::atomic<std::uint32_t>& incarnation, const std::atomic<bool>& no_access,
                      Time latest) {
  port.attach(mn);
  while (!port.is_open(mn) && incarnation.load() == joined_at) {
    if (no_access.load() || port.is_evicted() || worker.now() >= latest) co_return false;
    co_await worker.sleep_for(milliseconds(1));
  }
  co_return true;
}

}  // namespace

// To every memory node that is there.
Result<void, std::string> NetNode::attach_all() {
  const Time latest = monotonic_now() + config_.patience;
  const std::vector<MnEntry>& mns = joined_->second.mns;
  for (std::uint16_t mn = 0; mn < mns.size(); ++mn) {
    for (std::uint32_t w = 0; w < config_.workers && !mns[mn].address.empty(); ++w) {
      net::NetWorker& worker = *workers_[w];
      if (worker.run([&] {
            return until_open(worker, *ports_[w], MnId{mn}, mns[mn].incarnation, incarnations_[mn],
                              no_access_, latest);
          }))
        continue;
      if (!no_access_.load() && ports_[w]->is_evicted())
        return Failure{
            std::string{"the cluster took this compute node for dead while it joined; join again"}};
      const std::lock_guard guard{mutex_};
      return Failure{refused_.empty()
                         ? fmt::format("memory node {} at {} does not answer", mn, mns[mn].address)
                         : refused_};
    }
  }
  is_attached_.store(true);
  return {};
}

NetNode::~NetNode() {
  stop();
  hub_.stop();
  if (hub_thread_.joinable()) hub_thread_.join();
  if (dispatcher_rung_ >= 0) close(dispatcher_rung_);
}

void NetNode::start() {
  dispatcher_ = std::thread{[this] { dispatch_loop(); }};
}

void NetNode::stop() {
  if (!dispatcher_.joinable() || stopping_.exchange(true)) return;
  (void)eventfd_write(dispatcher_rung_, 1);
  dispatcher_.join();
}

void NetNode::leave() {
  CHECK(!dispatcher_.joinable());
  // A peer that has just died acknowledges nothing, until it is removed.
  if (ports_[0]->is_evicted() || !say_everything(shape_.lease * 2)) return;
  hub_.post([this] { link_->leave(); });
  std::unique_lock guard{mutex_};
  changed_.wait_for(guard, as_chrono(shape_.lease), [&] { return has_left_; });
}

void NetNode::dispatch_loop() {
  while (!stopping_.load()) {
    Time next = ThreadWorker::kNever;
    for (const auto& worker : workers_) next = std::min(next, worker->progress());
    std::vector<pollfd> waits{{dispatcher_rung_, POLLIN, 0}};
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      // First not watched, then a look: a worker that comes away meanwhile finds that, and rings.
      watched_[i].store(false);
      if (!workers_[i]->is_away()) continue;
      watched_[i].store(true);
      waits.push_back({ports_[i]->transport().wait_descriptor(), POLLIN, 0});
    }
    const std::int64_t left_ns =
        std::clamp<std::int64_t>((next - monotonic_now()).ns, 0, 1'000'000'000);
    const timespec timeout{left_ns / 1'000'000'000, left_ns % 1'000'000'000};
    (void)::ppoll(waits.data(), waits.size(), &timeout, nullptr);
    std::uint64_t rung = 0;
    if (waits[0].revents != 0) (void)!read(dispatcher_rung_, &rung, sizeof rung);
  }
}

// ---------------------------------------------------------------- the coordinator's word, in the hub's loop

void NetNode::on_joined(const MemberId& self, const ClusterState& state) {
  hub_.set_tick(Duration{state.shape.lease.ns / 8});
  const std::lock_guard guard{mutex_};
  joined_.emplace(self, state);
  refused_.clear();  // it was told to wait
  changed_.notify_all();
}

void NetNode::on_refused(const std::string& why, bool final) {
  const std::lock_guard guard{mutex_};
  refused_ = why;
  is_refused_ = is_refused_ || final;
  changed_.notify_all();
}

void NetNode::on_left() {
  const std::lock_guard guard{mutex_};
  has_left_ = true;
  changed_.notify_all();
}

template <class Job>
void NetNode::on_workers(Job job) {
  for (std::uint32_t w = 0; w < workers_.size(); ++w) workers_[w]->post([job, w] { job(w); });
}

void NetNode::on_evicted() {
  if (is_evicted_) return;
  is_evicted_ = true;
  if (is_built_) end_membership();
}

void NetNode::end_membership() {
  link_->give_up();
  on_workers([this](std::uint32_t w) {
    // First the operations: whoever is told of the view finds that nothing works any more.
    ports_[w]->evict();
    memberships_[w]->hear(memberships_[w]->known(), true);
  });
  on_left();
}

void NetNode::on_state(std::uint64_t ask, const ClusterState& state) {
  if (!is_built_) {  // kept until then
    if (state.number > state_.number) state_ = state;
    return;
  }
  if (state.number > state_.number) take(state);
  if (!state_.has(id_.slot, id_.incarnation)) return on_evicted();
  const auto at = fetches_.find(ask);
  if (at == fetches_.end()) return;
  const auto [worker, number] = at->second;
  fetches_.erase(at);
  workers_[worker]->post(
      [this, worker = worker, number = number] { memberships_[worker]->answered(number); });
}

void NetNode::take(const ClusterState& state) {
  if (state.number < state_.number) return;
  state_ = state;
  mns_.resize(std::max(mns_.size(), state.mns.size()));
  for (std::uint16_t i = 0; i < state.mns.size(); ++i) {
    const MnEntry& now = state.mns[i];
    MnLine& mn = mns_[i];
    incarnations_[i].store(std::max(incarnations_[i].load(), now.incarnation));
    if (mn.address == now.address && mn.incarnation == now.incarnation) continue;
    if (mn.line != 0) hub_.hang_up(mn.line);
    mn.line = 0;
    mn.address = now.address;
    mn.incarnation = now.incarnation;
    on_workers([this, i](std::uint32_t w) { ports_[w]->lose(MnId{i}); });
    const auto at = wire::parse_host_port(now.address);
    if (at) mn.line = hub_.dial(*at);
    for (auto& [worker, attaching] : mn.attaching) attaching.second = monotonic_now();
  }
  const View view = state.view();
  const std::vector<net::PeerAddresses> peers = state.peers();
  on_workers([this, view, peers](std::uint32_t w) {
    ports_[w]->on_peers(peers);
    memberships_[w]->hear(view, false);
    took_over(w, view.number);
  });
}

// The last worker that does so says it for all.
void NetNode::took_over(std::uint32_t worker, std::uint64_t state) {
  goes_by_[worker].store(state);
  std::uint64_t least = state;
  for (std::uint32_t w = 0; w < config_.workers; ++w) least = std::min(least, goes_by_[w].load());
  std::uint64_t before = all_go_by_.load();
  while (before < least && !all_go_by_.compare_exchange_weak(before, least)) {
  }
  if (before < least) hub_.post([this, least] { link_->seen(least); });
}

void NetNode::fetch(std::uint32_t worker, std::uint64_t ask) {
  hub_.post([this, worker, ask] {
    fetches_[++asked_] = {worker, ask};
    link_->fetch(asked_);
  });
}

// ---------------------------------------------------------------- memory nodes, in the hub's loop

void NetNode::on_up(LineId line) {
  if (net_link_ != nullptr && net_link_->is(line)) return net_link_->on_up();
  for (MnLine& mn : mns_) {
    if (mn.line == line) ask_again(mn);
  }
}

void NetNode::ask_again(MnLine& mn) {
  mn.is_full = false;
  for (const auto& [worker, attaching] : mn.attaching)
    hub_.send(mn.line, frame_of(Attach{id_, worker, attaching.first}));
  for (const auto& [ask, allocate] : mn.allocating) hub_.send(mn.line, frame_of(allocate));
}

void NetNode::on_down(LineId line, const std::string& why, bool refused) {
  if (net_link_ != nullptr && (net_link_->is(line) || line == 0))
    return net_link_->on_down(why, refused);
  for (std::uint16_t i = 0; i < mns_.size(); ++i) {
    if (mns_[i].line != line) continue;
    on_workers([this, i](std::uint32_t w) { ports_[w]->lose(MnId{i}); });
    if (refused) is_refused_by(MnId{i}, why);
  }
}

// Without access to every memory node it cannot join. Later it asks again.
void NetNode::is_refused_by(MnId mn, const std::string& why) {
  mns_[mn.value].is_full = true;
  if (is_attached_.load()) return;
  on_refused(fmt::format("memory node {}: {}", mn.value, why), true);
  no_access_.store(true);
}

void NetNode::on_frame(LineId line, const std::string& frame) {
  if (net_link_ != nullptr && net_link_->is(line)) {
    (void)net_link_->on_frame(frame);
    return;
  }
  for (std::uint16_t i = 0; i < mns_.size(); ++i) {
    if (mns_[i].line != line) continue;
    (void)dispatch<Attached, Relay, Allocated, Refused>(
        frame, [&](const auto& message) { on(message, MnId{i}); });
    return;
  }
}

// A connection that cannot be made although its memory node is there: what was posted on the old one may yet take effect,
// and others wait for this node to say that it does not (H21). Leaving is the only way to say so.
void NetNode::on_tick(Time now) {
  link_->on_tick(now);
  const Duration patience = state_.shape.lease * 2 + seconds(1);
  for (MnLine& mn : mns_) {
    for (const auto& [worker, attaching] : mn.attaching) {
      const bool is_late = !mn.address.empty() && now - attaching.second > patience;
      if (is_late && is_attached_.load()) return on_evicted();
    }
    if (mn.is_full) ask_again(mn);
  }
}

void NetNode::attach(std::uint16_t worker, MnId mn, const net::Blob& offer) {
  hub_.post([this, worker, mn, offer] {
    if (mn.value >= mns_.size()) mns_.resize(mn.value + 1u);
    MnLine& to = mns_[mn.value];
    to.attaching[worker] = {offer, monotonic_now()};
    hub_.send(to.line, frame_of(Attach{id_, worker, offer}));
  });
}

void NetNode::on(const Attached& attached, MnId mn) {
  if (mns_[mn.value].attaching.erase(attached.worker) == 0 || attached.worker >= workers_.size())
    return;
  bytes_[mn.value].store(attached.bytes);
  std::atomic<std::uint32_t>& newest = incarnations_[mn.value];
  newest.store(std::max(newest.load(), attached.incarnation));
  workers_[attached.worker]->post([this, attached, mn] {
    ports_[attached.worker]->on_attached(mn, attached.incarnation, attached.answer);
  });
}

void NetNode::on(const Refused& refused, MnId mn) {
  if (refused.evicted) return on_evicted();
  is_refused_by(mn, refused.why);
}

void NetNode::on(const Allocated& allocated, MnId mn) {
  if (mn.value >= mns_.size() || mns_[mn.value].allocating.erase(allocated.ask) == 0) return;
  finish(allocated);
}

void NetNode::finish(const Allocated& allocated) {
  const std::lock_guard guard{mutex_};
  allocated_[allocated.ask] = allocated;
  changed_.notify_all();
}

Result<Node::Memory, std::string> NetNode::ask_for(MnId mn, Allocate message) {
  constexpr std::size_t kBytesMax = 255;  // as in shared memory
  if (message.name.empty() || message.name.size() > kBytesMax)
    return Failure{fmt::format("'{}': a name has 1 to {} bytes", message.name, kBytesMax)};
  message.ask = unguessable_number();
  hub_.post([this, mn, message] {
    const bool is_there = mn.value < mns_.size() && !mns_[mn.value].address.empty();
    if (is_there) {
      mns_[mn.value].allocating[message.ask] = message;
      return hub_.send(mns_[mn.value].line, frame_of(message));
    }
    finish({.ask = message.ask, .error = "it is not there"});
  });
  std::unique_lock guard{mutex_};
  if (!changed_.wait_for(guard, as_chrono(config_.patience),
                         [&] { return allocated_.contains(message.ask); })) {
    hub_.post([this, mn, ask = message.ask] {
      if (mn.value < mns_.size()) mns_[mn.value].allocating.erase(ask);
      const std::lock_guard forgetting{mutex_};
      allocated_.erase(ask);  // it came too late
    });
    return Failure{fmt::format("memory node {} does not answer", mn.value)};
  }
  const Allocated answer = allocated_.extract(message.ask).mapped();
  if (!answer.error.empty()) return Failure{fmt::format("memory node {}: {}", mn.value, answer.error)};
  return Memory{{mn, answer.offset}, answer.bytes, answer.incarnation};
}

Result<Node::Memory, std::string> NetNode::allocate(MnId mn, const std::string& name,
                                                    std::uint64_t bytes, const std::string& use) {
  if (bytes == 0) return Failure{fmt::format("'{}': an allocation has a size", name)};
  return ask_for(mn, {0, name, bytes, use});
}

Result<Node::Memory, std::string> NetNode::find(MnId mn, const std::string& name) {
  return ask_for(mn, {0, name, 0, {}});
}

// ---------------------------------------------------------------- connections between workers

static_assert(net::kBlobMax <= kStringMax);
void NetNode::ask(std::uint16_t worker, const net::PeerId& peer, const net::Blob& blob) {
  relay({id_, worker, {peer.slot, Incarnation{peer.incarnation}}, peer.worker, false, blob});
}

void NetNode::relay(const Relay& message) {
  hub_.post([this, message] {
    // By each of them in turn: one may not reach the peer.
    for (std::size_t i = 0; i < mns_.size(); ++i) {
      const MnLine& mn = mns_[++relays_ % mns_.size()];
      if (mn.line == 0 || !hub_.is_up(mn.line)) continue;
      return hub_.send(mn.line, frame_of(message));
    }
  });
}

void NetNode::on(const Relay& relayed, MnId) {
  if (relayed.to != id_ || relayed.to_worker >= workers_.size()) return;
  workers_[relayed.to_worker]->post([this, relayed] {
    const net::PeerId from{relayed.from.slot, relayed.from.incarnation.value, relayed.from_worker};
    net::Port& port = *ports_[relayed.to_worker];
    if (relayed.is_answer) return port.on_accepted(from, relayed.blob);
    const Result<net::Blob, std::string> accepted = port.accept(from, relayed.blob);
    if (accepted) relay({id_, relayed.to_worker, relayed.from, relayed.from_worker, true, *accepted});
  });
}

}  // namespace declock::member
