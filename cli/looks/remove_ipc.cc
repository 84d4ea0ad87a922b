#include "looks/remove_ipc.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

namespace declock::looks {
namespace {

namespace fs = std::filesystem;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The last setting in a file counts; nothing after the sign means the default.
void read(const fs::path& file, bool& removes) {
  static const std::set<std::string_view> no{"no", "n", "false", "f", "0", "off"};
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    const std::string_view text = trimmed(line);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || trimmed(text.substr(0, equals)) != "RemoveIPC") continue;
    std::string value{trimmed(text.substr(equals + 1))};
    std::transform(value.begin(), value.end(), value.begin(),
                   [](char c) { return static_cast<char>(std::tolower(c)); });
    removes = !no.contains(value);
  }
}

}  // namespace

bool removes_ipc(const fs::path& root, const std::string& user, unsigned uid) {
  constexpr unsigned kSystemUsersMax = 999;
  std::error_code none;
  if (uid <= kSystemUsersMax) return false;
  if (!fs::exists(root / "run/systemd/system", none)) return false;
  if (fs::exists(root / "var/lib/systemd/linger" / user, none)) return false;
  // The first of the main files, and then all others by their names; of one name, the last of these folders has it.
  constexpr const char* kFolders[] = {"usr/lib/systemd", "usr/local/lib/systemd", "run/systemd",
                                      "etc/systemd"};
  fs::path main;
  std::map<std::string, fs::path> others;
  for (const char* folder : kFolders) {
    if (fs::exists(root / folder / "logind.conf", none)) main = root / folder / "logind.conf";
    for (const fs::directory_entry& entry :
         fs::directory_iterator{root / folder / "logind.conf.d", none}) {
      if (entry.path().extension() == ".conf") others[entry.path().filename()] = entry.path();
    }
  }
  bool removes = true;
  read(main, removes);
  for (const auto& [name, path] : others) read(path, removes);
  return removes;
}

}  // namespace declock::looks
