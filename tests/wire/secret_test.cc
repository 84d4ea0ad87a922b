// Secret files: what is accepted, and what is said of all others.
#include "wire/secret.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace declock::wire {
namespace {

class SecretTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "declock_secret_XXXXXX";
    directory_ = mkdtemp(name.data());
    path_ = directory_ + "/secret";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream{path_, std::ios::binary} << text;
    chmod(path_.c_str(), mode);
  }
  std::string contents() {
    std::ifstream file{path_};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  // What is said, without the path that every line begins with.
  std::string error_of_reading() {
    const auto secret = read_secret(path_);
    if (secret) return "";
    EXPECT_TRUE(secret.error().starts_with(path_ + ": ")) << secret.error();
    EXPECT_EQ(secret.error().find('\n'), std::string::npos);
    return secret.error().substr(path_.size() + 2);
  }

  std::string directory_;
  std::string path_;
};

TEST_F(SecretTest, IsReadAsItWasCreated) {
  ASSERT_TRUE(create_secret(path_));
  struct stat file {};
  ASSERT_EQ(stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  const std::string text = contents();
  ASSERT_EQ(text.size(), 65u);
  const auto secret = read_secret(path_);
  ASSERT_TRUE(secret) << secret.error();
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(secret->key[i], std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  std::filesystem::remove(path_);
  ASSERT_TRUE(create_secret(path_));
  EXPECT_NE(contents(), text) << "random";
}

TEST_F(SecretTest, MayHaveNoNewlineAndCapitals) {
  write(std::string(62, '0') + "Ff");
  const auto secret = read_secret(path_);
  ASSERT_TRUE(secret) << secret.error();
  EXPECT_EQ(secret->key[31], 0xff);
  write(std::string(64, '0'), 0400);
  EXPECT_EQ(error_of_reading(), "");
}

TEST_F(SecretTest, IsNeverOverwritten) {
  write("precious");
  const auto created = create_secret(path_);
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error(), path_ +
                                 ": exists already, and a secret is never overwritten; choose another "
                                 "name, or move it away");
  EXPECT_EQ(contents(), "precious");
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(directory_ + "/elsewhere", path_);
  EXPECT_FALSE(create_secret(path_)) << "through a link";
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/elsewhere"));
}

TEST_F(SecretTest, IsRemovedAgainIfItCannotBeWritten) {
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit little{10, old.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &little);
  const auto created = create_secret(path_);
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(created);
  EXPECT_TRUE(created.error().starts_with(path_ + ": cannot be written: ")) << created.error();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SecretTest, CannotBeMadeWhereThereIsNoDirectory) {
  const auto created = create_secret(path_ + "/deeper");
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error(),
            path_ + "/deeper: cannot be made: No such file or directory; choose another name");
}

TEST_F(SecretTest, ThatIsMissingOrNoFileIsRefused) {
  EXPECT_EQ(error_of_reading(), "there is no such file; `declock secret " + path_ + "` makes one");
  const std::string no_file =
      "is no ordinary file, and a secret is one; choose another name: `declock secret FILE` makes one";
  std::filesystem::create_directory(path_);
  EXPECT_EQ(error_of_reading(), no_file);
  std::filesystem::remove(path_);
  mkfifo(path_.c_str(), 0600);
  EXPECT_EQ(error_of_reading(), no_file);
  std::filesystem::remove(path_);
  write(std::string(64, 'a'));
  path_ += "/deeper";
  EXPECT_EQ(
      error_of_reading(),
      "cannot be opened: Not a directory; a secret is a file that the user that runs this can read");
}

TEST_F(SecretTest, ThatOthersCanReadOrOwnIsRefused) {
  for (const mode_t mode : {0644u, 0640u, 0604u, 0620u, 0601u}) {
    write(std::string(64, 'a'), mode);
    const std::string error = error_of_reading();
    EXPECT_TRUE(error.starts_with("is open to other users (mode 6")) << error;
    EXPECT_NE(error.find("only mode 600 or 400 is accepted: `chmod 600 " + path_ + "`"),
              std::string::npos);
  }
  write(std::string(64, 'a'));
  if (chown(path_.c_str(), 12345, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give files away";
  const std::string user = std::to_string(geteuid());
  EXPECT_EQ(error_of_reading(), "belongs to user 12345; a secret belongs to the user that runs this (" +
                                    user + ") or to root: `chown " + user + ' ' + path_ + '`');
}

TEST_F(SecretTest, ThatIsNot64HexDigitsIsRefusedAndNotShown) {
  const std::string digits(64, 'a');
  for (const std::string& text :
       {std::string{}, std::string{"\n"}, digits.substr(1), digits + 'a', digits + "\n\n",
        digits + "\r\n", ' ' + digits.substr(1), digits.substr(1) + 'g',
        digits.substr(2) + std::string(2, '\0'), digits + std::string(10'000, 'a')}) {
    write(text);
    EXPECT_EQ(
        error_of_reading(),
        "has no secret in it; exactly 64 hex digits and a newline are accepted: move it away, then "
        "`declock secret " +
            path_ + "` makes one");
  }
}

}  // namespace
}  // namespace declock::wire
