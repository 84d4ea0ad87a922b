#include "base/descriptor.h"

#include <unistd.h>

#include <array>
#include <atomic>

namespace declock {
namespace {

// Which of all descriptors of this process was the last with a number; larger numbers are not told apart.
std::array<std::atomic<std::uint32_t>, 1 << 16> last_with_number;
std::atomic<std::uint32_t> made{0};

}  // namespace

Descriptor::Descriptor(int number) : number_(number), serial_(++made) {
  if (number_ >= 0 && fstat(number_, &file_) != 0) number_ = -1;
  if (number_ < 0) return;
  const auto index = static_cast<std::size_t>(number_);
  if (index < last_with_number.size()) last_with_number[index].store(serial_);
}

Descriptor::~Descriptor() {
  if (is_ours()) close(number_);
}

bool Descriptor::is_ours() const {
  if (number_ < 0) return false;
  const auto index = static_cast<std::size_t>(number_);
  if (index < last_with_number.size() && last_with_number[index].load() != serial_) return false;
  struct stat now {};
  return fstat(number_, &now) == 0 && now.st_ino == file_.st_ino && now.st_dev == file_.st_dev;
}

}  // namespace declock
