// The simulated fabric, second half, with no clock: at each step the caller picks one of the things
// that can happen next. `declock explore` picks all of them.
//
// An effect on memory, the completion of a chain and the delivery of a message are separate steps. A
// read of several words may see each word at another moment, in any order, between the moment it may
// begin and its completion: so it keeps, per word, every value that the word had in that time, and its
// completion is one step for each combination.
//
// Two runs are in the same state if they agree in memory, in what is in flight, and in what every
// client has observed since it began its operation: a client is deterministic, so what it does next
// follows from that. A repeated read that sees the same words again tells it nothing new and does not
// count; a loop of refetches is then a step from a state to itself, a stutter.
#pragma once

#include <array>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sim/engine.h"

namespace declock::sim {

// Something that can happen next.
struct Choice {
  enum class Kind : std::uint8_t {
    effect,    // the next operation of endpoint `who` takes effect (a read behind a read: begins)
    complete,  // the oldest chain of `who` completes; its reads see combination `variant`
    deliver,   // the oldest message from `who` to `to` arrives
    resume,    // client `who`, paused of its own will, goes on
    timer,     // a timer of worker `who` fires, the one with number `variant`
    // Not of the network, but of the world around it:
    crash,   // the compute node `who` dies; what it has sent goes on
    remove,  // `who`, dead or wrongly suspected, is fenced and removed from the view
    tell,    // `who` hears of the current view
    reset,   // `who` resets the lock for nothing
    join,    // `who` is in the view from now on, and begins
  };
  Kind kind;
  std::uint8_t who = 0;
  std::uint8_t to = 0;
  std::uint32_t variant = 0;
};

class SteppedEngine final : public Engine {
 public:
  // `words` of MN 0's memory, from its beginning, are part of the state.
  explicit SteppedEngine(std::size_t words) : Engine(1, 0), words_(words) {}

  SimEndpoint& add_endpoint(SimWorker& worker) override;

  // All but timers: those are for when nothing else can happen, or nothing that changes anything.
  void enabled(std::vector<Choice>& out) const;
  void timers(std::vector<Choice>& out) const;
  // Whoever was at this endpoint is gone.
  void forget_completions(EndpointId who) { forget_the_dead(lanes_[who.value]); }
  void perform(Choice choice);
  std::uint64_t digest() const;

  // Back to the beginning. REQUIRES: all coroutines are gone.
  void restart();

  // What the clients at this endpoint do next depends on nothing that was observed so far but this.
  void forget(EndpointId who, std::uint64_t all_but);
  // Something that the clients there know now, and that is no effect of what they observed.
  void note(EndpointId who, std::uint64_t what);

  // co_await engine.pause(client, at): goes on when the caller picks `resume`.
  class Pause {
   public:
    Pause(SteppedEngine& engine, std::uint8_t client, EndpointId at)
        : engine_(engine), client_(client), at_(at) {}
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause() {
      std::erase_if(engine_.pauses_, [&](const Paused& p) { return p.client == client_; });
    }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) {
      engine_.pauses_.push_back({client_, at_, waiter});
    }
    void await_resume() const noexcept {}

   private:
    SteppedEngine& engine_;
    std::uint8_t client_;
    EndpointId at_;
  };
  Pause pause(std::uint8_t client, EndpointId at) { return {*this, client, at}; }

  Time now() const override { return now_; }
  // Clients count their refetches, and do something else after a few.
  void count_refetches() { refetches_count_ = true; }

  // For stories: the step that `effect` would take, the chain that `complete` would complete, the
  // letter that `deliver` would deliver, what a read of it would see; and everything that is posted or
  // sent.
  const Flight::Step& next_step(std::uint8_t who) const;
  const Flight& oldest_flight(std::uint8_t who) const { return *lanes_[who].flights.front(); }
  std::vector<std::uint64_t> would_see(const Choice& choice, std::size_t step) const;
  const Letter& next_letter(const Choice& choice) const { return letters_[find_letter(choice)]; }
  std::function<void(const Flight&)> posted;
  std::function<void(const Letter&)> sent;

 private:
  // What a read may see.
  struct Sight {
    std::vector<std::uint64_t> first;                            // at the moment it began
    std::vector<std::pair<std::uint32_t, std::uint64_t>> later;  // (word, value), each once
    bool open = false;                                           // still looking
  };
  struct Lane {                    // of one endpoint
    std::vector<Flight*> flights;  // posted and not completed, oldest first
    std::uint64_t observed = 0;
    std::uint64_t last_look = 0;  // digest of the last observation if it changed nothing
    unsigned repeats = 0;         // how often it was made again
  };
  // A client may try a swap a few times before it does something else, and then the number of tries is
  // something it knows. None tries more often than this.
  static constexpr unsigned kTriesMax = 2;

  struct Paused {
    std::uint8_t client;
    EndpointId at;
    std::coroutine_handle<> coroutine;
  };
  struct Alarm {
    std::uint32_t worker;
    Timer* timer;
    Time when;
  };

  void on_post(Flight& flight) override;
  void on_send(const Letter& letter) override;
  void on_arm(std::uint32_t worker, Timer& timer, Time when) override;
  void on_disarm(Timer& timer) override;

  static Flight* next_to_take(const Lane& lane);
  Sight& sight(const Flight& flight, std::size_t step) { return sights_[flight.index][step]; }
  const Sight& sight(const Flight& flight, std::size_t step) const {
    return sights_[flight.index][step];
  }
  void begin_reads(Lane& lane);
  void begin_read(Flight& flight);
  void take_next(Lane& lane);
  void forget_the_dead(Lane& lane);
  void show_to_open_reads(const Flight::Step& step);
  std::size_t variants(const Flight& flight) const;
  static std::vector<std::uint64_t> words_seen(const Sight& seen, std::size_t& variant);
  void fill_reads(Flight& flight, std::size_t variant);
  void observe_completion(Lane& lane, const Flight& flight);
  std::size_t find_letter(const Choice& choice) const;

  std::size_t words_;
  bool refetches_count_ = false;
  Time now_;
  std::vector<Lane> lanes_;
  std::vector<Letter> letters_;  // in the order in which they were sent
  std::vector<Paused> pauses_;
  std::vector<Alarm> alarms_;
  std::vector<std::array<Sight, Doorbell::kOpsMax>> sights_;  // by flight
};

}  // namespace declock::sim
