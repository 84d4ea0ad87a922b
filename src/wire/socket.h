// TCP sockets by name. Every descriptor that is made here is non-blocking, and closed in a program that is executed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "declock/result.h"

namespace declock::wire {

struct HostPort {
  std::string host;  // a name, or an address without brackets
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};

// "node1:7000", "10.0.0.1:7000", "[fd00::1]:7000"
std::string to_string(const HostPort& at);
Result<HostPort, std::string> parse_host_port(std::string_view text);

// A name is looked up, which may take seconds. Where it has IPv4 and IPv6 addresses those of IPv4 count, so that who
// listens and who connects agree.

// Listens at the first address. Port 0 is any free one: local_port() tells which.
Result<int, std::string> listen_on(const HostPort& at);

// Begins to connect, and does not wait for the end; a Connection reports it. Goes on to the next address where one fails
// at once.
Result<int, std::string> connect_to(const HostPort& at);

// -1 if there is nobody, and on an error that concerns one newcomer only. Any other is in errno: with EMFILE or ENFILE
// the newcomer goes on waiting, so a loop should close something, or sleep, before it polls the listener again.
int accept_from(int listener);

// Numbers are given out from the lowest: with this one open, fewer than `spare` are left to this process, or a quarter of
// all if that is less.
bool is_among_the_last(int descriptor, int spare);
bool few_descriptors_left(int spare);
// For a person, behind who it is: what to do about that.
std::string no_descriptors_left();

// Of a socket that has one.
std::uint16_t local_port(int descriptor);
// "host:port" with the address in digits; "an unknown peer" if it is not connected over TCP.
std::string peer_name(int descriptor);

// The address of this machine from which that one is reached, as far as the routes tell: nothing is sent.
Result<std::string, std::string> local_host_towards(const HostPort& at);

// What a peer does that gives us this errno: "refused the connection; ...", to be put behind its name.
std::string peer_fault(int error);

}  // namespace declock::wire
