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
#include "explore/mutants.h"
#include "explore/program.h"
#include "sim/stepped.h"

namespace declock::explore {

struct Scenario {
  Program program;
  QueueLayout layout = QueueLayout::owner;
  unsigned slots = 4;
  LeftOut left_out{};

  LockShape shape() const { return {static_cast<unsigned>(program.size()), slots, layout}; }
};

struct Violation {
  enum class Kind : std::uint8_t {
    mutual_exclusion,  // two clients hold the lock against each other
    order,             // a request was served before an earlier one that conflicts with it
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

  sim::SteppedEngine& engine() { return engine_; }
  bool finished() const { return unfinished_ == 0; }
  // The first violation seen so far. At the end of a run check_end() looks for left-overs.
  const std::optional<Violation>& violation() const { return violation_; }
  void check_end();
  std::string unfinished_clients() const;

  // Called with what a client does at its own level: "enters shared", "is done".
  std::function<void(std::string_view what)> told;

  static constexpr RemoteAddr kLock{MnId{0}, 0};

 private:
  struct Client {
    World& world;
    std::uint32_t index;
    sim::SimWorker& worker;
    sim::SimEndpoint& endpoint;
    std::unique_ptr<LockClient> lock;
    std::optional<Task<void>> task;
    bool done = false;

    FramePool& frames() { return worker.frames(); }
    Task<void> run();
  };

  void on_effect(EndpointId from, const sim::Flight::Step& step) override;
  void tell(std::string_view what) {
    if (told) told(what);
  }
  void enter(std::uint32_t client, Mode mode);
  void report(Violation::Kind kind, std::string text);

  Scenario scenario_;
  LockShape shape_;
  sim::SteppedEngine engine_;
  audit::Holders holders_{1};
  audit::Fairness fairness_;
  std::deque<Client> clients_;
  std::size_t unfinished_ = 0;
  std::optional<Violation> violation_;
};

}  // namespace declock::explore
