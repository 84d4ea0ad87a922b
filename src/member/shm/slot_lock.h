// A member slot is held by a lock on one byte of the cluster's file, which the kernel releases when the process ends,
// however it ends. So whether a member lives is not a matter of time-outs: the lock is the truth.
//
// It is a lock of the open file description: nothing else that the process does with the file can lose it. Children
// must not keep it: it is closed on exec, and in a child that is merely forked.
#pragma once

#include <optional>
#include <string>

#include "base/descriptor.h"
#include "declock/result.h"
#include "layout/ids.h"

namespace declock::member {

class SlotLock {
 public:
  SlotLock() = default;
  SlotLock(SlotLock&& other) noexcept = default;
  SlotLock& operator=(SlotLock&& other) noexcept = default;
  ~SlotLock();

  // Of the cluster's file; holds no slot yet.
  static Result<SlotLock, std::string> open(const std::string& path);

  // False: somebody has it.
  bool try_take(Slot slot);
  void give_back(Slot slot);
  // Does anybody else hold it? Nothing: the descriptor is no longer this one's, and says nothing.
  std::optional<bool> is_taken(Slot slot) const { return is_taken(descriptor_, slot); }
  // The same, through another description of the file: who holds a slot by this one is somebody else there.
  static std::optional<bool> is_taken(const Descriptor& file, Slot slot);
  bool is_ours() const { return descriptor_.is_ours(); }

 private:
  explicit SlotLock(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  Descriptor descriptor_;
};

}  // namespace declock::member
