#include "networks/networks.h"

#include <fmt/format.h>

#if DECLOCK_TCP
#include "ofi/exposure.h"
#include "ofi/library.h"
#include "ofi/transport.h"
#endif
#if DECLOCK_VERBS
#include "verbs/exposure.h"
#include "verbs/transport.h"
#endif

namespace declock::net {
namespace {

// The same value, as what it is in general.
template <class General, class Special>
Result<std::unique_ptr<General>, std::string> as(Result<std::unique_ptr<Special>, std::string> opened) {
  if (!opened) return Failure{opened.error()};
  return std::unique_ptr<General>{std::move(*opened)};
}

[[maybe_unused]] Failure<std::string> left_out(std::string_view network, std::string_view package) {
  return {fmt::format("built without {}; install {} and build it again", network, package)};
}

#if DECLOCK_VERBS
verbs::VerbsConfig verbs_config(const NetworkOptions& options) {
  return {options.device, options.port, options.gid_index, options.mtu};
}
#endif

}  // namespace

void load([[maybe_unused]] const NetworkOptions& options) {
#if DECLOCK_TCP
  if (options.network == Fabric::tcp)
    (void)ofi::load_library();  // whoever uses it tells what is missing
#endif
}

Result<std::unique_ptr<Transport>, std::string> open_transport(
    const NetworkOptions& options, [[maybe_unused]] const std::string& host) {
  if (options.network == Fabric::tcp) {
#if DECLOCK_TCP
    return as<Transport>(ofi::OfiTransport::open(host));
#else
    return left_out("tcp", "libfabric-dev");
#endif
  }
#if DECLOCK_VERBS
  return as<Transport>(verbs::VerbsTransport::open(verbs_config(options)));
#else
  return left_out("verbs", "libibverbs-dev");
#endif
}

Result<std::unique_ptr<Exposure>, std::string> open_exposure(
    const NetworkOptions& options, [[maybe_unused]] const std::string& host,
    [[maybe_unused]] std::span<std::byte> memory) {
  if (options.network == Fabric::tcp) {
#if DECLOCK_TCP
    return as<Exposure>(ofi::OfiExposure::open_on(host, memory));
#else
    return left_out("tcp", "libfabric-dev");
#endif
  }
#if DECLOCK_VERBS
  return as<Exposure>(verbs::VerbsExposure::expose(verbs_config(options), memory));
#else
  return left_out("verbs", "libibverbs-dev");
#endif
}

}  // namespace declock::net
