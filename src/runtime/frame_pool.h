// Memory for coroutine frames and other short-lived blocks of one worker: free lists by size, so that
// the path of an acquisition never calls the allocator. Not thread-safe: one worker, one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace declock {

class FramePool {
 public:
  FramePool() = default;
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;
  ~FramePool();

  // Aligned to 16 bytes. A block remembers its pool.
  void* allocate(std::size_t bytes);
  // The same from the system, of no pool: for coroutines that belong to no worker.
  static void* allocate_alone(std::size_t bytes);
  static void deallocate(void* block);

  // Calls of the system's allocator so far. Stands still once the pool is warm.
  std::uint64_t system_allocations() const { return system_allocations_; }

 private:
  struct alignas(16) Block {
    FramePool* pool;
    std::uint64_t size_class;
  };
  static constexpr std::size_t kSmallest = 64;
  static constexpr std::size_t kClasses = 11;  // 64 bytes to 64 KiB, header included

  std::array<Block*, kClasses> free_{};
  std::uint64_t system_allocations_ = 0;
  std::uint64_t blocks_out_ = 0;
};

// A buffer of words from a worker's pool.
class ScratchWords {
 public:
  ScratchWords(FramePool& pool, std::size_t count)
      : words_(static_cast<std::uint64_t*>(pool.allocate(count * 8))), count_(count) {}
  ScratchWords(const ScratchWords&) = delete;
  ScratchWords& operator=(const ScratchWords&) = delete;
  ~ScratchWords() { FramePool::deallocate(words_); }

  std::span<std::uint64_t> words() { return {words_, count_}; }

 private:
  std::uint64_t* words_;
  std::size_t count_;
};

}  // namespace declock
