#include "verbs/slabs.h"

#include <sys/mman.h>

#include <new>

#include "base/check.h"

namespace declock::verbs {

void Slabs::Unmap::operator()(std::uint64_t* words) const {
  munmap(words, kSlabsMax * kSlabWords * sizeof *words);
}

Result<std::unique_ptr<Slabs>, std::string> Slabs::make(const Device& device) {
  void* arena = mmap(nullptr, kSlabsMax * kSlabWords * sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) return Failure{device.error("no memory for buffers")};
  std::unique_ptr<Slabs> slabs{new Slabs{device, static_cast<std::uint64_t*>(arena)}};
  // Whether memory can be registered at all shows now, not in the middle of something.
  if (!slabs->add_slab(0)) return Failure{device.error("no memory can be registered")};
  return slabs;
}

Region Slabs::registered(std::uint64_t* words, std::size_t count) const {
  return Region{ibv_reg_mr(device_.domain.get(), words, count * sizeof *words, IBV_ACCESS_LOCAL_WRITE)};
}

bool Slabs::add_slab(std::size_t size_class) {
  if (slabs_.size() == kSlabsMax) return false;
  std::uint64_t* words = arena_.get() + slabs_.size() * kSlabWords;
  Region region = registered(words, kSlabWords);
  if (!region) return false;
  slabs_.push_back({std::move(region), size_class});
  const std::size_t step = std::size_t{1} << size_class;
  for (std::size_t i = 0; i < kSlabWords; i += step)
    free_[size_class] = new (words + i) Free{free_[size_class]};
  return true;
}

std::span<std::uint64_t> Slabs::take(std::size_t words) {
  CHECK(words > 0);
  if (words > kSmallWordsMax) return take_large(words);
  const std::size_t size_class = class_of(words);
  if (free_[size_class] == nullptr && !add_slab(size_class)) return take_large(words);
  Free* first = free_[size_class];
  free_[size_class] = first->next;
  return {new (first) std::uint64_t[words], words};
}

std::span<std::uint64_t> Slabs::take_large(std::size_t words) {
  Large large{std::vector<std::uint64_t>(words), nullptr};
  large.region = registered(large.memory.data(), words);
  if (!large.region) throw std::bad_alloc{};
  std::uint64_t* memory = large.memory.data();
  large_.emplace(memory, std::move(large));
  return {memory, words};
}

void Slabs::give_back(std::span<std::uint64_t> words) {
  const std::size_t slab = slab_of(words.data());
  if (slab >= slabs_.size()) {
    CHECK(large_.erase(words.data()) == 1);
    return;
  }
  const std::size_t size_class = slabs_[slab].size_class;
  free_[size_class] = new (words.data()) Free{free_[size_class]};
}

std::uint32_t Slabs::large_key(const std::uint64_t* words) const {
  auto next = large_.upper_bound(words);
  CHECK(next != large_.begin());
  --next;
  CHECK(words < next->first + next->second.memory.size());
  return next->second.region->lkey;
}

}  // namespace declock::verbs
