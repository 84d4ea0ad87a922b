// All connections of a process, in one loop on one thread: those that it keeps up, and those that others make to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "wire/connection.h"

namespace declock::wire {

using LineId = std::uint64_t;  // names a connection, or one that is kept up

class Hub {
 public:
  // Called from the loop. A frame is at most kFrameMax bytes, and from somebody who has the secret.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void on_up(LineId line) = 0;
    virtual void on_frame(LineId line, const std::string& frame) = 0;
    // One line that names the peer. `refused`: one of the two did not want the other, and that will not change.
    virtual void on_down(LineId line, const std::string& why, bool refused) = 0;
    virtual void on_tick(Time now) = 0;
    // Everything that had come in was told; now the loop may wait.
    virtual void on_turn() {}
  };
  // Something else that the loop looks after.
  class Side {
   public:
    virtual ~Side() = default;
    virtual bool progress() = 0;
    virtual int wait_descriptor() const = 0;
    virtual bool may_wait() = 0;
  };

  Hub(const Secret& secret, Handler& handler, Duration tick);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  ~Hub();

  // False: there was no descriptor left for it.
  bool is_open() const { return rung_ >= 0; }

  // Before run(), or from the loop:
  void set_tick(Duration tick) { tick_ = tick; }
  void set_side(Side* side) { side_ = side; }
  // Port 0: any; the one that it became.
  Result<std::uint16_t, std::string> listen(const HostPort& at);
  // Keeps a connection to it up, until hang_up().
  LineId dial(const HostPort& at);
  void hang_up(LineId line);
  // Nothing happens if the line is down.
  void send(LineId line, std::string_view frame);
  bool is_up(LineId line) const;
  // The local address of a line that is up, without the port.
  std::string local_host(LineId line) const;

  // From any thread: runs it in the loop.
  void post(std::function<void()> job);
  void stop();

  void run();

  // Who has not proven itself after this time is dropped; so is who does not take what it is sent.
  static constexpr Duration kHandshakeMax = seconds(5);
  static constexpr std::size_t kUnsentMax = 16 << 20;
  static constexpr std::size_t kAcceptedMax = 4096;
  // Descriptors that are left to others in this process: whoever comes when there are no more is told so.
  static constexpr int kSpareDescriptors = 64;

 private:
  struct Line {
    std::optional<Connection> connection;
    std::optional<HostPort> dialled;  // otherwise it was accepted
    Time since{};                     // the connection, or the next attempt to make one
    Duration pause = milliseconds(20);
    bool told_up = false;
    bool is_dead = false;
  };
  void work_off_jobs();
  void accept_all(Time now);
  void try_dialling(Line& line, Time now);
  void handle(LineId id, Line& line, short events, Time now);
  void end(LineId id, Line& line, const std::string& why, bool refused, Time now);
  void wait(Time until);
  void run_side();

  Secret secret_;
  Handler& handler_;
  Duration tick_;
  Side* side_ = nullptr;
  int listener_ = -1;
  Time accept_from_{};  // not before: too many files are open
  int rung_ = -1;
  LineId last_ = 0;
  std::map<LineId, std::unique_ptr<Line>> lines_;
  std::size_t accepted_ = 0;
  std::mutex jobs_mutex_;
  std::vector<std::function<void()>> jobs_;
  std::atomic<bool> stopping_{false};
};

}  // namespace declock::wire
