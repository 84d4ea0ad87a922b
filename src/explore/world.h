// A small cluster whose clients run a program on one lock, under a stepped fabric; and the checkers
// that watch it. The checkers know nothing of the protocol: they see who calls, who enters and leaves,
// the order of the fetch-and-adds, and at the end the words in memory.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audit/fairness.h"
#include "audit/holders.h"
#include "explore/scenario.h"
#include "runtime/task_group.h"
#include "sim/stepped.h"

namespace declock::explore {

struct Violation {
  enum class Kind : std::uint8_t {
    mutual_exclusion,  // two clients hold the lock against each other
    order,             // a request was served before an earlier one that conflicts with it
    stale_read,        // a client saw an object that does not have all updates
    left_over,         // all is done, and the lock is not as it was but for the ticket
    hang,              // a client will never finish: nothing can happen but stutters
    stuck,             // a client gave up with an error
  };
  Kind kind;
  std::string text;

  bool is_safety() const { return kind <= Kind::left_over; }
};
std::string_view to_string(Violation::Kind kind);

class World final : private sim::EffectObserver {
 public:
  explicit World(const Scenario& scenario);
  ~World() override;

  // To the beginning, all clients called for their first lock.
  void restart();

  sim::SteppedEngine& engine() { return *engine_; }
  // What can happen next, in the network and around it.
  void enabled(std::vector<sim::Choice>& out) const;
  void perform(sim::Choice choice);
  // Need this never happen? Everything else that can happen does, some time.
  bool is_mishap(const sim::Choice& choice) const;
  std::uint64_t digest() const;
  bool finished() const { return unfinished_ == 0; }
  // Nothing goes on behind the clients' backs, but that they watch for failures.
  bool nothing_behind() const;
  // The first violation seen so far. At the end of a run check_end() looks for left-overs.
  const std::optional<Violation>& violation() const { return violation_; }
  void check_end();
  std::string unfinished_clients() const;

  // Called with what a client does at its own level: "enters shared", "is done".
  std::function<void(std::string_view what)> told;

  static constexpr RemoteAddr kLock{MnId{0}, 0};
  // A client's impatience acts at any moment, as if it were a client of its own with this number added.
  static constexpr std::uint8_t kImpatience = 64;
  // The same for a client that is about to call the lock, where calls are steps of their own.
  static constexpr std::uint8_t kCall = 32;
  // The same for what a member asks of the coordinator, several things at once.
  static constexpr std::uint8_t kQuestion = 128;

 private:
  struct Party;

  struct Client {
    Client(World& w, std::uint32_t i, Party& p, const Operations& ops, std::unique_ptr<LockClient> l)
        : world(w), index(i), party(p), operations(ops), lock(std::move(l)), behind(frames()) {}

    World& world;
    std::uint32_t index;
    Party& party;
    const Operations& operations;
    std::unique_ptr<LockClient> lock;  // none any more once the party is dead
    TaskGroup behind;                  // releases that nobody waits for
    std::optional<Task<void>> task{};
    std::uint64_t number = 0;  // of the operation that it is in
    bool inside = false;       // of an operation
    bool done = false;
    bool holds = false;
    Mode held_as = Mode::shared;

    sim::SimEndpoint& endpoint() const { return party.endpoint; }
    FramePool& frames() { return endpoint().worker().frames(); }
    Task<void> run();
    Task<Result<void>> operate(Operation operation);
    Task<Result<Hold>> acquire(Operation operation, Op* object);
    Task<Result<Hold>> acquire_or_cancel(TimedLockClient& timed, Mode mode);
    Task<void> cancel_some_time(TimedLockClient& timed);
    Task<void> use_object(Hold hold);
    Task<Result<void>> release(Hold hold, Op* object);
    Task<void> release_behind(Hold hold);
  };

  // Clients that share an endpoint, and fail together: a member, where the lock has a queue.
  struct Party {
    Party(std::uint32_t i, sim::SimEndpoint& e) : index(i), endpoint(e) {}
    std::uint32_t index;  // its endpoint's as well
    sim::SimEndpoint& endpoint;
    std::vector<Client*> clients{};
    bool dead = false;
    bool removed = false;
    bool outside = false;      // has not joined yet
    std::uint32_t asking = 0;  // questions to the coordinator, a bit each

    bool is_done() const;
  };

  // What a member knows of who is alive.
  class Known final : public member::Membership {
   public:
    Known(World& world, std::uint32_t index, const member::Member& self, const member::View& view)
        : world_(world), index_(index), self_(self), view_(view) {}
    const member::Member& self() const override { return self_; }
    const member::View& known() const override { return view_; }
    Task<Result<void>> refresh(Worker& worker) override {
      return ask_coordinator(worker, world_, index_);
    }
    bool evicted() const override { return !view_.has(self_); }
    void listen(member::ViewListener* listener) override { listeners_.push_back(listener); }
    void unlisten(member::ViewListener* listener) override { std::erase(listeners_, listener); }
    void hear(const member::View& view);

   private:
    World& world_;
    std::uint32_t index_;
    member::Member self_;
    member::View view_;
    std::vector<member::ViewListener*> listeners_;
  };
  static Task<Result<void>> ask_coordinator(Worker& worker, World& world, std::uint32_t index);

  // world.cc
  void build();
  void end_all();
  std::unique_ptr<locks::LockFamily> make_family();
  void on_effect(EndpointId from, const sim::Flight::Step& step) override;
  void tell(std::string_view what) {
    if (told) told(what);
  }
  void between_operations(const Client& client);
  void enter(Client& client, Mode mode, const Hold& hold);
  void leave(Client& client);
  bool is_void(const Hold& hold) const { return hold.mn_incarnation != engine_->incarnation(MnId{0}); }
  void begin(Party& party);
  void report(Violation::Kind kind, std::string text);
  RemoteAddr object() const { return kLock + family_->stride(); }

  // mishaps.cc
  void meet(std::vector<member::Member> all);
  void offer_for_letters(std::vector<sim::Choice>& out) const;
  void offer(const Party& party, std::vector<sim::Choice>& out) const;
  MendingLockClient* mending(const Party& party) const;
  void join(Party& party);
  void end(Party& party);
  void crash(Party& party);
  void remove(Party& party);
  void restart_memory();
  bool may_join(const Party& party) const;
  bool may_leave(const Party& party) const;
  void depart(Party& party);
  void no_longer_needed(const Party& party);

  Scenario scenario_;
  std::unique_ptr<sim::SteppedEngine> engine_;
  member::View view_;  // the coordinator's
  std::deque<Known> known_;
  std::vector<member::Membership*> memberships_;
  std::unique_ptr<locks::LockFamily> family_;
  std::uint64_t freed_at_ = 0;  // the view in which the slot of heirs became free
  Mishaps left_;                // that may still happen
  audit::Holders holders_{1};
  std::optional<audit::Fairness> fairness_;
  std::deque<Party> parties_;
  std::deque<Client> clients_;
  std::size_t unfinished_ = 0;
  std::uint64_t updates_ = 0;  // exclusive sections that have ended
  std::optional<Violation> violation_;
};

}  // namespace declock::explore
