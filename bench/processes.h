// Child processes of a benchmark, none of which outlives it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace declock::bench {

class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  // Kills those that are left.
  ~Children();

  // Forks a child that runs `work` and ends; its number. REQUIRES: this process has no other thread. A child that
  // throws ends with its message; all of them die with this process.
  std::size_t start(const std::function<void()>& work);

  // Sends a signal, SIGKILL for instance.
  void signal(std::size_t child, int number);
  // True: it has ended. A signal that was sent here is no failure.
  bool has_ended(std::size_t child);
  // What the first child that failed said; empty: none has.
  std::string failure();
  void wait_for_all();
  bool have_all_ended();

 private:
  struct Child {
    pid_t pid;
    int says;  // a pipe
    bool ended = false;
    bool killed = false;
    std::string said{};
  };
  void reap(Child& child, int options);

  std::vector<Child> children_;
};

// Zeroed memory that this process and its later children share.
class SharedBytes {
 public:
  // Throws std::runtime_error.
  explicit SharedBytes(std::size_t bytes);
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;
  ~SharedBytes();

  // An array in it, on lines of its own, behind those taken before. Zeroed memory must be a T. REQUIRES: it fits.
  template <class T>
  T* take(std::size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    used_ = (used_ + 63) / 64 * 64;
    T* at = reinterpret_cast<T*>(base_ + used_);
    used_ += count * sizeof(T);
    CHECK(used_ <= bytes_);
    return at;
  }

 private:
  std::size_t bytes_;
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace declock::bench
