// A member slot is held by a lock on one byte of the cluster's file, which the kernel releases when the process ends,
// however it ends. So whether a member lives is not a matter of time-outs: the lock is the truth.
//
// It is a lock of the open file description: nothing else that the process does with the file can lose it. Children
// must not keep it: it is closed on exec, and in a child that is merely forked.
#pragma once

#include <string>

#include "declock/result.h"
#include "layout/ids.h"

namespace declock::member {

class SlotLock {
 public:
  SlotLock() = default;
  SlotLock(SlotLock&& other) noexcept;
  SlotLock& operator=(SlotLock&& other) noexcept;
  ~SlotLock();

  // Of the cluster's file; holds no slot yet.
  static Result<SlotLock, std::string> open(const std::string& path);

  // False: somebody has it.
  bool try_take(Slot slot);
  void give_back(Slot slot);
  // Does anybody else hold it?
  bool is_taken(Slot slot) const;

 private:
  explicit SlotLock(int descriptor);
  int descriptor_ = -1;
};

}  // namespace declock::member
