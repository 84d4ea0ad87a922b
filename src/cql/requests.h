// What one member has to do with which lock: everything that a reset must know before it may say that the member
// is out of the way (H3, H8, H9), and everything that its clients must know of each other.
//
// All workers of a member share one of these; every call is short and under its mutex.
#pragma once

#include <algorithm>
#include <bitset>
#include <mutex>

#include "base/mix.h"
#include "base/pooled_table.h"
#include "base/short_lock.h"
#include "cql/record.h"

namespace declock::cql {

class Requests {
 public:
  Record& use(RemoteAddr lock) {
    const std::lock_guard guard{mutex_};
    Record& record = find_or_insert(lock);
    record.users += 1;
    return record;
  }
  void end_use(Record& record) {
    const std::lock_guard guard{mutex_};
    record.users -= 1;
    reclaim(record);
  }

  // A record that stays although nobody uses it, and may be folded.
  Record& keep(RemoteAddr lock, const LockShape& shape, std::uint32_t mn_incarnation) {
    const std::lock_guard guard{mutex_};
    Record& record = find_or_insert(lock);
    record.keepers += 1;
    record.shape = &shape;
    record.of_incarnation = mn_incarnation;
    return record;
  }
  void keep_no_longer(Record& record) {
    const std::lock_guard guard{mutex_};
    record.keepers -= 1;
    record.unfold();
    reclaim(record);
  }

  // fn(record), for what is known of the lock.
  template <class Fn>
  auto change(Record& record, Fn fn) {
    const std::lock_guard guard{mutex_};
    record.unfold();
    return fn(record);
  }
  Waiting::State state_of(const Waiting& waiting) {
    const std::lock_guard guard{mutex_};
    return waiting.state;
  }
  bool is_over(const Waiting& waiting) {
    const std::lock_guard guard{mutex_};
    return waiting.is_over();
  }
  bool is_resetting(Record& record) {
    return change(record, [](const Record& r) { return r.resetting; });
  }
  // No client of this member wants the lock any more that it waits for, or one does again. REQUIRES, for these two: the
  // mutex is held.
  static void note_unwanted(Record& record, bool unwanted) {
    record.unwanted = unwanted;
    if (unwanted && record.waiting != nullptr) wake_to_leave(*record.waiting);
  }
  static void wake_to_leave(Waiting& waiting) {
    if (waiting.become(Waiting::State::leaves)) waiting.worker->make_ready(waiting.coroutine);
  }
  template <class Fn>
  void for_each(Fn fn) {
    const std::lock_guard guard{mutex_};
    records_.for_each([&](Record& record) {
      record.unfold();
      fn(record);
    });
  }

  // The most memory that the records took.
  std::size_t bytes_max() const { return bytes_max_; }

  // This member is no more: it answers nobody.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }
  // As if nothing had been asked for yet. REQUIRES: nobody uses a record.
  void clear() { records_ = {}; }

  // Is somebody likely to wait when the lock is released? A guess, from what the last release found, of this lock or of one in its
  // place. REQUIRES, for these two: the mutex is held.
  bool looks_contended(RemoteAddr lock) const { return contended_[place_of(lock)]; }
  void note_contended(RemoteAddr lock, bool contended) { contended_[place_of(lock)] = contended; }

  // For those who do several things in one step.
  ShortLock& mutex() { return mutex_; }
  // REQUIRES, for these three: the mutex is held.
  Record* find(RemoteAddr lock) {
    Record* record = records_.find(lock.packed());
    if (record != nullptr) record->unfold();
    return record;
  }
  Record& find_or_insert(RemoteAddr lock) {
    Record* record = find(lock);
    if (record == nullptr) {
      record = &records_.insert(lock.packed());
      record->lock = lock;
      bytes_max_ = std::max(bytes_max_, records_.bytes());
    }
    return *record;
  }
  // Whoever used a lock lately is likely to use it again: some idle records stay.
  void reclaim(Record& record) {
    if (records_.size() > kIdleKept && record.idle() && record.keepers == 0)
      records_.erase(record.lock.packed());
  }

 private:
  static constexpr std::size_t kIdleKept = 1024;

  static constexpr std::size_t kPlaces = 4096;
  static std::size_t place_of(RemoteAddr lock) { return mix(0, lock.packed()) % kPlaces; }

  ShortLock mutex_;
  std::bitset<kPlaces> contended_{};
  PooledTable<Record> records_;  // by address
  std::size_t bytes_max_ = 0;
  bool closed_ = false;
};

// A reference that keeps a record.
class RecordUse {
 public:
  RecordUse(Requests& requests, RemoteAddr lock) : requests_(requests), record_(requests.use(lock)) {}
  RecordUse(const RecordUse&) = delete;
  RecordUse& operator=(const RecordUse&) = delete;
  ~RecordUse() { requests_.end_use(record_); }
  Record& operator*() const { return record_; }
  Record* operator->() const { return &record_; }

 private:
  Requests& requests_;
  Record& record_;
};

}  // namespace declock::cql
