#include "sim/memory.h"

#include <algorithm>

namespace declock::sim {

const Memory::Page* Memory::find(std::uint64_t page) const {
  const std::uint64_t at = page / kPagesPerDirectory;
  if (at >= directories_.size() || directories_[at] == nullptr) return nullptr;
  return (*directories_[at])[page % kPagesPerDirectory].get();
}

Memory::Page& Memory::touch(std::uint64_t page) {
  const std::uint64_t at = page / kPagesPerDirectory;
  if (at >= directories_.size()) directories_.resize(at + 1);
  if (directories_[at] == nullptr) directories_[at] = std::make_unique<Directory>();
  std::unique_ptr<Page>& slot = (*directories_[at])[page % kPagesPerDirectory];
  if (slot == nullptr) {
    slot = std::make_unique<Page>();
    pages_.push_back(slot.get());
  }
  return *slot;
}

std::uint64_t Memory::load(std::uint64_t offset) const {
  const std::uint64_t word = offset / 8;
  const Page* page = find(word / kPageWords);
  return page == nullptr ? 0 : (*page)[word % kPageWords];
}

void Memory::store(std::uint64_t offset, std::uint64_t value) {
  const std::uint64_t word = offset / 8;
  touch(word / kPageWords)[word % kPageWords] = value;
}

void Memory::read(std::uint64_t offset, std::span<std::uint64_t> into) const {
  std::uint64_t word = offset / 8;
  while (!into.empty()) {
    const std::size_t run = std::min<std::size_t>(kPageWords - word % kPageWords, into.size());
    if (const Page* page = find(word / kPageWords); page != nullptr) {
      std::copy_n(page->begin() + static_cast<std::ptrdiff_t>(word % kPageWords), run, into.begin());
    } else {
      std::fill_n(into.begin(), run, 0);
    }
    word += run;
    into = into.subspan(run);
  }
}

void Memory::write(std::uint64_t offset, std::span<const std::uint64_t> from) {
  for (std::size_t i = 0; i < from.size(); ++i) store(offset + 8 * i, from[i]);
}

void Memory::clear() {
  for (Page* page : pages_) page->fill(0);
}

}  // namespace declock::sim
