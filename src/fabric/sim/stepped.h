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
#include "sim/history.h"

namespace declock::sim {

// Something that can happen next.
struct Choice {
  enum class Kind : std::uint8_t {
    effect,     // the next operation of endpoint `who` takes effect (a read behind a read: begins)
    complete,   // the oldest chain of `who` completes; its reads see combination `variant`
    deliver,    // the oldest message from `who` to `to` arrives; variant n + 1: echo n does
    resume,     // client `who`, paused of its own will, goes on
    timer,      // a timer of worker `who` fires, the one with number `variant`
    reconnect,  // `who`, which waits for it, has another connection to the memory node
    // Not of the network, but of the world around it:
    crash,    // the compute node `who` dies; what it has sent goes on
    remove,   // `who`, dead or wrongly suspected, is fenced and removed from the view
    tell,     // `who` hears of the current view
    reset,    // `who` resets the lock for nothing
    join,     // `who` is in the view from now on, and begins
    leave,    // `who`, which is done, is not in the view any more
    sever,    // the connection of `who` to the memory node breaks
    restart,  // the memory node restarts, with fresh memory
    lose,     // the oldest message from `who` to `to` is lost
    repeat,   // it arrives, and will once more at some moment
  };
  Kind kind;
  std::uint8_t who = 0;
  std::uint8_t to = 0;
  std::uint32_t variant = 0;
};

class SteppedEngine final : public Engine {
 public:
  // `words` of MN 0's memory, from its beginning, are part of the state. `at_once`: as in shared memory, clients
  // may act on it in one step. Connections do not break there, nor does the MN restart. Other threads come between any two
  // steps, so a chain takes its time here as well.
  explicit SteppedEngine(std::size_t words, bool at_once = false)
      : Engine(1, 0), words_(words), at_once_(at_once) {}
  bool completes_at_once() const override { return at_once_; }

  SimEndpoint& add_endpoint(SimWorker& worker) override;

  // All but timers: those are for when nothing else can happen, or nothing that changes anything.
  void enabled(std::vector<Choice>& out) const;
  void timers(std::vector<Choice>& out) const;
  // Whoever was at this endpoint is gone.
  void forget_completions(EndpointId who);
  void perform(Choice choice);
  std::uint64_t digest() const;

  // The endpoint's connection to the MN breaks. Of what is under way, in order, the rest may yet take effect until
  // reconnect(); nobody is told whether. What is posted meanwhile is lost.
  void sever(EndpointId who);
  // Has it posted anything whose outcome it could miss?
  bool awaits_completion(EndpointId who) const;
  // The MN restarts. What took effect and is not known to have may be reported or not.
  void restart_memory();
  Task<Result<void>> reconnect(SimEndpoint& endpoint, MnId mn) override;
  // What no fabric does (F4). REQUIRES: `deliver` is offered from `who` to `to`.
  void lose(const Choice& choice) { (void)take_letter(choice); }
  void repeat(const Choice& choice);

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
  const Flight& oldest_flight(std::uint8_t who) const { return **next_to_complete(lanes_[who]); }
  bool is_unknown(const Choice& choice) const;
  std::vector<std::uint64_t> would_see(const Choice& choice, std::size_t step) const;
  const Letter& next_letter(const Choice& choice) const {
    return choice.variant > 0 ? echoes_[choice.variant - 1] : letters_[find_letter(choice)];
  }
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
    History observed;
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
  // co_await: until the caller picks `reconnect` for this endpoint.
  class Reconnection {
   public:
    Reconnection(SteppedEngine& engine, EndpointId who) : engine_(engine), who_(who) {}
    Reconnection(const Reconnection&) = delete;
    Reconnection& operator=(const Reconnection&) = delete;
    ~Reconnection() { std::erase(engine_.reconnections_, this); }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) {
      waiter_ = waiter;
      engine_.reconnections_.push_back(this);
    }
    void await_resume() const noexcept {}

   private:
    friend class SteppedEngine;
    SteppedEngine& engine_;
    EndpointId who_;
    std::coroutine_handle<> waiter_;
  };
  static Task<Result<void>> await_reconnection(SimEndpoint& endpoint, SteppedEngine& engine, MnId mn);
  struct Alarm {
    std::uint32_t worker;
    Timer* timer;
    Time when;
    unsigned passed_over = 0;  // so many times another timer fired meanwhile
  };
  // Clocks differ, and yet no timer lags behind so many others: who sleeps for a moment wakes before others have
  // gone round in circles for ever.
  static constexpr unsigned kPassedOverMax = 3;

  void on_post(Flight& flight) override;
  void on_send(const Letter& letter) override;
  void on_arm(std::uint32_t worker, Timer& timer, Time when) override;
  void on_disarm(Timer& timer) override;

  static Flight* next_to_take(const Lane& lane);
  // The oldest chain that is to be reported.
  static std::vector<Flight*>::const_iterator next_to_complete(const Lane& lane);
  void complete_next(Lane& lane, std::size_t variant);
  void offer_completions(const Lane& lane, std::uint8_t who, std::vector<Choice>& out) const;
  void reopened(Lane& lane);
  void shed_the_told(Lane& lane);
  void offer_letters(std::vector<Choice>& out) const;
  Letter take_letter(const Choice& choice);
  void deliver_noted(const Letter& letter);
  std::uint64_t digest(const Lane& lane) const;
  std::uint64_t digest_of_mail() const;
  Sight& sight(const Flight& flight, std::size_t step) { return sights_[flight.index][step]; }
  const Sight& sight(const Flight& flight, std::size_t step) const {
    return sights_[flight.index][step];
  }
  void carry_out(Flight& flight);
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
  bool at_once_;
  bool refetches_count_ = false;
  Time now_;
  std::vector<Lane> lanes_;
  std::vector<Letter> letters_;  // in the order in which they were sent
  std::vector<Letter> echoes_;   // of letters that have arrived
  std::vector<Paused> pauses_;
  std::vector<Reconnection*> reconnections_;  // in the order in which they were asked for
  std::vector<Alarm> alarms_;
  std::vector<std::array<Sight, Doorbell::kOpsMax>> sights_;  // by flight
};

}  // namespace declock::sim
