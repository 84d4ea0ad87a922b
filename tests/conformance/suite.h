// What the tests of this suite share: words of memory node 0, and ways to wait for one another.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "conformance/stage.h"
#include "support/soon.h"

namespace declock::conformance {

inline const std::string kFabrics[] = {"sim", "shm", "tcp", "verbs"};

constexpr RemoteAddr at(std::uint64_t word) {
  return {MnId{0}, 8 * word};
}
// Words that no test uses for anything else.
inline constexpr std::uint64_t kSaid = 50;
inline constexpr std::uint64_t kMet = 51;
inline constexpr std::uint64_t kSatisfied = 52;

class Conformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const std::string why = why_not(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  std::unique_ptr<Stage> stage(std::uint32_t nodes) const { return make_stage(GetParam(), nodes); }
};

// To be awaited begun(), as everything here that is awaited in loops: where operations take no time none of it suspends.
inline Task<std::uint64_t> add_one(Endpoint& endpoint, std::uint64_t word) {
  Op one_more = Op::fetch_add(at(word), 1, Purpose::data);
  CHECK(co_await endpoint.post(one_more));
  co_return one_more.old + 1;
}
inline Task<std::uint64_t> word_at(Endpoint& endpoint, std::uint64_t word) {
  std::uint64_t value = 0;
  Op look = Op::read(at(word), {&value, 1}, Purpose::data);
  CHECK(co_await endpoint.post(look));
  co_return value;
}
// First without a pause: whoever waits goes on in the same moment as the last who comes.
inline Task<void> until_at_least(Endpoint& endpoint, std::uint64_t word, std::uint64_t value) {
  Worker& worker = endpoint.worker();
  const Time pauses_from = worker.now() + milliseconds(2);
  while (co_await word_at(endpoint, word).begun() < value) {
    if (worker.now() > pauses_from) co_await worker.sleep_for(microseconds(20));
  }
}

// One node says how far it is, for another to wait for.
inline Task<void> say(Endpoint& endpoint) {
  (void)co_await add_one(endpoint, kSaid).begun();
}
inline Task<void> until_said(Endpoint& endpoint, std::uint64_t times) {
  return until_at_least(endpoint, kSaid, times);
}

// Nobody goes on before all of them are here, for the `time`-th time, beginning with 1.
inline Task<void> meet(Endpoint& endpoint, std::uint64_t nodes, std::uint64_t time = 1) {
  (void)co_await add_one(endpoint, kMet).begun();
  co_await until_at_least(endpoint, kMet, nodes * time).begun();
}

// A race that is shorter meets nothing that is rare.
inline constexpr Duration kRaces = milliseconds(50);
// Of nodes that race: begins with all of them and goes on until each has seen enough of the others.
class Race {
 public:
  Race(Endpoint& endpoint, std::uint64_t nodes)
      : endpoint_(endpoint), nodes_(nodes), begun_(endpoint.worker().now()) {}
  FramePool& frames() { return endpoint_.frames(); }

  Task<void> begin() { return meet(endpoint_, nodes_); }
  // To be asked in turns. Ends at the latest when it hangs: then whoever has not seen enough says so.
  Task<bool> over(bool enough) {
    const Duration takes = endpoint_.worker().now() - begun_;
    if (!satisfied_ && takes > kRaces && (enough || takes > kHangs)) {
      satisfied_ = true;
      (void)co_await add_one(endpoint_, kSatisfied).begun();
    }
    co_return co_await word_at(endpoint_, kSatisfied).begun() >= nodes_;
  }

 private:
  Endpoint& endpoint_;
  std::uint64_t nodes_;
  Time begun_;
  bool satisfied_ = false;
};

// Counts what it gets, per sender, and whether it came in order, once.
class Listener final : public Receiver {
 public:
  explicit Listener(Endpoint& endpoint) : endpoint_(endpoint) { endpoint.set_receiver(this); }
  ~Listener() override { endpoint_.set_receiver(nullptr); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  void on_message(EndpointId from, const Message& message) override {
    ordered_ = ordered_ && message.words[0] == ++last_[from.value % last_.size()] &&
               message.words[1] == ~message.words[0] && message.words[2] == from.value;
    count_ += 1;
    heard_[from.value % heard_.size()] += 1;
  }
  bool ordered() const { return ordered_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t count(EndpointId from) const { return heard_[from.value % heard_.size()]; }

 private:
  Endpoint& endpoint_;
  std::array<std::uint64_t, 8> last_{};
  std::array<std::uint64_t, 8> heard_{};
  bool ordered_ = true;
  std::uint64_t count_ = 0;
};
// The `i`-th message to anybody, beginning with 1.
inline void send_number(Endpoint& endpoint, EndpointId to, std::uint64_t i) {
  endpoint.send(to, {{i, ~i, endpoint.id().value}});
}

}  // namespace declock::conformance
