// Runs the declock program as a user would.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace declock {

namespace fs = std::filesystem;

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

class CliTest : public testing::Test {
 protected:
  CliTest() {
    std::string pattern = fs::temp_directory_path() / "declock-cli-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~CliTest() override { fs::remove_all(folder_); }

  Outcome run(const std::string& arguments) {
    const std::string out = folder_ / "out", err = folder_ / "err";
    const std::string command =
        fmt::format("{} {} >{} 2>{} </dev/null", DECLOCK_PROGRAM, arguments, out, err);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(out), slurp(err)};
  }

  void expect_refused(const std::string& arguments, const std::string& hint) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 1) << arguments;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(hint), std::string::npos) << arguments << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "") << arguments;
  }

  static std::string slurp(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder_;
};

}  // namespace declock
