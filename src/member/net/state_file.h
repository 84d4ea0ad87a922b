// What a coordinator must not forget, on disk: replaced as a whole, and there before anybody hears of it.
#pragma once

#include <optional>
#include <string>

#include "member_net/cluster.h"

namespace declock::member {

class StateFile {
 public:
  // In this directory, which is made if it is not there, and which no other process may use meanwhile.
  static Result<StateFile, std::string> open(const std::string& directory);
  StateFile(StateFile&& other) noexcept;
  StateFile& operator=(StateFile&& other) noexcept;
  ~StateFile();

  // Nothing: there is no file yet.
  Result<std::optional<ClusterState>, std::string> load() const;
  // Ends the process if the disk does not take it: what is not on disk must not be told.
  void save(const ClusterState& state) const;
  std::string path() const { return directory_ + "/cluster"; }

 private:
  StateFile(std::string directory, int lock) : directory_(std::move(directory)), lock_(lock) {}

  std::string directory_;
  int lock_ = -1;
};

}  // namespace declock::member
