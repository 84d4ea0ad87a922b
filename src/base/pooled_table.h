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
    for (Node* node = bucket(key); node != nullptr; node = node->next) {
      if (node->key == key) return &node->value;
    }
    return nullptr;
  }

  // REQUIRES: not there yet.
  Value& insert(std::uint64_t key) {
    if (size_ >= buckets_.size()) grow();
    if (idle_ == nullptr) {
      nodes_.push_back(std::make_unique<Node>());
      idle_ = nodes_.back().get();
    }
    Node* fresh = idle_;
    idle_ = fresh->next;
    fresh->value = Value{};
    fresh->key = key;
    fresh->next = bucket(key);
    bucket(key) = fresh;
    size_ += 1;
    return fresh->value;
  }

  // REQUIRES: it is there.
  void erase(std::uint64_t key) {
    Node** link = &bucket(key);
    while ((*link)->key != key) link = &(*link)->next;
    Node* gone = *link;
    *link = gone->next;
    gone->next = idle_;
    idle_ = gone;
    size_ -= 1;
  }

  // fn must not insert or erase.
  template <class Fn>
  void for_each(Fn fn) {
    for (Node* node : buckets_) {
      for (; node != nullptr; node = node->next) fn(node->value);
    }
  }

  std::size_t size() const { return size_; }
  std::size_t bytes() const {
    return nodes_.size() * (sizeof(Node) + sizeof(void*)) + buckets_.size() * sizeof(void*);
  }

 private:
  struct Node {
    std::uint64_t key = 0;
    Node* next = nullptr;  // in its bucket, or the next idle one
    Value value{};
  };

  Node*& bucket(std::uint64_t key) { return buckets_[mix(0, key) & (buckets_.size() - 1)]; }

  void grow() {
    std::vector<Node*> old(buckets_.size() * 2);
    old.swap(buckets_);
    for (Node* node : old) {
      while (node != nullptr) {
        Node* next = node->next;
        node->next = bucket(node->key);
        bucket(node->key) = node;
        node = next;
      }
    }
  }

  std::vector<std::unique_ptr<Node>> nodes_;  // all of them
  Node* idle_ = nullptr;
  std::vector<Node*> buckets_;  // a power of two of them
  std::size_t size_ = 0;
};

}  // namespace declock
