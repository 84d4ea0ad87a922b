// A hash table from a 64-bit key to values that never move. What was erased is used again: once it is as large as
// it gets, it calls no allocator.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mix.h"

namespace declock {

template <class Value>
class PooledTable {
 public:
  PooledTable() : buckets_(64) {}

  Value* find(std::uint64_t key) {
    for (std::uint32_t number = bucket(key); number != 0; number = node(number).next) {
      if (node(number).key == key) return &node(number).value;
    }
    return nullptr;
  }

  // REQUIRES: not there yet.
  Value& insert(std::uint64_t key) {
    if (size_ >= buckets_.size()) grow();
    if (idle_.empty()) {
      nodes_.push_back(std::make_unique<Node>());
      idle_.push_back(static_cast<std::uint32_t>(nodes_.size()));
    }
    const std::uint32_t number = idle_.back();
    idle_.pop_back();
    Node& fresh = node(number);
    fresh.value = Value{};
    fresh.key = key;
    fresh.next = bucket(key);
    bucket(key) = number;
    size_ += 1;
    return fresh.value;
  }

  // REQUIRES: it is there.
  void erase(std::uint64_t key) {
    std::uint32_t* link = &bucket(key);
    while (node(*link).key != key) link = &node(*link).next;
    const std::uint32_t number = *link;
    *link = node(number).next;
    idle_.push_back(number);
    size_ -= 1;
  }

  // fn must not insert or erase.
  template <class Fn>
  void for_each(Fn fn) {
    for (std::uint32_t number : buckets_) {
      for (; number != 0; number = node(number).next) fn(node(number).value);
    }
  }

  std::size_t size() const { return size_; }
  std::size_t bytes() const {
    return nodes_.size() * (sizeof(Node) + sizeof(void*) + sizeof(std::uint32_t)) + buckets_.size() * 4;
  }

 private:
  struct Node {
    std::uint64_t key = 0;
    std::uint32_t next = 0;  // in its bucket, a number; 0: none
    Value value{};
  };

  Node& node(std::uint32_t number) { return *nodes_[number - 1]; }
  std::uint32_t& bucket(std::uint64_t key) { return buckets_[mix(0, key) & (buckets_.size() - 1)]; }

  void grow() {
    std::vector<std::uint32_t> old(buckets_.size() * 2);
    old.swap(buckets_);
    for (std::uint32_t number : old) {
      while (number != 0) {
        const std::uint32_t next = node(number).next;
        node(number).next = bucket(node(number).key);
        bucket(node(number).key) = number;
        number = next;
      }
    }
  }

  std::vector<std::unique_ptr<Node>> nodes_;  // by number - 1
  std::vector<std::uint32_t> idle_;
  std::vector<std::uint32_t> buckets_;  // numbers; a power of two of them
  std::size_t size_ = 0;
};

}  // namespace declock
