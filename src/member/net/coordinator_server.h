// The coordinator that a memory node hosts. It decides who is a member, and is the only one who does.
//
// It makes no input or output but its file: frames come in, frames go out by a function, time is told. What it decides and
// answers between two calls of flush() is one change: on disk first, then told to everybody.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "member_net/messages.h"
#include "member_net/state_file.h"
#include "wire/hub.h"

namespace declock::member {

class CoordinatorServer {
 public:
  using Send = std::function<void(wire::LineId, const std::string& frame)>;
  using Log = std::function<void(const std::string& line)>;

  // The memory node that hosts it. That one is never silent: if it were, nobody would be here to notice.
  static constexpr wire::LineId kHost = ~wire::LineId{0};

  // Goes on with what `file` has, if it has something: then everybody who was a member is taken for dead, and has to join
  // again. Without a file it forgets everything when it ends.
  static Result<std::unique_ptr<CoordinatorServer>, std::string> open(const ClusterShape& shape,
                                                                      std::optional<StateFile> file,
                                                                      Send send, Log log);

  // False: it is not for a coordinator, or malformed.
  bool on_frame(wire::LineId line, const std::string& frame);
  void on_down(wire::LineId line);
  // To be called now and then, each time after what had come in was handed to on_frame().
  void on_tick(Time now);
  // After some of these calls, and before anybody waits: sends what they have to say.
  void flush();

  const ClusterState& state() const { return state_; }

 private:
  // A member on its way out.
  struct Eviction {
    std::set<std::uint16_t> unconfirmed;  // by these memory nodes
    bool counts = true;                   // it did not leave by itself
  };
  struct MnSeat {
    wire::LineId line = 0;  // 0: down
    Time heard;
  };
  struct WaitingJoin {
    wire::LineId line;
    Join join;
    std::string why{};  // as it was told
  };
  struct Answer {
    wire::LineId line;
    std::string frame;
    bool with_state = false;  // the newest goes behind it
  };
  CoordinatorServer(ClusterState state, std::optional<StateFile> file, Send send, Log log);

  void on(const Join& join, wire::LineId line);
  void on(const Renew& renew, wire::LineId line);
  void on(const Fetch& fetch, wire::LineId line);
  void on(const Leave& leave, wire::LineId line);
  void on(const RegisterMn& mn, wire::LineId line);
  void on(const RenewMn& mn, wire::LineId line);
  void on(const Fenced& fenced, wire::LineId line);

  template <class T>
  void answer(wire::LineId line, const T& message) {
    answers_.push_back({line, frame_of(message)});
  }
  // Of a message that ends with the state, what is before that.
  template <class T, class Head>
  void answer_with_state(wire::LineId line, const Head& head) {
    answers_.push_back({line, static_cast<char>(T::kKind) + to_bytes(head), true});
  }
  void refuse(wire::LineId line, bool evicted, const std::string& why);
  void admit(const WaitingJoin& asking);
  void keep_waiting(const WaitingJoin& asking, const std::string& why);
  void try_waiting_joins();
  std::uint64_t acknowledged() const;
  void evict(const MemberId& member, bool counts);
  void remove_if_fenced(const MemberId& member);
  void lose_mn(std::uint16_t id);
  // To whoever does not know it yet.
  void tell_everybody();

  ClusterState state_;
  std::optional<StateFile> file_;
  Send send_;
  Log log_;
  // The time that it has listened: a turn that takes long counts as a short one. Whoever did not listen cannot say that
  // others were silent.
  Time clock_{};
  std::optional<Time> last_tick_;
  Leases<MemberId> leases_;                 // by that clock
  std::map<MemberId, wire::LineId> lines_;  // of members
  std::map<MemberId, std::uint64_t>
      seen_;  // the number of the state that all workers of a member go by
  std::map<std::uint16_t, MnSeat> mns_;
  std::map<MemberId, Eviction> evictions_;
  std::vector<WaitingJoin> waiting_;  // one per line at most
  bool may_join_ = false;             // one who waits, perhaps
  std::size_t state_bytes_;           // about: memory nodes come and go

  std::vector<Answer> answers_;                 // in this order
  std::set<Slot> changed_;                      // since the state that was told last,
  std::uint64_t published_ = 0;                 // which has this number
  std::map<wire::LineId, std::uint64_t> told_;  // the number of the state that was sent there last
};

}  // namespace declock::member
