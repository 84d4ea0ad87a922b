#include "explore/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace declock::explore {
namespace {

struct Letter {
  char letter;
  Operation operation;
};
constexpr std::array<Letter, 6> kLetters{{
    {'r', {Mode::shared, Operation::Patience::waits}},
    {'w', {Mode::exclusive, Operation::Patience::waits}},
    {'R', {Mode::shared, Operation::Patience::may_give_up}},
    {'W', {Mode::exclusive, Operation::Patience::may_give_up}},
    {'s', {Mode::shared, Operation::Patience::tries}},
    {'e', {Mode::exclusive, Operation::Patience::tries}},
}};

std::string letters(const Operations& operations) {
  std::string text;
  for (const Operation& operation : operations) {
    for (const auto& [letter, meant] : kLetters) {
      if (meant.mode == operation.mode && meant.patience == operation.patience) text += letter;
    }
  }
  return text;
}

std::string join(const std::vector<std::string>& parts, char separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : std::string{separator}) + part;
  return text;
}

std::vector<std::string> in_letters(const Program& program) {
  std::vector<std::string> nodes;
  for (const Node& node : program) {
    std::vector<std::string> clients;
    for (const Operations& client : node) clients.push_back(letters(client));
    nodes.push_back(join(clients, '+'));
  }
  return nodes;
}

// The same for programs that differ only in the names of nodes. The clients of a node are not alike: they call for their
// first lock in this order.
std::string canonical(const Program& program) {
  std::vector<std::string> nodes = in_letters(program);
  std::sort(nodes.begin(), nodes.end());
  return join(nodes, ';');
}

}  // namespace

std::string to_string(const Program& program) {
  return join(in_letters(program), ';');
}

std::size_t client_count(const Program& program) {
  std::size_t count = 0;
  for (const Node& node : program) count += node.size();
  return count;
}

bool is_patient(const Program& program) {
  for (const Node& node : program) {
    for (const Operations& operations : node) {
      for (const Operation& operation : operations) {
        if (operation.patience != Operation::Patience::waits) return false;
      }
    }
  }
  return true;
}

Result<std::vector<Program>, std::string> parse_programs(std::string_view text) {
  const auto wrong = [&](std::string_view what) {
    return Failure{
        fmt::format("program '{}': {}; write a client's operations as letters r (shared), w "
                    "(exclusive), x (either), R and W (may give up), s and e (try) and put ';' "
                    "between clients, as in \"w;r;rrrw\"",
                    text, what)};
  };
  struct Place {
    std::size_t node, client, operation;
  };
  Program program{Node{Operations{}}};
  std::vector<Place> either;
  std::size_t operations = 0;
  for (const char c : text) {
    Node& node = program.back();
    if (c == ';' || c == '+') {
      if (node.back().empty()) return wrong("a client has no operation");
      c == ';' ? program.push_back(Node{Operations{}}) : node.push_back({});
      continue;
    }
    const auto* known =
        std::find_if(kLetters.begin(), kLetters.end(), [c](const Letter& l) { return l.letter == c; });
    if (c == 'x') {
      either.push_back({program.size() - 1, node.size() - 1, node.back().size()});
      known = kLetters.begin();
    }
    if (known == kLetters.end()) return wrong(fmt::format("'{}' is not a letter of it", c));
    node.back().push_back(known->operation);
    operations += 1;
  }
  if (program.back().back().empty()) return wrong("a client has no operation");
  if (client_count(program) > kClientsMax)
    return wrong(fmt::format("more than {} clients", kClientsMax));
  if (operations > kOperationsMax) return wrong(fmt::format("more than {} operations", kOperationsMax));
  if (either.size() > 12) return wrong("more than 12 x");

  std::vector<Program> programs;
  std::set<std::string> known;
  for (std::uint32_t bits = 0; bits < 1u << either.size(); ++bits) {
    for (std::size_t i = 0; i < either.size(); ++i) {
      const auto [node, client, operation] = either[i];
      program[node][client][operation].mode = bits >> i & 1 ? Mode::exclusive : Mode::shared;
    }
    if (known.insert(canonical(program)).second) programs.push_back(program);
  }
  return programs;
}

}  // namespace declock::explore
