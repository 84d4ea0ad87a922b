#include "client/core.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <thread>

#include "base/futex.h"
#include "metrics/exporter.h"

namespace declock::client {
namespace {

// How long a waiter waits before it asks itself whether somebody failed.
constexpr Duration kLockPatience = milliseconds(20);

hier::Policy policy_of(const Options& options) {
  hier::Policy policy;
  policy.slack = microseconds(options.slack_us);
  policy.gate = options.gate;
  switch (options.fairness) {
    case Fairness::task_fair:
      policy.kind = hier::PolicyKind::task_fair;
      break;
    case Fairness::phase_fair:
      policy.kind = hier::PolicyKind::phase_fair;
      break;
    case Fairness::slack:
      policy.kind = hier::PolicyKind::slack;
      break;
    case Fairness::token:
      policy.kind = hier::PolicyKind::token;
      break;
  }
  return policy;
}

std::vector<hier::Station> stations_of(member::Node& node, std::uint32_t workers) {
  std::vector<hier::Station> stations;
  for (std::uint32_t i = 0; i < workers; ++i) {
    stations.push_back({&node.endpoint(i), &node.membership(i)});
  }
  return stations;
}

// Every core of this process. A child of fork() has its memory, but not its threads, its locks, nor its place in the cluster:
// there it can only be left alone.
struct Cores {
  std::mutex mutex;
  std::vector<std::atomic<Standing>*> standings;

  Cores() {
    pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                   [] {
                     for (std::atomic<Standing>* standing : all().standings)
                       standing->store(Standing::forked);
                     all().mutex.unlock();
                   });
  }
  static Cores& all() {
    static Cores& cores = *new Cores;  // never ended: a cluster may be a static object too
    return cores;
  }
};

constexpr const char* kForked =
    "this process was forked after the cluster was opened; open it again in the child";

}  // namespace

Core::Core(Target target, std::unique_ptr<member::Node> node)
    : target_(std::move(target)), node_(std::move(node)), lock_shape_(node_->lock_shape()) {
  const std::uint32_t workers = node_->workers();
  locks_ =
      std::make_unique<hier::Node>(lock_shape_, policy_of(target_.options),
                                   cql::Options{.patience = kLockPatience, .outlives_restarts = false},
                                   stations_of(*node_, workers));
  near_.emplace(*this, *locks_, lock_shape_, node_->membership(0));
  for (std::uint32_t i = 0; i < workers; ++i) {
    lanes_.push_back(std::make_unique<Lane>(*this, i, *node_, locks_->worker(i)));
  }
  // Tables that every cluster has, 0 and 1.
  tables_.push_back({"(embedded)", {}});
  tables_.push_back({"(names)", {}});
  node_->set_on_evicted([this] {
    Standing open = Standing::open;
    standing_.compare_exchange_strong(open, Standing::evicted);
  });
  const std::lock_guard guard{Cores::all().mutex};
  Cores::all().standings.push_back(&standing_);
}

Core::~Core() {
  (void)close();
  const std::lock_guard guard{Cores::all().mutex};
  std::erase(Cores::all().standings, &standing_);
}

Error Core::not_open() const {
  if (standing() == Errc::evicted) return {Errc::evicted, std::string{to_string(Errc::evicted)}};
  return {Errc::closed, standing_.load() == Standing::forked ? kForked : "the cluster was closed"};
}

std::string Core::explained(const char* who) const {
  return standing_.load() == Standing::forked ? fmt::format("{}: {}", who, kForked) : who;
}

Result<void, Error> Core::start() {
  for (const auto& lane : lanes_) {
    lane->recorder.trace(trace_.get());
    locks_->worker(lane->number).cql().start_patrol();
  }
  // Addresses that the application has from elsewhere are meant for the memory nodes that are there now.
  for (std::uint16_t mn = 0; mn < Lane::kMns; ++mn) {
    if (!node_->reaches({MnId{mn}, 0}, 1)) continue;
    // One that is away is not connected yet; the view says as which it will come back.
    first_incarnations_[mn].store(std::max(lanes_[0]->endpoint.incarnation(MnId{mn}),
                                           lanes_[0]->membership.known().incarnation(MnId{mn})));
    node_->mean_only(MnId{mn}, first_incarnations_[mn].load());
  }
  node_->start();
  for (std::uint16_t mn = 0; mn < Lane::kMns; ++mn) {
    if (!node_->reaches({MnId{mn}, 0}, 1)) continue;
    const std::uint32_t incarnation = lanes_[0]->endpoint.incarnation(MnId{mn});
    if (incarnation == 0) continue;  // it is away
    const std::lock_guard guard{restart_mutex_};
    if (const auto agreed = agree(MnId{mn}, incarnation); !agreed) return agreed;
  }
  start_duties(false);
  return {};
}

// Locks with tokens and without are different protocols on the same words. So whoever uses a memory node first says which it
// is, for as long as its memory lives: by the size of what has this name. REQUIRES: restart_mutex_ is held.
Result<void, Error> Core::agree(MnId mn, std::uint32_t incarnation) {
  if (target_.looks_only || agreed_[mn.value] == incarnation) return {};
  const std::string name = "declock/protocol";
  const bool with_tokens = target_.options.fairness == Fairness::token;
  const std::uint64_t bytes = with_tokens ? 16 : 8;
  const auto made = node_->allocate(mn, name, bytes, "the kind of locks");
  if (!made) {
    const auto there = node_->find(mn, name);
    // Otherwise the memory is full, or cannot be reached: then whoever looks a lock up is told.
    if (!there || there->bytes == bytes) return {};
    return Failure{Error{
        Errc::unavailable,
        fmt::format("memory node {}: others use its locks {} fairness=token, this process {}; "
                    "take the same, or another cluster",
                    mn.value, with_tokens ? "without" : "with", with_tokens ? "with" : "without")}};
  }
  agreed_[mn.value] = made->mn_incarnation;
  return {};
}

// What lane 0 does beside: reports, and keeping its clock in step. Again after memory node 0 has restarted.
void Core::start_duties(bool again) {
  std::optional<member::Node::Memory> board;
  std::optional<member::Node::Memory> clock;
  if (target_.options.publish) {
    const auto made = node_->allocate(MnId{0}, std::string{kBoardName},
                                      node_->members() * sizeof(Report), "reports of processes");
    if (made) board = *made;
  }
  if (target_.fabric != Fabric::shm) {  // clocks of one machine agree
    const auto made = node_->allocate(MnId{0}, "declock/clock", 8, "a clock");
    if (made) clock = *made;
  }
  Lane& first = *lanes_[0];
  const auto start = [this, &first, board, clock] {
    board_ = board;
    duties_.emplace(first.frames());
    duties_->spawn(keep_reporting(first, *this));
    if (clock) duties_->spawn(locks_->clock().keep_in_step(clock->at, clock->mn_incarnation));
    return true;
  };
  if (again) {
    run_on(first.worker, start);
  } else {
    first.worker.run_until(start);
  }
}

// A name was looked up on this incarnation of a memory node. If it is another than before, whatever this process knows
// of the memory node is void, and other things lie there: nothing that was begun before may reach it.
Result<void, Error> Core::mean_only(const member::Node::Memory& memory) {
  const MnId mn = memory.at.mn;
  const std::lock_guard guard{restart_mutex_};
  if (const auto agreed = agree(mn, memory.mn_incarnation); !agreed) return agreed;
  const std::uint32_t before = node_->meant(mn);
  if (before == memory.mn_incarnation) return {};
  // The answer was long under way.
  if (memory.mn_incarnation < node_->heard_of(mn)) {
    return Failure{
        Error{Errc::mn_restarted,
              fmt::format("memory node {} has restarted while a name was looked up there; look "
                          "it up again",
                          mn.value)}};
  }
  if (before != 0) {
    node_->mean_only(mn, member::Node::kNoIncarnation);
    const Time until = monotonic_now() + milliseconds(target_.options.patience_ms);
    // Acquisitions end with mn_restarted as soon as they reach for the memory node, also those that a client which gave
    // up has left behind. Holds are void, and end when they are released.
    const auto anybody_is_left = [&] {
      return locks_->is_busy_on(mn) || std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& lane) {
               return lane->waiting_on(mn) > 0;
             });
    };
    while (anybody_is_left()) {
      if (monotonic_now() > until) {
        return Failure{
            Error{Errc::mn_restarted,
                  fmt::format("memory node {} has restarted, and this process still holds or waits for "
                              "locks that were there; release them first",
                              mn.value)}};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (before == 0) first_incarnations_[mn.value].store(memory.mn_incarnation);
  node_->mean_only(mn, memory.mn_incarnation);
  forget_names(mn);
  if (before != 0 && mn == MnId{0}) start_duties(true);
  return {};
}

void Core::meet(MnId mn, std::uint32_t incarnation) {
  if (mn.value >= Lane::kMns || incarnation == 0 || first_incarnations_[mn.value].load() != 0) return;
  const std::unique_lock guard{restart_mutex_, std::try_to_lock};
  // Otherwise somebody is looking up a name there, and it is met the next time.
  if (!guard.owns_lock() || first_incarnations_[mn.value].load() != 0) return;
  first_incarnations_[mn.value].store(incarnation);
  node_->mean_only(mn, incarnation);
}

// ---------------------------------------------------------------- calls

Lane& Core::lane_of_this_thread() {
  // Threads are spread over the lanes in the order in which they first come.
  static std::atomic<std::uint32_t> threads{0};
  thread_local const std::uint32_t number = threads.fetch_add(1);
  for (std::size_t i = 0;; ++i) {  // ends: a lane is never a client's
    Lane& lane = *lanes_[(number + i) % lanes_.size()];
    if (!lane.is_of_client.load(std::memory_order_relaxed)) return lane;
  }
}

template <class Step>
bool Core::try_here(Step step) {
  const std::uint32_t first = lane_of_this_thread().number;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = *lanes_[(first + i) % lanes_.size()];
    bool is_first_turn = true;
    bool is_ours = true;  // and not a client's meanwhile
    const bool ran = lane.worker.try_run_until([&] {
      if (std::exchange(is_first_turn, false)) {
        is_ours = !lane.is_of_client.load();
        // Relaxed, here and below: take_lane() only asks once more if it does not know yet.
        lane.has_caller.store(is_ours, std::memory_order_relaxed);
      }
      const bool over = !is_ours || step(lane);
      if (over) lane.has_caller.store(false, std::memory_order_relaxed);
      return over;
    });
    if (ran && is_ours) return true;
  }
  return false;
}

namespace {

// A call that another thread carries out.
template <class T>
struct HandedOver {
  std::binary_semaphore done{0};
  std::optional<T> result;
};

template <class T, class Make>
Task<void> carry_out(Lane& lane, Make& make, HandedOver<T>& call) {
  call.result.emplace(co_await make(lane));
  call.done.release();
}

template <class T, class Make>
T hand_over(Lane& lane, Make& make) {
  HandedOver<T> call;
  run_on(lane.worker, [&] { lane.behind.spawn(carry_out(lane, make, call)); });
  call.done.acquire();
  return std::move(*call.result);
}

}  // namespace

template <class Make>
auto Core::run(Make make) -> decltype(make(std::declval<Lane&>()).take()) {
  using T = decltype(make(std::declval<Lane&>()).take());
  std::optional<Task<T>> task;
  std::optional<T> result;
  const bool here = try_here([&](Lane& lane) {
    if (!task) {
      task.emplace(make(lane));
      task->start();
    }
    if (!task->done()) return false;
    result.emplace(task->take());
    task.reset();  // here: its frame is the worker's
    return true;
  });
  return here ? std::move(*result) : hand_over<T>(lane_of_this_thread(), make);
}

Errc Core::check(RemoteAddr addr, std::uint64_t words) const {
  if (const Errc bad = standing(); bad != Errc::ok) return bad;
  return addr.offset % 8 == 0 && words > 0 && node_->reaches(addr, words) ? Errc::ok
                                                                          : Errc::invalid_argument;
}

Result<Held> Core::acquire(const Wanted& wanted) {
  Errc bad = check(wanted.lock);
  if (bad == Errc::ok && !wanted.words.empty()) bad = check(wanted.from, wanted.words.size());
  if (bad != Errc::ok) return Failure{bad};
  std::optional<hier::HierLock> client;
  return run([&](Lane& lane) {
    client.emplace(lane.locks);
    return Lane::acquire(lane, wanted, *client);
  });
}

Result<void> Core::release(const LockRef& lock, const Held& held, Lane::Write write) {
  Errc bad = write.words.empty() ? check(lock) : check(write.to, write.words.size());
  if (bad == Errc::closed) return Failure{bad};
  if (bad != Errc::ok) write = {};  // released in any case
  const Result<void> released = run([&](Lane& lane) { return Lane::release(lane, lock, held, write); });
  if (bad != Errc::ok) return Failure{bad};
  return released;
}

std::unique_ptr<NearLock> Core::near(const LockRef& lock) {
  const RemoteAddr at{lock.at.mn, lock.at.offset};
  // Who waits for a token is told by a message, and does not watch its entry.
  const bool watches = !lanes_[0]->locks.cql().has_tokens();
  if (check(lock) != Errc::ok || !is_current(lock.at) || is_tracing() || !watches) return {};
  Endpoint& endpoint = lanes_[0]->endpoint;
  std::uint64_t* words = endpoint.word_at(at);
  if (words == nullptr) return {};
  auto near = std::make_unique<NearLock>(*near_, lock, words, endpoint.incarnation(at.mn));
  const std::lock_guard guard{mutex_};
  near->place = near_locks_.size();
  near_locks_.push_back(near.get());
  return near;
}

void Core::forget(NearLock& near) {
  if (is_closed()) return;
  near.forget();
  const std::lock_guard guard{mutex_};
  NearLock* last = near_locks_.back();
  last->place = near.place;
  near_locks_[near.place] = last;
  near_locks_.pop_back();
}

// Whoever reads what was counted wants all of it.
void Core::count_near() {
  const std::lock_guard guard{mutex_};
  for (NearLock* near : near_locks_) near->count();
}

// Nobody waits for what it begins.
template <class Begin>
void Core::begin(Begin begin) {
  const bool here = try_here([&](Lane& lane) {
    begin(lane);
    return true;
  });
  if (here) return;
  Lane& lane = lane_of_this_thread();
  run_on(lane.worker, [&lane, begin] { begin(lane); });
}

void Core::release_behind(const LockRef& lock, const Held& held) noexcept {
  if (standing() == Errc::closed) return;  // closing has given the lock up
  begin([lock, held](Lane& lane) { lane.release_behind(lock, held); });
}

void Core::hand_over_behind(const Hold& hold, const cql::Owing& owing) {
  begin([hold, owing](Lane& lane) { lane.behind.spawn(Lane::hand_over(lane, hold, owing)); });
}

Result<Hold> Core::go_on(hier::LocalWaiter& me, const Result<cql::CqlLock::Place>& entered) {
  return run([&](Lane& lane) { return lane.locks.lock_entered(me, entered); });
}

Result<void> Core::read(RemoteAddr from, std::span<std::uint64_t> words) {
  const Errc bad = check(from, words.size());
  if (bad != Errc::ok) return Failure{bad};
  return run([&](Lane& lane) { return Lane::read(lane, from, words, {}); });
}

Result<void> Core::write(RemoteAddr to, std::span<const std::uint64_t> words) {
  const Errc bad = check(to, words.size());
  if (bad != Errc::ok) return Failure{bad};
  return run([&](Lane& lane) { return Lane::write(lane, to, words, {}); });
}

Result<Token> Core::token(const Hold& hold) {
  if (const Errc bad = standing(); bad != Errc::ok) return Failure{bad};
  return run([&](Lane& lane) { return Lane::token(lane, hold); });
}

namespace {

Task<bool> knows(Lane& lane, Slot slot, std::uint64_t incarnation) {
  const member::Member* found = lane.membership.known().find(slot);
  co_return found != nullptr && found->incarnation.value == incarnation;
}

}  // namespace

bool Core::is_member(Slot slot, std::uint64_t incarnation) {
  return run([&](Lane& lane) { return knows(lane, slot, incarnation); });
}

void Core::release_failed(const LockRef& lock, Errc error) {
  if (target_.options.on_release_error) return target_.options.on_release_error(lock, error);
  const std::string name = label(lock.at);
  const std::lock_guard guard{mutex_};
  if (!first_release_error_) {
    first_release_error_ = {error, fmt::format("releasing {}: {}", name, to_string(error))};
  }
}

Lane* Core::take_lane() {
  // Of threads, most of whose calls are short. The dispatcher is awaited: it does what there is to do, and never waits.
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries;) {
    bool any_busy = false;
    bool any_dispatched = false;
    // The first stays for threads, and for the library itself.
    for (std::size_t n = lanes_.size(); n-- > 1;) {
      Lane& lane = *lanes_[n];
      bool taken = false;
      if (!lane.is_of_client.compare_exchange_strong(taken, true)) continue;
      // Not one on which a thread waits: perhaps for a lock of whoever asks.
      if (lane.worker.try_run_until([] { return true; })) return &lane;
      lane.is_of_client.store(false);
      any_busy = true;
      any_dispatched = any_dispatched || !lane.has_caller.load(std::memory_order_relaxed);
    }
    if (!any_busy) break;
    if (!any_dispatched) tries += 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return nullptr;
}

bool Core::evicted() const {
  if (is_closed()) return was_evicted_.load();
  return any_lane_evicted();
}

bool Core::any_lane_evicted() const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane->membership.evicted(); });
}

// ---------------------------------------------------------------- closing

namespace {

// A place in a lock's queue that a client has left behind when it gave up is given this long to come to its end.
// Otherwise closing would wait for whoever holds the lock; so the cluster resets it when this process is gone.
constexpr Duration kPlacePatience = milliseconds(100);

Task<void> wake_at(Lane& lane, Time first, Time second) {
  co_await lane.worker.sleep_for(first - lane.worker.now());
  co_await lane.worker.sleep_for(second - lane.worker.now());
}

}  // namespace

Core::Drained Core::drain() {
  const Time until = monotonic_now() + milliseconds(target_.options.patience_ms);
  const Time places_until = std::min(monotonic_now() + kPlacePatience, until);
  Drained drained;
  for (const auto& lane : lanes_) {
    bool is_first_turn = true;
    bool has_passed = false;  // what was left to this worker has begun
    run_on(lane->worker, [&] {
      if (lane->number == 0) duties_.reset();
      has_passed = true;
    });
    Task<void> alarm;  // it sleeps no longer than that
    lane->worker.run_until([&] {
      if (std::exchange(is_first_turn, false)) {
        alarm = wake_at(*lane, places_until, until);
        alarm.start();
      }
      const Time now = lane->worker.now();
      const bool releases = lane->behind.running() > 0;
      const bool places = lane->locks.running() > 0;
      const bool is_quiet = !releases && lane->operations == 0 && (!places || now > places_until);
      if (!has_passed || (!is_quiet && now <= until)) return false;
      drained.all_released = drained.all_released && !releases;
      drained.no_place_left = drained.no_place_left && !places;
      alarm = {};
      return true;
    });
  }
  return drained;
}

Result<void, Error> Core::close() {
  Standing was = standing_.load();
  do {
    if (was == Standing::closed || was == Standing::forked) return {};
  } while (!standing_.compare_exchange_weak(was, Standing::closed));
  metrics_.reset();
  const Drained drained = drain();
  count_near();
  std::uint64_t held = 0;
  for_each_recorder([&](const Recorder& recorder) { held += recorder.holding(); });
  bool evicted = any_lane_evicted();
  node_->stop();
  for (const auto& lane : lanes_) {
    lane->fresh.clear();
    lane->spawned.clear();
    lane->ready.clear();
    lane->behind.clear();
  }
  std::string untraced;
  if (trace_ != nullptr) {
    const auto written = trace_->write([this](RemoteAddr lock) { return label(lock); });
    if (!written) untraced = written.error();
  }
  locks_.reset();
  const bool released = drained.all_released && held == 0;
  if (released && drained.no_place_left && !evicted) node_->leave();
  evicted = any_lane_evicted();  // it may have found out only now
  was_evicted_.store(evicted);
  node_.reset();  // who has not left is dead from now on
  if (first_release_error_) return Failure{*first_release_error_};
  if (evicted) return Failure{Error{Errc::evicted, std::string{to_string(Errc::evicted)}}};
  if (!released) {
    return Failure{
        Error{Errc::busy, fmt::format("{} locks were still held or under way; the cluster takes "
                                      "this process for dead, and resets them",
                                      held)}};
  }
  if (!untraced.empty()) return Failure{Error{Errc::unavailable, untraced}};
  return {};
}

}  // namespace declock::client
