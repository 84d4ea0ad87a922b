#include "member_zk/zk_url.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "wire/socket.h"

namespace declock::member {

Result<ZkAddress, std::string> parse_zk_url(std::string_view url) {
  constexpr std::string_view kScheme = "zk://";
  const auto refused = [&](std::string_view why) {
    return Failure{fmt::format(
        "'{}': {}; write zk://HOST:PORT,HOST:PORT/NAME, as in zk://zoo1:2181,zoo2:2181/test", url,
        why)};
  };
  if (!url.starts_with(kScheme)) return refused("does not begin with zk://");
  std::string_view servers = url.substr(kScheme.size());
  ZkAddress at;
  if (const std::size_t slash = servers.find('/'); slash != std::string_view::npos) {
    const std::string_view name = servers.substr(slash + 1);
    if (!name.empty()) at.name = name;
    servers = servers.substr(0, slash);
  }
  const bool is_named = at.name != "." && at.name != ".." && at.name.size() <= 64 &&
                        std::all_of(at.name.begin(), at.name.end(), [](unsigned char c) {
                          return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                        });
  if (!is_named) return refused("the name of a cluster has up to 64 letters, digits and -_.");
  for (std::size_t from = 0; from <= servers.size();) {
    const std::size_t comma = std::min(servers.find(',', from), servers.size());
    const auto server = wire::parse_host_port(servers.substr(from, comma - from));
    if (!server) return Failure{fmt::format("'{}': {}", url, server.error())};
    if (server->port == 0) return refused("port 0 is no server's");
    // As the library reads it: without brackets, the last colon is before the port.
    at.servers += fmt::format("{}{}:{}", at.servers.empty() ? "" : ",", server->host, server->port);
    from = comma + 1;
  }
  return at;
}

}  // namespace declock::member
