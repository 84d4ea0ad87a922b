// Two sessions that talk to each other in memory.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "wire/session.h"

namespace declock::wire {

struct SessionCopies {
  static Session copy(const Session& session) { return session; }
  static std::size_t buffered(const Session& session) { return session.incoming_.size(); }
};

inline Secret secret_of(std::uint8_t seed) {
  Secret secret;
  secret.key.fill(seed);
  return secret;
}

// One side, with what it has said and what it has to complain about.
struct Side {
  explicit Side(Role role, const Secret& secret = secret_of(1), std::uint32_t version = kVersion)
      : session(role, secret, version) {}

  void hear(std::string_view bytes) {
    if (const auto fed = session.feed(bytes); !fed) error = fed.error();
  }
  std::string say() {
    std::string said = std::exchange(session.outgoing(), {});
    recorded += said;
    return said;
  }

  Session session;
  std::string recorded;
  std::string error;
};

struct Pair {
  Side client{Role::client};
  Side server{Role::server};

  // Until both are silent, in pieces of so many bytes.
  void talk(std::size_t piece = 1 << 20) {
    while (!client.session.outgoing().empty() || !server.session.outgoing().empty()) {
      carry(client, server, piece);
      carry(server, client, piece);
    }
  }

 private:
  static void carry(Side& from, Side& to, std::size_t piece) {
    const std::string said = from.say();
    for (std::size_t at = 0; at < said.size(); at += piece) {
      to.hear(std::string_view{said}.substr(at, piece));
    }
  }
};

}  // namespace declock::wire
