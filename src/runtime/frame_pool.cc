#include "runtime/frame_pool.h"

#include <bit>
#include <new>

#include "base/check.h"
#include "declock/task.h"

namespace declock {

namespace {
// Under the address sanitizer every block is a fresh one, so that a use after free is seen.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kReuse = false;
#else
constexpr bool kReuse = true;
#endif
}  // namespace

FramePool::~FramePool() {
  CHECK(blocks_out_ == 0);
  for (Block* block : free_) {
    while (block != nullptr) {
      Block* next = *reinterpret_cast<Block**>(block + 1);
      ::operator delete (block, std::align_val_t{alignof(Block)});
      block = next;
    }
  }
}

void* FramePool::allocate(std::size_t bytes) {
  const std::size_t needed = bytes + sizeof(Block);
  const std::size_t size_class =
      needed <= kSmallest ? 0 : static_cast<std::size_t>(std::bit_width((needed - 1) / kSmallest));
  CHECK(size_class < kClasses);
  blocks_out_ += 1;
  Block* block = free_[size_class];
  if (block != nullptr) {
    free_[size_class] = *reinterpret_cast<Block**>(block + 1);
  } else {
    system_allocations_ += 1;
    block =
        static_cast<Block*>(::operator new (kSmallest << size_class, std::align_val_t{alignof(Block)}));
    block->pool = this;
    block->size_class = size_class;
  }
  return block + 1;
}

void* FramePool::allocate_alone(std::size_t bytes) {
  Block* block =
      static_cast<Block*>(::operator new (bytes + sizeof(Block), std::align_val_t{alignof(Block)}));
  block->pool = nullptr;
  return block + 1;
}

void FramePool::deallocate(void* memory) {
  Block* block = static_cast<Block*>(memory) - 1;
  if (block->pool == nullptr) {
    ::operator delete (block, std::align_val_t{alignof(Block)});
    return;
  }
  FramePool& pool = *block->pool;
  pool.blocks_out_ -= 1;
  if (kReuse) {
    *static_cast<Block**>(memory) = pool.free_[block->size_class];
    pool.free_[block->size_class] = block;
  } else {
    ::operator delete (block, std::align_val_t{alignof(Block)});
  }
}

void* detail::allocate_frame(std::size_t bytes) {
  return FramePool::allocate_alone(bytes);
}
void detail::free_frame(void* frame) noexcept {
  FramePool::deallocate(frame);
}
void detail::bad_task_access() {
  check_failed("the task is done", "declock/task.h", 0);
}

}  // namespace declock
