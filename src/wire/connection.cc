#include "wire/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace declock::wire {
namespace {

// So that one busy peer does not keep a loop from the others.
constexpr int kReadsAtOnce = 16;
constexpr std::size_t kReadBytes = 64 << 10;

// A peer whose machine is gone is noticed after about 20 s.
constexpr int kKeepIdle_s = 10;
constexpr int kKeepInterval_s = 3;
constexpr int kKeepProbes = 3;

// Whatever is refused is so because the socket is not TCP, and then it is not needed.
void prepare(int descriptor) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  const auto set = [&](int level, int name, int value) {
    setsockopt(descriptor, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdle_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepInterval_s);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
}

bool not_now(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Connection::Connection(int descriptor, Session session, std::string peer)
    : descriptor_(descriptor), session_(std::move(session)), peer_(std::move(peer)) {
  prepare(descriptor_);
  if (peer_.empty()) peer_ = peer_name(descriptor_);
}

Connection::Connection(Connection&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      session_(std::move(other.session_)),
      peer_(std::move(other.peer_)),
      error_(std::move(other.error_)) {}

Connection& Connection::operator=(Connection&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(session_, other.session_);
  std::swap(peer_, other.peer_);
  std::swap(error_, other.error_);
  return *this;
}

Connection::~Connection() {
  if (descriptor_ >= 0) close(descriptor_);
}

short Connection::wanted_events() const {
  // While it is connecting a client has its greeting to send, and so it hears of the end of that too.
  return unsent() > 0 ? POLLIN | POLLOUT : POLLIN;
}

Result<void, std::string> Connection::handle(short events) {
  if (error_.empty() && events != 0) {
    // Reading first: what a peer said before it closed tells more than that it has closed.
    std::string wrong = (events & ~POLLOUT) != 0 ? read() : std::string{};
    // Also after an error: the session may have something to say that lets the peer know of it.
    std::string unwritten = write();
    if (wrong.empty()) wrong = std::move(unwritten);
    if (!wrong.empty()) {
      error_ = peer_ + ' ' + wrong;
      shutdown(descriptor_, SHUT_WR);
    }
  }
  if (!error_.empty()) return Failure{error_};
  return {};
}

void Connection::send(std::string_view frame) {
  if (!error_.empty()) return;
  session_.send(frame);
  // An error shows again in poll(), and handle() reads first what the peer has said before.
  write();
}

std::string Connection::read() {
  std::array<char, kReadBytes> piece;
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t got = recv(descriptor_, piece.data(), piece.size(), 0);
    if (got == 0) return fault(ECONNRESET);
    if (got < 0) return not_now(errno) ? std::string{} : fault(errno);
    const auto bytes = static_cast<std::size_t>(got);
    if (const auto fed = session_.feed({piece.data(), bytes}); !fed) return fed.error();
    if (bytes < piece.size()) break;
  }
  return {};
}

std::string Connection::write() {
  std::string& out = session_.outgoing();
  while (!out.empty()) {
    const ssize_t sent = ::send(descriptor_, out.data(), out.size(), MSG_NOSIGNAL);
    if (sent < 0) return not_now(errno) ? std::string{} : fault(errno);
    out.erase(0, static_cast<std::size_t>(sent));
  }
  return {};
}

std::string Connection::fault(int error) const {
  if ((error == ECONNRESET || error == EPIPE) && !session_.established()) {
    return "closed the connection in the handshake; what it reports may say why";
  }
  return peer_fault(error);
}

}  // namespace declock::wire
