// The networks by their names: tcp, and verbs where it was built.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "fabric/kind.h"
#include "net/transport.h"

namespace declock::net {

struct NetworkOptions {
  Fabric network = Fabric::tcp;  // or verbs
  // verbs; chosen by itself where nothing is said
  std::string device{};
  int port = 0;
  int gid_index = -1;
  int mtu = 0;
};

// Loads what this network needs, which otherwise its first use does: for a process that forks others, each of which would.
void load(const NetworkOptions& options);

// `host`: the address of this machine to be reached at. An error says what is missing.
Result<std::unique_ptr<Transport>, std::string> open_transport(const NetworkOptions& options,
                                                               const std::string& host);
Result<std::unique_ptr<Exposure>, std::string> open_exposure(const NetworkOptions& options,
                                                             const std::string& host,
                                                             std::span<std::byte> memory);

}  // namespace declock::net
