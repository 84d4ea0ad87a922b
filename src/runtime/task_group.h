// Coroutines that nobody awaits: they run beside their starter, and the group owns them.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <vector>

#include "declock/task.h"

namespace declock {

class TaskGroup {
 public:
  explicit TaskGroup(FramePool& frames) : frames_(frames) {}
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  void spawn(Task<void> task) {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    slots_[slot].emplace(run(slot, std::move(task)));
    running_ += 1;
    slots_[slot]->start();
  }

  // Ends all of them where they stand.
  void clear() {
    slots_.clear();
    free_.clear();
    running_ = 0;
  }

  std::size_t running() const { return running_; }
  FramePool& frames() { return frames_; }

 private:
  // Its own frame is freed when its slot is used again.
  Task<void> run(std::size_t slot, Task<void> task) {
    try {
      co_await std::move(task);
    } catch (...) {
      std::terminate();  // errors travel as Result; nobody would hear of an exception
    }
    free_.push_back(slot);
    running_ -= 1;
  }

  FramePool& frames_;
  std::vector<std::optional<Task<void>>> slots_;
  std::vector<std::size_t> free_;
  std::size_t running_ = 0;
};

}  // namespace declock
