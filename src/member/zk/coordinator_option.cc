#include "member_zk/coordinator_option.h"

#if DECLOCK_ZOOKEEPER
#include "member_zk/zk_compute_link.h"
#include "member_zk/zk_memory_link.h"
#endif

namespace declock::member {
namespace {

#if DECLOCK_ZOOKEEPER
// The first server: others reach this machine at the address from which it reaches that.
Result<std::string, std::string> set_ensemble(const std::string& coordinator, NetNodeConfig& config) {
  const Result<ZkAddress, std::string> at = parse_zk_url(coordinator);
  if (!at) return Failure{at.error()};
  config.other_coordinator = [at = *at, secret = config.secret](wire::Hub& hub,
                                                                ComputeLink::Events& events) {
    return std::make_unique<ZkComputeLink>(hub, events, at, secret);
  };
  return at->servers.substr(0, at->servers.find(','));
}
#else
Failure<std::string> left_out(const std::string& coordinator) {
  return {coordinator + ": built without ZooKeeper; install libzookeeper-mt-dev and build it again"};
}
Result<std::string, std::string> set_ensemble(const std::string& coordinator, NetNodeConfig&) {
  return left_out(coordinator);
}
#endif

}  // namespace

Result<void, std::string> set_coordinator(const std::string& coordinator, NetNodeConfig& config) {
  std::string nearest = coordinator;
  if (is_zookeeper(coordinator)) {
    const Result<std::string, std::string> server = set_ensemble(coordinator, config);
    if (!server) return Failure{server.error()};
    nearest = *server;
  }
  const Result<wire::HostPort, std::string> address = wire::parse_host_port(nearest);
  if (!address) return Failure{address.error()};
  config.coordinator = *address;
  return {};
}

#if DECLOCK_ZOOKEEPER
Result<NewMemoryLink, std::string> zookeeper_link(const std::string& coordinator,
                                                  const wire::Secret& secret, const ClusterShape& shape,
                                                  std::function<void(const std::string&)> log) {
  const Result<ZkAddress, std::string> at = parse_zk_url(coordinator);
  if (!at) return Failure{at.error()};
  return NewMemoryLink{
      [at = *at, secret, shape, log = std::move(log)](wire::Hub& hub, MemoryLink::Events& events) {
        return std::make_unique<ZkMemoryLink>(hub, events, at, secret, shape, log);
      }};
}
#else
Result<NewMemoryLink, std::string> zookeeper_link(const std::string& coordinator, const wire::Secret&,
                                                  const ClusterShape&,
                                                  std::function<void(const std::string&)>) {
  return left_out(coordinator);
}
#endif

}  // namespace declock::member
