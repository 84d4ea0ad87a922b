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
  // One of this number: if somebody else has closed it, another lock may have the same.
  bool erase(int descriptor) {
    const auto found = std::find(descriptors.begin(), descriptors.end(), descriptor);
    if (found == descriptors.end()) return false;
    descriptors.erase(found);
    return true;
  }
  static Inherited& inherited() {
    static Inherited& all = *new Inherited;  // never ended: a cluster may be a static object
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

SlotLock::~SlotLock() {
  if (descriptor_.number() < 0) return;
  Inherited& all = Inherited::inherited();
  const std::lock_guard guard{all.mutex};
  // In a forked child it is closed already, and the number may be somebody else's.
  if (!all.erase(descriptor_.number())) descriptor_.forget();
  descriptor_ = {};
}

Result<SlotLock, std::string> SlotLock::open(const std::string& path) {
  Inherited& all = Inherited::inherited();
  // A fork() beside this waits until its child knows what to close.
  const std::lock_guard guard{all.mutex};
  Descriptor descriptor{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
  if (descriptor.number() < 0) return Failure{fmt::format("{}: {}", path, std::strerror(errno))};
  all.descriptors.push_back(descriptor.number());
  return SlotLock{std::move(descriptor)};
}

bool SlotLock::try_take(Slot slot) {
  struct flock lock = of_slot(F_WRLCK, slot);
  return fcntl(descriptor_.number(), F_OFD_SETLK, &lock) == 0;
}

void SlotLock::give_back(Slot slot) {
  struct flock lock = of_slot(F_UNLCK, slot);
  (void)fcntl(descriptor_.number(), F_OFD_SETLK, &lock);
}

std::optional<bool> SlotLock::is_taken(const Descriptor& file, Slot slot) {
  struct flock lock = of_slot(F_WRLCK, slot);
  const bool asked = fcntl(file.number(), F_OFD_GETLK, &lock) == 0;
  // Looked at last: if it is the file now, it was when it was asked.
  if (!asked || !file.is_ours()) return {};
  return lock.l_type != F_UNLCK;
}

}  // namespace declock::member
