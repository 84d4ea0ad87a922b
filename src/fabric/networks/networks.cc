#include "networks/networks.h"

#include "ofi/exposure.h"
#include "ofi/transport.h"
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

#if DECLOCK_VERBS
verbs::VerbsConfig verbs_config(const NetworkOptions& options) {
  return {options.device, options.port, options.gid_index, options.mtu};
}
#else
constexpr const char* kNoVerbs =
    "this program was built without verbs; install libibverbs-dev and build it again, or use --fabric "
    "tcp";
#endif

}  // namespace

Result<std::unique_ptr<Transport>, std::string> open_transport(const NetworkOptions& options,
                                                               const std::string& host) {
  if (options.network == Network::tcp) return as<Transport>(ofi::OfiTransport::open(host));
#if DECLOCK_VERBS
  return as<Transport>(verbs::VerbsTransport::open(verbs_config(options)));
#else
  return Failure{std::string{kNoVerbs}};
#endif
}

Result<std::unique_ptr<Exposure>, std::string> open_exposure(const NetworkOptions& options,
                                                             const std::string& host,
                                                             std::span<std::byte> memory) {
  if (options.network == Network::tcp) return as<Exposure>(ofi::OfiExposure::open_on(host, memory));
#if DECLOCK_VERBS
  return as<Exposure>(verbs::VerbsExposure::expose(verbs_config(options), memory));
#else
  return Failure{std::string{kNoVerbs}};
#endif
}

}  // namespace declock::net
