// The coordinator that a memory node hosts. It decides who is a member, and is the only one who does.
//
// It makes no input or output but its file: frames come in, frames go out by a function, time is told.
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

  // Goes on with what `file` has, if it has something: then everybody who was a member is taken for dead, and has to join
  // again. Without a file it forgets everything when it ends.
  static Result<std::unique_ptr<CoordinatorServer>, std::string> open(const ClusterShape& shape,
                                                                      std::optional<StateFile> file,
                                                                      Send send, Log log, Time now);

  // False: it is not for a coordinator, or malformed.
  bool on_frame(wire::LineId line, const std::string& frame, Time now);
  void on_down(wire::LineId line);
  void on_tick(Time now);

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
  };
  CoordinatorServer(ClusterState state, std::optional<StateFile> file, Send send, Log log)
      : state_(std::move(state)),
        file_(std::move(file)),
        send_(std::move(send)),
        log_(std::move(log)),
        leases_(state_.shape.lease) {}

  void on(const Join& join, wire::LineId line, Time now);
  void on(const Renew& renew, wire::LineId line, Time now);
  void on(const Fetch& fetch, wire::LineId line, Time now);
  void on(const Leave& leave, wire::LineId line, Time now);
  void on(const RegisterMn& mn, wire::LineId line, Time now);
  void on(const RenewMn& mn, wire::LineId line, Time now);
  void on(const Fenced& fenced, wire::LineId line, Time now);

  void refuse(wire::LineId line, bool evicted, const std::string& why);
  void evict(const MemberId& member, bool counts, Time now);
  void remove_if_fenced(const MemberId& member, Time now);
  void lose_mn(std::uint16_t id, Time now);
  // On disk first, then to everybody.
  void publish();
  void try_waiting_joins(Time now);

  ClusterState state_;
  std::optional<StateFile> file_;
  Send send_;
  Log log_;
  Leases<MemberId> leases_;
  std::optional<Time> last_tick_;
  bool has_waited_ = false;                 // with judging who is silent, since the last tick
  std::map<MemberId, wire::LineId> lines_;  // of members
  std::map<std::uint16_t, MnSeat> mns_;
  std::map<MemberId, Eviction> evictions_;
  std::vector<WaitingJoin> waiting_;
};

}  // namespace declock::member
