// Whether systemd's logind removes the files of an ordinary user in /dev/shm when the user logs out (RemoveIPC=).
#pragma once

#include <filesystem>
#include <string>

namespace declock::looks {

// As far as the files under `root` say. False as well where systemd does not run.
bool removes_ipc(const std::filesystem::path& root, const std::string& user, unsigned uid);

}  // namespace declock::looks
