#include "client/recorder.h"

#include <algorithm>
#include <bit>

namespace declock::client {

void Recorder::LatencyCounts::add(std::int64_t ns, std::uint32_t counts) {
  const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0));
  const auto bucket = static_cast<std::size_t>(std::bit_width(value / Latency::below_ns(0)));
  buckets[std::min(bucket, Latency::kBuckets - 1)].add(counts);
  sum_ns.add(value * counts);
}

void Recorder::LatencyCounts::add_to(Latency& latency) const {
  for (std::size_t i = 0; i < Latency::kBuckets; ++i) latency.buckets[i] += buckets[i].get();
  latency.sum_ns += sum_ns.get();
}

Recorder::Table& Recorder::new_table(std::atomic<Table*>& at) {
  own_tables_.push_back(std::make_unique<Table>());
  // Release: who finds it reads its zeros.
  at.store(own_tables_.back().get(), std::memory_order_release);
  return *own_tables_.back();
}

void Recorder::acquired(const LockRef& lock, Held& held, std::int64_t called_ns, std::int64_t now_ns,
                        std::uint32_t counts, bool waited) {
  const bool is_local = held.hold.local_sequence > 0;
  acquired_often(lock, held.hold.mode, waited ? 0 : 1, waited && is_local ? 1 : 0,
                 waited && !is_local ? 1 : 0);
  if (!waited) waited_.add();  // it has begun all the same
  if (called_ns == 0) return;
  time(lock, held, called_ns, now_ns, counts, waited);
  if (trace_ != nullptr) trace_->acquired(lock, held, called_ns);
}

void Recorder::acquired_often(const LockRef& lock, Mode mode, std::uint64_t at_once, std::uint64_t here,
                              std::uint64_t elsewhere) {
  const std::uint64_t waited = here + elsewhere;
  const std::uint64_t all = at_once + waited;
  if (all == 0) return;
  waited_.add(waited);
  acquired_.add(all);
  local_.add(here);
  remote_.add(elsewhere);
  Table& t = table(lock);
  (mode == Mode::shared ? t.acquired_shared : t.acquired_exclusive).add(all);
  Place* hot = place(lock);
  if (hot == nullptr) return;
  hot->acquired.add(all);
  hot->waited.add(waited);
}

void Recorder::time(const LockRef& lock, Held& held, std::int64_t called_ns, std::int64_t now_ns,
                    std::uint32_t counts, bool waited) {
  table(lock).wait.add(now_ns - called_ns, counts);
  Place* hot = place(lock);
  if (hot != nullptr && waited)
    hot->wait_ns.add(static_cast<std::uint64_t>(now_ns - called_ns) * counts);
  held.since_ns = now_ns;
  held.counts = counts;
}

void Recorder::gave_up(const LockRef& lock, Errc why) {
  waited_.add();
  Table& t = table(lock);
  switch (why) {
    case Errc::busy:
      return t.busy.add();
    case Errc::timed_out:
      return t.timed_out.add();
    case Errc::cancelled:
      return t.cancelled.add();
    default:
      return t.failed.add();
  }
}

void Recorder::release_begins(const LockRef& lock, const Held& held, std::int64_t now_ns) {
  released_.add();
  if (held.since_ns != 0) held_for(lock, now_ns - held.since_ns, held.counts);
}

void Recorder::held_for(const LockRef& lock, std::int64_t ns, std::uint32_t counts) {
  table(lock).hold.add(ns, counts);
  Place* hot = place(lock);
  if (hot == nullptr) return;
  hot->held.add(counts);
  hot->hold_ns.add(static_cast<std::uint64_t>(ns) * counts);
}

void Recorder::release_ends(const LockRef& lock, const Held& held, std::int64_t began_ns,
                            std::int64_t now_ns, Errc error) {
  if (error != Errc::ok) table(lock).failed.add();
  if (trace_ != nullptr && held.since_ns != 0) trace_->released(lock, held, began_ns, now_ns);
}

void Recorder::add_to(std::vector<TableStats>& tables) const {
  for (std::uint32_t i = 0; i < kTables && i < tables.size(); ++i) {
    const Table* table = tables_[i].load(std::memory_order_acquire);
    if (table == nullptr) continue;
    TableStats& sum = tables[i];
    sum.acquired_shared += table->acquired_shared.get();
    sum.acquired_exclusive += table->acquired_exclusive.get();
    sum.busy += table->busy.get();
    sum.timed_out += table->timed_out.get();
    sum.cancelled += table->cancelled.get();
    sum.failed += table->failed.get();
    table->wait.add_to(sum.wait);
    table->hold.add_to(sum.hold);
  }
}

void Recorder::add_to(Stats& stats) const {
  add_to(stats.tables);
  stats.hand_overs_local += local_.get();
  stats.hand_overs_remote += remote_.get();
}

void Recorder::add_to(std::vector<HotLock>& hot) const {
  for (const Place& place : places_) {
    if (place.lock.get() == 0) continue;
    const std::uint64_t lock = place.lock.get() - 1;
    auto at = std::find_if(hot.begin(), hot.end(), [&](const HotLock& h) { return h.lock == lock; });
    if (at == hot.end()) at = hot.insert(hot.end(), HotLock{.lock = lock});
    at->acquired += place.acquired.get();
    at->waited += place.waited.get();
    at->wait_ns += place.wait_ns.get();
    at->held += place.held.get();
    at->hold_ns += place.hold_ns.get();
  }
}

}  // namespace declock::client
