// The CQL lock (cooperative queue-notify locking, paper section 4): a queue on the memory node that one
// fetch-and-add enters, and one message between compute nodes that hands the lock over.
//
//   acquire   FAA the header: qsize += 1, wcnt += exclusive. What it returns says whether the lock is held
//             now; if not, WRITE an entry that says who waits, and wait for a grant.
//   release   FAA the header: ticket += 1, qsize -= 1, wcnt -= exclusive. If what it returns says that
//             somebody waits whom this release makes the next holder, send a grant: a READ of the
//             queue, mostly in the same doorbell, tells to whom.
//   leave     a writer that gave up, or died, while readers hold the lock: its place is released before its turn, so
//             that it keeps nobody out.
//   token     with Options::token: whoever holds the lock exclusively passes it on with the list of all who wait.
//   reset     after a failure: claim the header, get every member out of the way, start anew with an empty
//             queue. Whoever waited tries again, and its application sees no more than a longer wait.
//
// Read in this order: layout/header.h (the state table), layout/entry.h, entering.h, acquire.cc, in_place.h, release.cc,
// successor.h (whom to grant), queue_view.h (what a reader of the queue sees), requests.h (what a member
// has to do with a lock), leave.cc, token.h and token.cc, carried.h (the object, as it travels with the token), watch.cc (is anybody left who can
// end a wait?), reset.cc, rules.h.
//
// Invariants:
//   I1  A ticket names one acquisition; the sum ticket + qsize of a header never decreases but at a wrap.
//   I2  Every request that waits writes its entry once, into a slot of its own. The entry is only ever changed to say that
//       its writer has left the queue, by the writer, or for a writer that was removed by whoever passes over it. One that is
//       watched (in_place.h) is changed by a swap: by the releaser that grants it the lock, or by its writer, which goes to sleep.
//   I3  Every release owes at most one hand-over, and the header it found says so: who is granted, by
//       whom and when is decided by that one word. A waiter whose turn the header shows needs no grant.
//   I4  A member has at most one request per lock at any time (H34).
//   I5  A header is restored only when no member that could hold the lock, or change it by an operation that
//       is on its way, is left: each has answered this claim, or was fenced and removed.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/tally.h"
#include "base/time.h"
#include "cql/entering.h"
#include "cql/messages.h"
#include "cql/queue_view.h"
#include "cql/requests.h"
#include "cql/rules.h"
#include "cql/successor.h"
#include "layout/lock_shape.h"
#include "lock/lock.h"
#include "member/membership.h"
#include "runtime/task_group.h"

namespace declock::cql {

// As whom a client takes part, with which other workers it shares that.
struct Party {
  member::Membership& membership;
  Requests& requests;
  WorkerId worker{};
};

// When a release reads the queue.
enum class ReleaseRead : std::uint8_t {
  adaptive,  // in the same doorbell if somebody may be waiting, otherwise only once somebody is known to be
  always,  // in the same doorbell, as in the paper
};

struct Options {
  ReleaseRead release_read = ReleaseRead::adaptive;
  // How long a waiter waits, or a releaser looks for an entry, before it asks whether somebody failed. A reset
  // follows only if the queue stands still, and no living member says that it can move it (H19).
  Duration patience = milliseconds(2);
  // After a restart of its memory node a lock lies where it lay. Otherwise acquisitions end with Errc::mn_restarted.
  bool outlives_restarts = true;
  bool token = false;  // whoever holds the lock exclusively passes it on with all who wait (token.h)
  Rules rules{};       // all of them, but where a test shows what a rule is for
};

struct ResetCounts {
  static constexpr std::size_t kTookKept = 1024;
  Tally done{};                  // by this member
  Tally aborted{};               // acquisitions that had to try again
  std::vector<Duration> took{};  // the first of them
};

class CqlLock final : public MendingLockClient, private Receiver, private member::ViewListener {
 public:
  CqlLock(Endpoint& endpoint, const LockShape& shape, Party self, Options options = {});
  ~CqlLock() override;

  // Errc::evicted: this member is no longer part of the cluster. Errc::stuck: ring layout only.
  Task<Result<Hold>> acquire(RemoteAddr lock, Mode mode, Op* object = nullptr) override;
  // Errc::evicted, Errc::mn_restarted: the hold was void, and `object` was not written. Errc::outcome_unknown: `object`
  // may or may not have been written. The lock is released in any case.
  Task<Result<void>> release(Hold hold, Op* object = nullptr) override;

  // Where a request stands after its fetch-and-add.
  struct Place {
    Header found{};
    std::optional<Hold> held{};  // at once
    bool aborted = false;        // by a reset
    std::uint32_t mn_incarnation = 1;
    Waiting* watching = nullptr;  // it has written its entry, and watches it
    bool in_ring = false;         // of a token that knows it
  };
  // Where this member goes on waiting when it has passed the token on, or its readers are done.
  static Place place_behind(const Hold& hold) {
    Place place{};
    place.found.ticket = hold.ticket;
    place.found.epoch = hold.epoch;
    place.mn_incarnation = hold.mn_incarnation;
    place.in_ring = true;
    return place;
  }
  Task<Result<Place>> enter(RemoteAddr lock, Mode mode, Op* object = nullptr);

  // For a request that was made earlier, before this member could ask for the lock; perhaps one that has
  // entered already, without `object`.
  Task<Result<Hold>> acquire_since(RemoteAddr lock, Mode mode, Timestamp asked, Op* object,
                                   std::optional<Result<Place>> entered = {});

  // Does a member whose clients still wait keep its place when it releases this?
  bool stays_in_ring(const Hold& hold) const {
    return options_.token && (hold.in_phase || hold.mode == Mode::exclusive);
  }

  // Would a request be served at once? One READ, and only a guess.
  Task<Result<bool>> looks_free(RemoteAddr lock, Mode mode);

  // Ends a release that was begun in one step (hier/at_once.h).
  Task<Result<void>> hand_over_behind(Hold hold, Owing owing);

  // When the first of those who wait behind `hold` asked, as far as the queue tells. One READ.
  Task<Result<std::optional<Timestamp>>> waiting_since(Hold hold);

  // Ends the places of writers that have died waiting behind a shared hold. leave.cc
  Task<void> pass_over_the_dead_behind(Hold hold);

  // How often the lock's tickets have started again: part of a token. One READ.
  Task<Result<std::uint64_t>> wraps(RemoteAddr lock);
  // REQUIRES: hold.mode is exclusive.
  Token token(const Hold& hold, std::uint64_t wraps) const;

  const LockShape& shape() const { return shape_; }
  const Rules& rules() const { return options_.rules; }
  bool has_tokens() const { return options_.token; }
  void start_patrol() override { patrols_ = true; }
  bool patrols() const { return patrols_; }
  // Whoever waits looks after its wait, less and less often: how long it waits first, and how long after that.
  Duration first_look() const { return {std::max<std::int64_t>(options_.patience.ns / 2, 1)}; }
  Duration next_look(Duration last) const {
    constexpr std::int64_t kApartMax = 16;  // times the patience
    return std::min(last + last, options_.patience * kApartMax);
  }
  void reset_for_nothing(RemoteAddr lock) override { behind_.spawn(reset_now(lock)); }
  void stop() override { self_.requests.close(); }

  const ResetCounts& resets() const { return resets_; }
  std::size_t running() const override { return behind_.running(); }
  FramePool& frames() { return endpoint_.worker().frames(); }

 private:
  class Outstanding;
  class HandingOver;
  class WaitScope;
  struct Granted;
  struct Round;

  // acquire.cc
  Task<Result<std::optional<Hold>>> enqueue_and_wait(Record& record, Mode mode, Timestamp asked,
                                                     Place place);
  Task<Result<void>> announce(Record& record, Waiting& waiting, Timestamp asked, bool watches);
  Task<Result<void>> announce_and_look(Record& record, Waiting& waiting);
  Task<Result<void>> await_end_of_reset(Record& record);
  std::uint32_t slot_for(Ticket ticket) const;
  Entry entry_for(const GrantKey& key, Mode mode, Timestamp asked) const;

  // release.cc
  Task<Result<void>> release_and_hand_over(Record& record, Hold hold, Op* object);
  Task<Result<void>> look_and_hand_over(Record& record, Hold hold, Owing owing,
                                        std::span<std::uint64_t> queue, bool looked);
  Task<Result<void>> hand_over(Record& record, Hold hold, Owing owing, std::span<std::uint64_t> queue);
  // What became of the duty to hand over, after a look at the queue.
  enum class HandOver : std::uint8_t { done, entry_missing, owner_unknown, overwritten };
  HandOver try_hand_over(const Hold& hold, const Owing& owing, std::span<const std::uint64_t> queue,
                         Ticket& owed, bool refreshed);
  const member::Member* owner_of(const Waiter& waiter) const;
  bool knows_owners(const QueueView& view, Ticket begin, Ticket end) const;
  void send_grants(RemoteAddr lock, const Era& era, const QueueView& view, Ticket begin, Ticket end,
                   const Carried& value = {});
  void send_grant(const GrantKey& key, Waiter to, const QueueView& view,
                  const std::optional<Timestamp>& behind, const Carried& value);
  void no_longer_held(Record& record, Ticket ticket);

  // token.cc
  struct Onward {
    Move move;
    LockToken token{};
    bool stays_here = false;
  };
  void look_behind_entry(Record& record, Waiting& waiting, const Header& seen);
  Waiting* wait_for(const Record& r, const TurnMessage& turn) const;
  static void wake(Waiting& waiting);
  static void let_in_phase(Record& r, Waiting& waiting, const RingPlace& next, std::uint32_t hop);
  static void let_in_with_token(const LockToken& token, Waiting& waiting);
  void on_token(const Message& message);
  void receive_token(Record& r, Waiting& waiting, LockToken token, bool phase);
  void go_on_if_all_answered(Record& r);
  void on_phase(const Message& message);
  void answer_phase(const GrantKey& mine, const RingPlace& own, const Turns::Phase& phase);
  void on_done(const Message& message);
  RingPlace own_place(Ticket ticket) const;
  Task<void> look_for_newcomers(GrantKey mine);
  void merge_newcomers(LockToken& token, const Era& era, std::span<const std::uint64_t> queue);
  Task<Result<void>> release_turn(Record& record, Hold hold, Op* object);
  bool is_stopped(const Record& r, const Hold& hold) const;
  void drop_turns(Record& record, const Hold& hold);
  Result<void> dropped() const;
  Task<Result<void>> pass_token(Record& record, Hold hold, Op* object);
  Onward move_on(Record& r, const Hold& hold);
  void send_onward(const Onward& onward, GrantKey key);
  Task<Result<void>> end_phase(Record& record, Hold hold);
  Task<Result<void>> leave_and_grant(Record& record, Hold hold, Op* object, std::uint32_t requests,
                                     std::uint32_t writers, const LockToken* freed = nullptr);
  Task<Result<void>> grant_newcomers(Hold hold, Header found, std::uint32_t requests,
                                     std::uint32_t writers, std::uint32_t readers,
                                     std::span<std::uint64_t> queue, bool looked, Carried value);
  Task<Result<void>> grant_turns(RemoteAddr lock, Era era, std::span<const std::uint64_t> queue,
                                 Ticket turn, Ticket end, bool all_readers, bool readers_hold,
                                 Carried value);
  void free_readers(Record& record, const Hold& hold, const LockToken& token);
  const member::Member* owner_of(const RingPlace& place) const;
  void send_to(const RingPlace& place, const Message& message);

  // leave.cc
  Task<Result<bool>> leave_early(Record& record, Waiting& waiting, Mode mode, Timestamp asked);
  Task<void> pass_over_the_dead(GrantKey mine);
  Task<Result<std::optional<Hold>>> mark_one_of_the_dead(const GrantKey& mine);
  std::optional<Waiter> dead_ahead(const GrantKey& mine, std::span<const std::uint64_t> queue) const;
  void reset_if_unknown(const GrantKey& mine, Errc error);
  Task<Result<void>> look_at_queue(const GrantKey& wait, std::span<std::uint64_t> queue);
  Task<Result<bool>> sees_only_readers_ahead(const GrantKey& key);
  Task<Result<void>> leave_for(Record& record, Hold place, Op* mark, std::optional<Outstanding>& busy);
  bool only_readers_ahead(std::span<const std::uint64_t> queue, Epoch epoch, Ticket place) const;

  // reset.cc
  Task<Result<void>> settle(RemoteAddr lock, Errc error);
  Task<void> reset_now(RemoteAddr lock, std::optional<Epoch> epoch = {});
  Task<Result<void>> reset(Record& record, std::optional<Epoch> epoch = {});
  Task<Result<std::optional<Era>>> claim(RemoteAddr lock, std::optional<Epoch> epoch);
  Task<Result<bool>> claimant_was_removed(ResetId claimant);
  Task<Result<void>> drain(Record& record, Era era);
  Task<Result<void>> restore(RemoteAddr lock, Era era);
  Task<Result<void>> start_tickets_again(RemoteAddr lock, Era era);
  Task<Result<void>> look_after(Record& record, Header seen);
  struct Seen {
    Header header;
    std::uint32_t mn_incarnation;
    Era era() const { return {header.epoch, mn_incarnation & kIncarnationMask}; }
  };
  Task<Result<Seen>> read_header(RemoteAddr lock);
  void on_signal(EndpointId from, const RoundMessage& signal);
  void on_question(const Question& question);
  void lose(Record& record, const Era& era) const;
  void answer_if_quiet(Record& record);

  // watch.cc
  void send_round(const Round& round);
  Task<void> keep_sending(Round& round);
  struct Inquired {
    std::uint8_t part;
    std::uint32_t hops;
  };
  Task<Result<Inquired>> inquire(Record& record, Era era);
  std::uint8_t part_in(Record& record, const Era& era);
  void on_inquiry(EndpointId from, const RoundMessage& inquiry);
  void on_answer(const RoundMessage& answer);
  void watch(Record& record, Waiting& waiting);
  Task<void> watch_over(Record& record, Waiting& waiting);
  Task<Result<Header>> look_at_era(GrantKey key);
  Task<void> look_for_turn(GrantKey key);
  bool its_turn_has_come(const Waiting& waiting, const Header& seen) const;
  bool take_turn(const GrantKey& key, const Header& seen);
  Task<void> watch_again();
  bool somebody_failed() const;
  // Does a client of this worker wait?
  bool is_mine(const Record& r) const {
    return r.waiting != nullptr && r.waiting->worker == &endpoint_.worker();
  }
  void on_view(const member::View& view) override;

  void on_message(EndpointId from, const Message& message) override;
  void on_grant(const Grant& grant, const Carried& value);

  // As whom this member claims a reset.
  ResetId my_claim() const { return claim_of(self_.membership.self()); }
  static ResetId claim_of(const member::Member& m) {
    return ResetId{static_cast<std::uint16_t>((m.slot.value + 1u) << 2 | (m.incarnation.value & 3))};
  }

  Endpoint& endpoint_;
  LockShape shape_;
  Party self_;
  Options options_;
  std::uint64_t removals_at_first_;  // known when this member came
  Round* rounds_ = nullptr;          // questions of this worker that wait for answers
  std::uint64_t removals_seen_;      // in the last view
  ResetCounts resets_;
  TaskGroup behind_;
  bool patrols_ = false;
};

// An operation on a lock was posted, and may take effect until the end of this scope (H3).
class CqlLock::Outstanding {
 public:
  Outstanding(CqlLock& lock, Record& record) : lock_(lock), record_(record) {
    lock_.self_.requests.change(record_, [](Record& r) { r.outstanding += 1; });
  }
  Outstanding(const Outstanding&) = delete;
  Outstanding& operator=(const Outstanding&) = delete;
  ~Outstanding() {
    lock_.self_.requests.change(record_, [](Record& r) { r.outstanding -= 1; });
    lock_.answer_if_quiet(record_);
  }

 private:
  CqlLock& lock_;
  Record& record_;
};

// A release looks for whom to grant the lock to until the end of this scope.
class CqlLock::HandingOver {
 public:
  // `counted`: it is known to already.
  HandingOver(CqlLock& lock, Record& record, bool counted = false) : lock_(lock), record_(record) {
    if (!counted) lock_.self_.requests.change(record_, [](Record& r) { r.handing_over += 1; });
  }
  HandingOver(const HandingOver&) = delete;
  HandingOver& operator=(const HandingOver&) = delete;
  ~HandingOver() {
    lock_.self_.requests.change(record_, [](Record& r) { r.handing_over -= 1; });
  }

 private:
  CqlLock& lock_;
  Record& record_;
};

// Makes a wait known. Must exist before its entry is written: the grant may come before the WRITE's completion.
class CqlLock::WaitScope {
 public:
  WaitScope(CqlLock& lock, Record& record, Waiting& waiting) : lock_(lock), record_(record) {
    lock_.self_.requests.change(record_, [&](Record& r) {
      waiting.worker = &lock_.endpoint_.worker();
      note_waiting(r, waiting);
    });
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;
  ~WaitScope() {
    record_.waiting->watch.task = {};  // this worker's own: nobody else touches it
    lock_.self_.requests.change(record_, [](Record& r) { end_wait(r, *r.waiting); });
    lock_.answer_if_quiet(record_);
  }

 private:
  CqlLock& lock_;
  Record& record_;
};

// co_await: until granted or aborted, or until nobody wants it any more.
struct CqlLock::Granted {
  Requests& requests;
  Waiting& waiting;
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> me) const {
    const std::lock_guard guard{requests.mutex()};
    if (waiting.state != Waiting::State::waits) return false;
    waiting.coroutine = me;
    return true;
  }
  void await_resume() const noexcept {}
};

// A question to every member, and the answers that are awaited: co_await it until all have come.
struct CqlLock::Round {
  CqlLock& lock;
  MessageKind question;
  RemoteAddr addr;
  Era era;
  std::vector<member::Member> awaited{};
  std::uint8_t part = 0;   // of those who replied, together
  std::uint32_t hops = 0;  // the sum of theirs: another one if a token has moved
  std::coroutine_handle<> coroutine{};
  bool is_ready = false;  // the coroutine is about to go on, and may be destroyed before
  Round* next = nullptr;

  Round(CqlLock& cql, MessageKind asks, RemoteAddr a, Era e)
      : lock(cql), question(asks), addr(a), era(e), next(cql.rounds_) {
    lock.rounds_ = this;
  }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;
  ~Round() {
    Round** link = &lock.rounds_;
    while (*link != this) link = &(*link)->next;
    *link = next;
    if (is_ready) lock.endpoint_.worker().forget(coroutine);
  }

  bool over() const { return awaited.empty() || lock.self_.membership.evicted(); }
  void resume_if_over() {
    if (!over() || !coroutine || std::exchange(is_ready, true)) return;
    lock.endpoint_.worker().make_ready(coroutine);
  }

  bool await_ready() const noexcept { return over(); }
  void await_suspend(std::coroutine_handle<> me) noexcept { coroutine = me; }
  void await_resume() noexcept { is_ready = false; }
};

}  // namespace declock::cql
