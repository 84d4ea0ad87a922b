// The port of a verbs device that a transport or an exposure works on: which ones there are, and which to take.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "declock/result.h"
#include "verbs/handles.h"

namespace declock::verbs {

struct VerbsConfig {
  std::string device{};           // empty: the first one with an active port
  int port = 0;                   // 0: its first active port
  int gid_index = -1;             // -1: the best, which is RoCE v2 with an IPv4 address
  int mtu = 0;                    // in bytes; 0: the port's
  std::optional<bool> repeats{};  // what is not acknowledged; nothing: unless it is Soft-RoCE
};

// One port.
struct VerbsDevice {
  std::string name;
  int port = 0;
  std::string state;  // "active", or what else the driver calls it
  std::string gid;    // the best one, as an IP address
};
// All ports of all devices. An error says why there is none, and what to do.
Result<std::vector<VerbsDevice>, std::string> verbs_devices();

// An open one.
struct Device {
  Context context;
  ProtectionDomain domain;
  std::string name;
  std::uint8_t port = 0;
  bool is_ethernet = false;
  std::uint16_t lid = 0;
  ibv_gid gid{};
  std::uint8_t gid_index = 0;
  ibv_mtu mtu = IBV_MTU_256;
  std::uint32_t message_bytes_max = 0;
  bool repeats = true;
  ibv_device_attr limits{};

  static Result<Device, std::string> open(const VerbsConfig& config);

  // REQUIRES: errno says why.
  std::string error(const std::string& what_failed) const;
};

}  // namespace declock::verbs
