#include "member_shm/slot_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "shm/cluster.h"

namespace declock::member {
namespace {

// The descriptors that a forked child has to close. For the whole process, as fork() is.
struct Inherited {
  std::mutex mutex;
  std::vector<int> descriptors;

  Inherited() {
    pthread_atfork([] { inherited().mutex.lock(); }, [] { inherited().mutex.unlock(); },
                   [] {
                     // The lock itself stays with the parent, who still has the description open.
                     for (const int descriptor : inherited().descriptors) close(descriptor);
                     inherited().descriptors.clear();
                     inherited().mutex.unlock();
                   });
  }
  static Inherited& inherited() {
    static Inherited all;
    return all;
  }
};

struct flock of_slot(short type, Slot slot) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = shm::lock_byte(slot);
  lock.l_len = 1;
  return lock;
}

}  // namespace

SlotLock::SlotLock(int descriptor) : descriptor_(descriptor) {
  Inherited& all = Inherited::inherited();
  const std::lock_guard guard{all.mutex};
  all.descriptors.push_back(descriptor);
}

SlotLock::SlotLock(SlotLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

SlotLock& SlotLock::operator=(SlotLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SlotLock::~SlotLock() {
  if (descriptor_ < 0) return;
  Inherited& all = Inherited::inherited();
  const std::lock_guard guard{all.mutex};
  // In a forked child it is closed already, and the number may be somebody else's.
  if (std::erase(all.descriptors, descriptor_) > 0) close(descriptor_);
}

Result<SlotLock, std::string> SlotLock::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return Failure{fmt::format("{}: {}", path, std::strerror(errno))};
  return SlotLock{descriptor};
}

bool SlotLock::try_take(Slot slot) {
  struct flock lock = of_slot(F_WRLCK, slot);
  return fcntl(descriptor_, F_OFD_SETLK, &lock) == 0;
}

void SlotLock::give_back(Slot slot) {
  struct flock lock = of_slot(F_UNLCK, slot);
  (void)fcntl(descriptor_, F_OFD_SETLK, &lock);
}

bool SlotLock::is_taken(Slot slot) const {
  struct flock lock = of_slot(F_WRLCK, slot);
  CHECK(fcntl(descriptor_, F_OFD_GETLK, &lock) == 0);
  return lock.l_type != F_UNLCK;
}

}  // namespace declock::member
