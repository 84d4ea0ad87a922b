#include "explore/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace declock::explore {
namespace {

std::string letters(const std::vector<Mode>& operations) {
  std::string text;
  for (const Mode mode : operations) text += mode == Mode::exclusive ? 'w' : 'r';
  return text;
}

}  // namespace

std::string to_string(const Program& program) {
  std::string text;
  for (const auto& operations : program) text += (text.empty() ? "" : ";") + letters(operations);
  return text;
}

Result<std::vector<Program>, std::string> parse_programs(std::string_view text) {
  const auto wrong = [&](std::string_view what) {
    return Failure{fmt::format(
        "program '{}': {}; write a client's operations as letters r (shared), w (exclusive) or x "
        "(either) and put ';' between clients, as in \"w;r;rrrw\"",
        text, what)};
  };
  Program program(1);
  std::vector<std::pair<std::size_t, std::size_t>> either;
  for (const char c : text) {
    if (c == ';') {
      if (program.back().empty()) return wrong("a client has no operation");
      program.emplace_back();
    } else if (c == 'r' || c == 'w' || c == 'x') {
      if (c == 'x') either.emplace_back(program.size() - 1, program.back().size());
      program.back().push_back(c == 'w' ? Mode::exclusive : Mode::shared);
    } else {
      return wrong(fmt::format("'{}' is not a letter of it", c));
    }
  }
  if (program.back().empty()) return wrong("a client has no operation");
  if (program.size() > kClientsMax) return wrong(fmt::format("more than {} clients", kClientsMax));
  std::size_t operations = 0;
  for (const auto& client : program) operations += client.size();
  if (operations > kOperationsMax) {
    return wrong(fmt::format("more than {} operations", kOperationsMax));
  }
  if (either.size() > 12) return wrong("more than 12 x");

  std::vector<Program> programs;
  std::set<std::vector<std::string>> known;  // sorted by client: renaming makes no difference
  for (std::uint32_t bits = 0; bits < 1u << either.size(); ++bits) {
    for (std::size_t i = 0; i < either.size(); ++i) {
      program[either[i].first][either[i].second] = bits >> i & 1 ? Mode::exclusive : Mode::shared;
    }
    std::vector<std::string> key;
    for (const auto& client : program) key.push_back(letters(client));
    std::sort(key.begin(), key.end());
    if (known.insert(key).second) programs.push_back(program);
  }
  return programs;
}

}  // namespace declock::explore
