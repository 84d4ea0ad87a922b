#include "member_shm/slot_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
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
  struct File {
    int descriptor;
    struct stat file;  // a program may have opened another one under the number
  };
  std::mutex mutex;
  std::vector<File> files;

  Inherited() {
    pthread_atfork([] { inherited().mutex.lock(); }, [] { inherited().mutex.unlock(); },
                   [] {
                     // The lock itself stays with the parent, who still has the description open.
                     for (const File& of_parent : inherited().files) close_if_same(of_parent);
                     inherited().files.clear();
                     inherited().mutex.unlock();
                   });
  }
  // One of this number: if somebody else has closed it, another lock may have the same.
  bool erase(int descriptor) {
    const auto found = std::find_if(files.begin(), files.end(),
                                    [&](const File& file) { return file.descriptor == descriptor; });
    if (found == files.end()) return false;
    files.erase(found);
    return true;
  }
  static void close_if_same(const File& of_parent) {
    struct stat now {};
    if (fstat(of_parent.descriptor, &now) == 0 && now.st_ino == of_parent.file.st_ino &&
        now.st_dev == of_parent.file.st_dev)
      close(of_parent.descriptor);
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
  struct stat file {};
  if (fstat(descriptor.number(), &file) == 0) all.files.push_back({descriptor.number(), file});
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
