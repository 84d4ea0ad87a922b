#include "member_zk/coordinator_option.h"

#include "member_zk/zk_compute_link.h"

namespace declock::member {

Result<void, std::string> set_coordinator(const std::string& coordinator, NetNodeConfig& config) {
  std::string nearest = coordinator;
  if (is_zookeeper(coordinator)) {
    const Result<ZkAddress, std::string> at = parse_zk_url(coordinator);
    if (!at) return Failure{at.error()};
    // Others reach this machine at the address from which it reaches the first server.
    nearest = at->servers.substr(0, at->servers.find(','));
    config.other_coordinator = [at = *at, secret = config.secret](wire::Hub& hub,
                                                                  ComputeLink::Events& events) {
      return std::make_unique<ZkComputeLink>(hub, events, at, secret);
    };
  }
  const Result<wire::HostPort, std::string> address = wire::parse_host_port(nearest);
  if (!address) return Failure{address.error()};
  config.coordinator = *address;
  return {};
}

}  // namespace declock::member
