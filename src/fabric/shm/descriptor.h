// A descriptor of the library. A program may close numbers that are not its own (close_range(), a stray close()), and open
// other files under them: whoever relies on a descriptor asks whether it still is what it was.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace declock::shm {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {
    if (number_ >= 0 && fstat(number_, &file_) != 0) number_ = -1;
  }
  Descriptor(Descriptor&& other) noexcept
      : number_(std::exchange(other.number_, -1)), file_(other.file_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    std::swap(file_, other.file_);
    return *this;
  }
  // What is somebody else's by now stays open.
  ~Descriptor() {
    if (is_ours()) close(number_);
  }

  int number() const { return number_; }
  // Does it refer to what it was made for?
  bool is_ours() const {
    struct stat now {};
    return number_ >= 0 && fstat(number_, &now) == 0 && now.st_ino == file_.st_ino &&
           now.st_dev == file_.st_dev;
  }
  // It was closed by somebody else: the number is not this one's to close, whatever it refers to.
  void forget() { number_ = -1; }

 private:
  int number_ = -1;
  struct stat file_ {};
};

}  // namespace declock::shm
