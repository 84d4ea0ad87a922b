// Where a cluster is kept in ZooKeeper.
#pragma once

#include <string>
#include <string_view>

#include "declock/result.h"

namespace declock::member {

struct ZkAddress {
  std::string servers;           // host:port, with commas between them; no brackets
  std::string name = "declock";  // of the cluster

  std::string path() const { return "/declock/" + name; }
};

// "zk://host:2181,host2:2181/name"; without a name it is "declock". An error is one line.
Result<ZkAddress, std::string> parse_zk_url(std::string_view url);

}  // namespace declock::member
