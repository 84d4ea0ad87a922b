#include "wire/socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace declock::wire {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<Addresses, std::string> resolve(const HostPort& at) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const std::string port = std::to_string(at.port);
  int error = 0;
  for (const int family : {AF_INET, AF_INET6}) {
    hints.ai_family = family;
    addrinfo* found = nullptr;
    error = getaddrinfo(at.host.c_str(), port.c_str(), &hints, &found);
    if (error == 0) return Addresses{found, &freeaddrinfo};
  }
  return Failure{
      fmt::format("{}: has no address: {}; write an address, or a name that this machine knows",
                  at.host, gai_strerror(error))};
}

int tcp_socket(const addrinfo& address) {
  return socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

bool listens(int descriptor, const addrinfo& address) {
  const int on = 1;
  // A restarted server must not wait until the connections of its predecessor are forgotten.
  return setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
         bind(descriptor, address.ai_addr, address.ai_addrlen) == 0 &&
         listen(descriptor, SOMAXCONN) == 0;
}

std::string why_not_listening(int error) {
  switch (error) {
    case EADDRINUSE:
      return "is taken by another program; stop that one, or choose another port";
    case EADDRNOTAVAIL:
      return "is not an address of this machine; choose one that `ip address` shows, or 0.0.0.0 for "
             "all";
    case EACCES:
      return "needs a permission that this user does not have; choose a port above 1023";
    default:
      return fmt::format("cannot be listened on: {}", std::strerror(error));
  }
}

// 0: it is no address of TCP.
std::uint16_t port_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

}  // namespace

std::string to_string(const HostPort& at) {
  const bool ipv6 = at.host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", at.host, at.port) : fmt::format("{}:{}", at.host, at.port);
}

Result<HostPort, std::string> parse_host_port(std::string_view text) {
  const auto refused = [&](std::string_view why) {
    return Failure{fmt::format(
        "'{}': {}; write HOST:PORT, as in node1:7000, 10.0.0.1:7000 or [fd00::1]:7000", text, why)};
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refused("has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  if (brackets) host = host.substr(1, host.size() - 2);
  if (host.empty()) return refused("has no host (0.0.0.0 is every address of a machine)");
  if (brackets != (host.find(':') != std::string_view::npos)) {
    return refused("an IPv6 address, and nothing else, is written in brackets");
  }
  if (!std::all_of(host.begin(), host.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view{"-._:%"}.find(static_cast<char>(c)) != std::string_view::npos;
      })) {
    return refused("has a character that no host has");
  }
  HostPort at{std::string{host}, 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), at.port);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    return refused("has no port that is a number up to 65535");
  }
  return at;
}

Result<int, std::string> listen_on(const HostPort& at) {
  const auto addresses = resolve(at);
  if (!addresses) return Failure{addresses.error()};
  const addrinfo& first = **addresses;
  const int descriptor = tcp_socket(first);
  if (descriptor >= 0 && listens(descriptor, first)) return descriptor;
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  return Failure{fmt::format("{} {}", to_string(at), why_not_listening(error))};
}

Result<int, std::string> connect_to(const HostPort& at) {
  const auto addresses = resolve(at);
  if (!addresses) return Failure{addresses.error()};
  int error = 0;
  for (const addrinfo* address = addresses->get(); address != nullptr; address = address->ai_next) {
    const int descriptor = tcp_socket(*address);
    if (descriptor >= 0 &&
        (connect(descriptor, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS)) {
      return descriptor;
    }
    error = errno;
    if (descriptor >= 0) close(descriptor);
  }
  return Failure{fmt::format("{} {}", to_string(at), peer_fault(error))};
}

int accept_from(int listener) {
  return accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

bool is_among_the_last(int descriptor, int spare) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  const auto all = static_cast<std::int64_t>(limit.rlim_cur);
  return descriptor >= all - std::min<std::int64_t>(spare, all / 4);
}

bool few_descriptors_left(int spare) {
  const int next = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (next < 0) return true;
  const bool few = is_among_the_last(next, spare);
  close(next);
  return few;
}

std::string no_descriptors_left() {
  return "has too many files open; raise its limit (ulimit -n, or LimitNOFILE= of its service), or use "
         "fewer compute nodes or workers";
}

std::uint16_t local_port(int descriptor) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return port_of(address);
}

std::string peer_name(int descriptor) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  std::array<char, NI_MAXHOST> host{};
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(descriptor, any, &bytes) != 0 || port_of(address) == 0 ||
      getnameinfo(any, bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "an unknown peer";
  }
  return to_string({host.data(), port_of(address)});
}

Result<std::string, std::string> local_host_towards(const HostPort& at) {
  const Result<Addresses, std::string> addresses = resolve(at);
  if (!addresses) return Failure{addresses.error()};
  const addrinfo& first = **addresses;
  // A datagram socket is connected without a word to anybody.
  const int descriptor = socket(first.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  std::array<char, NI_MAXHOST> host{};
  const bool known = connect(descriptor, first.ai_addr, first.ai_addrlen) == 0 &&
                     getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&local), length, host.data(), host.size(),
                                 nullptr, 0, NI_NUMERICHOST) == 0;
  const int error = errno;
  close(descriptor);
  if (!known)
    return Failure{
        fmt::format("{}: there is no way to it from here: {}", to_string(at), std::strerror(error))};
  return std::string{host.data()};
}

std::string peer_fault(int error) {
  switch (error) {
    case ECONNREFUSED:
      return "refused the connection; is a DecLock node running there?";
    case ECONNRESET:
    case EPIPE:
      return "closed the connection";
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return fmt::format("cannot be reached: {}; check the host, the network and its firewalls",
                         std::strerror(error));
    default:
      return fmt::format("cannot be talked to: {}", std::strerror(error));
  }
}

}  // namespace declock::wire
