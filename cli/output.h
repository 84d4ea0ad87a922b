// Where results go: a file that is replaced as a whole or not at all, a line that shows progress, and a
// flag that Ctrl-C sets.
#pragma once

#include <atomic>
#include <string>

namespace declock::cli {

// The destination of `--json`, or another option. Opened before the work, so that a path that cannot be written is
// reported before minutes are spent; a file that was there stays until the new result is complete on
// disk.
class ResultFile {
 public:
  // Empty: no result is wanted. "-": standard output. Throws BadInput.
  explicit ResultFile(const std::string& path, const char* option = "--json");
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();

  bool is_standard_output() const { return path_ == "-"; }
  // Throws CannotRun if not all of it could be written.
  void write(const std::string& text);

 private:
  std::string path_;
  std::string temporary_;  // empty if the destination is no ordinary file
  int descriptor_ = -1;
};

// One line on standard error that is rewritten in place; silent unless that is a terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  void show(const std::string& text);

 private:
  bool visible_;
};

// Opens those of 0, 1 and 2 that are closed, so that no result file gets their number.
void open_standard_descriptors();

// Throws CannotRun if not all of it could be written.
void flush_standard_output();

// Set by Ctrl-C or SIGTERM from now on; the second time it ends the program at once.
const std::atomic<bool>& interrupted();

}  // namespace declock::cli
