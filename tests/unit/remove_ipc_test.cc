// What `declock doctor` makes of logind's configuration.
#include "looks/remove_ipc.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace declock::looks {
namespace {

namespace fs = std::filesystem;

class RemoveIpc : public testing::Test {
 protected:
  RemoveIpc() {
    std::string pattern = fs::temp_directory_path() / "declock-test-XXXXXX";
    root_ = mkdtemp(pattern.data());
    fs::create_directories(root_ / "run/systemd/system");
  }
  ~RemoveIpc() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream{root_ / file} << text;
  }
  bool removes(unsigned uid = 1000) const { return removes_ipc(root_, "ada", uid); }

  fs::path root_;
};

TEST_F(RemoveIpc, ItIsTheDefaultForOrdinaryUsersWhereSystemdRuns) {
  EXPECT_TRUE(removes());
  EXPECT_FALSE(removes(0));
  EXPECT_FALSE(removes(999));
  write("etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n");
  EXPECT_TRUE(removes());
  fs::remove_all(root_ / "run");
  EXPECT_FALSE(removes());
}

TEST_F(RemoveIpc, WhoLingersIsSpared) {
  write("var/lib/systemd/linger/ada", "");
  EXPECT_FALSE(removes());
}

TEST_F(RemoveIpc, TheLastSettingCounts) {
  write("usr/lib/systemd/logind.conf", "[Login]\nRemoveIPC=yes\n");
  write("etc/systemd/logind.conf", "[Login]\n  RemoveIPC = no \n");
  EXPECT_FALSE(removes());
  write("usr/lib/systemd/logind.conf.d/50-vendor.conf", "[Login]\nRemoveIPC=yes\n");
  EXPECT_TRUE(removes());
  write("etc/systemd/logind.conf.d/50-vendor.conf", "[Login]\n");
  EXPECT_FALSE(removes()) << "of one name, that in /etc has it";
  write("run/systemd/logind.conf.d/90-more.conf", "[Login]\nRemoveIPC=\n");
  EXPECT_TRUE(removes()) << "the default again";
  write("run/systemd/logind.conf.d/95-more.conf", "[Login]\nRemoveIPC=Off\n");
  EXPECT_FALSE(removes());
  write("run/systemd/logind.conf.d/99-more.conf.bak", "[Login]\nRemoveIPC=yes\n");
  EXPECT_FALSE(removes());
}

}  // namespace
}  // namespace declock::looks
