// A Session over a TCP socket, for a loop around poll() or level-triggered epoll. It never blocks and never raises
// SIGPIPE. It knows no time: the owner drops a peer that takes too long.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "declock/result.h"
#include "wire/session.h"
#include "wire/socket.h"

namespace declock::wire {

class Connection {
 public:
  // Owns the descriptor: an accepted one, or one that is still connecting. `peer` is the peer's name in errors; if
  // there is none, its address. One that is still connecting has no address yet, so a client should give it.
  Connection(int descriptor, Session session, std::string peer = {});
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&& other) noexcept;
  ~Connection();

  int descriptor() const { return descriptor_; }
  short wanted_events() const;

  // Reads and writes what is possible at once, given what poll() says. An error is one line that begins with peer();
  // then the connection is over, and the owner should take the last frames and drop it.
  Result<void, std::string> handle(short events);

  // The frames that have arrived, in order. Take all of them after each handle(), which reads 1 MiB at most.
  std::optional<std::string> next_frame() { return session_.next_frame(); }

  // Writes what is possible at once and keeps the rest; the owner bounds it by unsent(). If the connection is over nothing
  // happens: handle() says why. REQUIRES: it was established; at most kFrameMax bytes.
  void send(std::string_view frame);
  std::size_t unsent() const { return session_.outgoing().size(); }

  // The peer has proven that it has the secret, and the connection is not over.
  bool established() const { return error_.empty() && session_.established(); }
  // It is over because of what the peer said, not because of the network.
  bool was_refused() const { return session_.refused(); }
  const std::string& peer() const { return peer_; }

 private:
  // What the peer did wrong, if it did.
  std::string read();
  std::string write();
  std::string fault(int error) const;

  int descriptor_;
  Session session_;
  std::string peer_;
  std::string error_;
};

}  // namespace declock::wire
