// The words of a lock where operations take no time, for whoever acts on them itself: word 0 is the header, word 1 + i slot i.
//
// Both kinds have load(i); looked(), to be called once the queue was read; fetch_add(i, delta, purpose), which gives what was there,
// or nothing if this compute node changes nothing any more; and swap(i, expected, desired, purpose), which changes nothing and
// is false unless the word is as expected.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "fabric/fabric.h"
#include "layout/entry.h"

namespace declock::cql {

// Through the endpoint of a worker.
struct EndpointWords {
  Endpoint& endpoint;
  RemoteAddr lock;

  RemoteAddr at(std::size_t i) const { return lock + 8 * std::uint64_t{i}; }
  std::uint64_t load(std::size_t i) const { return endpoint.load_at_once(at(i)); }
  void looked() const {}
  bool swap(std::size_t i, std::uint64_t expected, std::uint64_t desired, Purpose purpose) const {
    return endpoint.add_at_once(at(i), expected, desired - expected, purpose);
  }
  std::optional<std::uint64_t> fetch_add(std::size_t i, std::uint64_t delta, Purpose purpose) const {
    constexpr int kTriesMax = 16;  // each that fails is somebody else's that did not
    for (int n = 0; n < kTriesMax; ++n) {
      const std::uint64_t seen = load(i);
      if (endpoint.add_at_once(at(i), seen, delta, purpose)) return seen;
    }
    return {};
  }
};

// In this process's memory. What add() does is counted by whoever calls it.
struct WordsHere {
  std::uint64_t* words;
  OpCounts* counted = nullptr;

  std::atomic_ref<std::uint64_t> word(std::size_t i) const { return std::atomic_ref{words[i]}; }
  std::uint64_t load(std::size_t i) const { return word(i).load(); }
  void store(std::size_t i, std::uint64_t value) const { word(i).store(value); }
  bool swap(std::size_t i, std::uint64_t expected, std::uint64_t desired, Purpose purpose) const {
    if (counted != nullptr) counted->add(OpKind::compare_swap, purpose);
    return word(i).compare_exchange_strong(expected, desired);
  }
  void looked() const {
    if (counted != nullptr) counted->add(OpKind::read, Purpose::release);
  }
  std::uint64_t add(std::size_t i, std::uint64_t delta) const { return word(i).fetch_add(delta); }
  std::optional<std::uint64_t> fetch_add(std::size_t i, std::uint64_t delta, Purpose /*unused*/) const {
    return add(i, delta);
  }
};

// Grants the lock to whoever watches its entry in this slot, and says when the first of those behind asked. False: it does not
// watch it any more.
template <class Words>
bool grant_in_place(Words words, std::size_t i, std::uint64_t watching,
                    const std::optional<Timestamp>& behind) {
  Entry granted = decode_entry(watching);
  granted.worker = behind ? kGranted : kGrantedLast;
  if (behind) granted.timestamp = *behind;
  return words.swap(i, watching, encode(granted), Purpose::release);
}

// What such a grant said, if the entry is one.
inline std::optional<Timestamp> behind_grant(const Entry& granted) {
  return granted.worker == kGranted ? std::optional{granted.timestamp} : std::nullopt;
}

}  // namespace declock::cql
