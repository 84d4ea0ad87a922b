// Breaks TCP connections of running processes, as a firewall does that has forgotten them: what is under way is lost, and
// both ends find out.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace declock::process {

// Who may break them.
inline bool may_break_connections() {
  return geteuid() == 0 && std::system("command -v ss >/dev/null") == 0;
}

// One end of an established connection: ADDRESS:PORT here and there, and whose it is.
struct ConnectionEnd {
  std::string here;
  std::string there;
  pid_t process;
};
inline std::vector<ConnectionEnd> connection_ends() {
  std::FILE* list = popen("ss -tnpH state established", "r");
  CHECK(list != nullptr);
  std::string text;
  char part[4096];
  for (std::size_t got = 0; (got = std::fread(part, 1, sizeof part, list)) > 0;) text.append(part, got);
  pclose(list);
  std::vector<ConnectionEnd> ends;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words{line};
    std::string received;
    std::string sent;
    ConnectionEnd end{};
    if (!(words >> received >> sent >> end.here >> end.there)) continue;
    const std::size_t number = line.find("pid=");
    if (number != std::string::npos)
      end.process = static_cast<pid_t>(std::stol(line.substr(number + 4)));
    ends.push_back(std::move(end));
  }
  return ends;
}

// Those for which which(one process, the other) holds, in one of both orders. How many there were.
template <class Which>
std::size_t break_connections(Which which) {
  const std::vector<ConnectionEnd> ends = connection_ends();
  std::map<std::pair<std::string, std::string>, pid_t> owners;
  for (const ConnectionEnd& end : ends) owners[{end.here, end.there}] = end.process;
  std::string filter;
  std::size_t count = 0;
  for (const ConnectionEnd& end : ends) {
    const auto other = owners.find({end.there, end.here});
    if (other == owners.end() || !which(end.process, other->second)) continue;
    filter += fmt::format("{}( src {} and dst {} )", count == 0 ? "" : " or ", end.here, end.there);
    count += 1;
  }
  if (count == 0) return 0;
  const std::string command = fmt::format("ss -K '{}' >/dev/null 2>&1", filter);
  return std::system(command.c_str()) == 0 ? count : 0;
}

}  // namespace declock::process
