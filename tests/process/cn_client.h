// One client of process_cn: takes locks at random, and looks whether what they protect is as it should be.
//
// An exclusive section adds one to two words of an object, one after the other, and looks whether anybody came between.
// If a process is killed in between, the next holder finds the words different and mends them. Or it reads the words of all
// clients, adds one to its own, and writes all of them along with the release: whoever writes when it must not takes the
// others' words back, and the end of each such release says what its own word may be (Bounds).
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "hier/hier.h"
#include "process/control.h"

namespace declock::process {

// What the clients of one life of a process share.
struct Life {
  Control& control;
  Station& station;
  MnId mn;
  std::uint32_t memories_before;          // in shared memory: before the one whose locks these are
  std::uint64_t sections;                 // each client is done after so many; 0: when the test says so
  bool holds;                             // they do nothing but hold one lock, or wait for it
  bool wide;                              // they also take locks that protect nothing
  std::atomic<std::uint32_t> at_work{0};  // clients that are not done

  bool is_tallied() const { return &station < &control.stations[kStationsTallied]; }
  std::size_t number() const { return static_cast<std::size_t>(&station - control.stations); }
  bool is_closing() const { return station.closes_wanted.load() > station.closes.load(); }
};

class Client {
 public:
  Client(Life& life, std::uint32_t number, Endpoint& endpoint, std::unique_ptr<TimedLockClient> lock,
         Prng random)
      : life_(life),
        control_(life.control),
        number_(number),
        endpoint_(endpoint),
        lock_(std::move(lock)),
        random_(random) {}

  void start() {
    task_.emplace(run());
    task_->start();
  }
  bool done() const { return task_->done(); }
  bool was_evicted() const { return evicted_; }
  FramePool& frames() { return endpoint_.frames(); }

 private:
  Task<void> run();
  Task<void> do_sections();
  Task<void> hold_to_the_end();
  Task<Result<void>> take_wide();
  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode);
  Task<Result<void>> use_and_release(std::uint64_t which, Mode mode, Hold hold);
  Task<Result<void>> release(Hold hold);
  Task<Result<void>> update(std::uint64_t which, const Hold& hold);
  Task<Result<void>> look_twice(std::uint64_t which, const Hold& hold);
  Task<Result<void>> add_by_release(std::uint64_t which, Hold hold);

  std::uint32_t memory_of(const Hold& hold) const {
    return (life_.memories_before + hold.mn_incarnation) % kMemories;
  }
  bool is_over() const { return control_.stop.load() || evicted_; }
  void note(Errc error) {
    if (error == Errc::evicted) {
      evicted_ = true;
    } else if (error == Errc::timed_out) {
      control_.given_up.fetch_add(1);
    } else if (error != Errc::mn_restarted) {
      control_.errors.fetch_add(1);
    }
  }

  // Inside the section, sometimes long enough to be killed or stopped there.
  Task<void> linger(std::uint64_t at_most_us) {
    if (random_.one_in(8))
      co_await endpoint_.worker().sleep_for(
          microseconds(static_cast<std::int64_t>(random_.below(at_most_us))));
  }
  // For the memory that the hold is about, and no other.
  Task<Result<void>> post(Op op, const Hold& hold) {
    op.incarnation = hold.mn_incarnation;
    const Result<void> done = co_await post_until_known(endpoint_, op);
    // A write: this process was evicted meanwhile.
    if (!done && done.error() == Errc::outcome_unknown) co_return Failure{Errc::evicted};
    co_return done;
  }

  Life& life_;
  Control& control_;
  const std::uint32_t number_;
  Endpoint& endpoint_;
  std::unique_ptr<TimedLockClient> lock_;
  Prng random_;
  bool evicted_ = false;
  std::array<std::uint64_t, kTallyWords> words_{};
  std::optional<Task<void>> task_;
};

}  // namespace declock::process
