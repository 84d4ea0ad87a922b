// A descriptor of the library. A program may close numbers that are not its own (close_range(), a stray close()), and open
// other files under them: whoever relies on a descriptor asks whether it still is what it was.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <utility>

namespace declock {

class Descriptor {
 public:
  Descriptor() = default;
  // `number`: open, or negative.
  explicit Descriptor(int number);
  Descriptor(Descriptor&& other) noexcept
      : number_(std::exchange(other.number_, -1)), serial_(other.serial_), file_(other.file_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    std::swap(serial_, other.serial_);
    std::swap(file_, other.file_);
    return *this;
  }
  // What is somebody else's by now stays open.
  ~Descriptor();

  int number() const { return number_; }
  // Does it refer to what it was made for? The same file may be open under the same number again, through another of these:
  // then it is not this one's.
  bool is_ours() const;
  // It was closed by somebody else: the number is not this one's to close, whatever it refers to.
  void forget() { number_ = -1; }

 private:
  int number_ = -1;
  std::uint32_t serial_ = 0;
  struct stat file_ {};
};

}  // namespace declock
