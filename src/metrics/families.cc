#include "metrics/families.h"

#include <fmt/format.h>

#include <map>

#include "base/utf8.h"

namespace declock::metrics {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

void add(TableStats& sum, const TableStats& more) {
  sum.acquired_shared += more.acquired_shared;
  sum.acquired_exclusive += more.acquired_exclusive;
  sum.busy += more.busy;
  sum.timed_out += more.timed_out;
  sum.cancelled += more.cancelled;
  sum.failed += more.failed;
  sum.wait += more.wait;
  sum.hold += more.hold;
}

// By label: two samples with the same labels would void the whole answer.
std::map<std::string, TableStats> by_label(const Stats& stats) {
  std::map<std::string, TableStats> tables;
  for (const TableStats& table : stats.tables) add(tables[label_value(table.table)], table);
  return tables;
}

Sample histogram_of(const Latency& latency, Labels labels) {
  Sample sample{.labels = std::move(labels)};
  // The last bucket has no upper bound: it is the infinite one, which the count stands for.
  for (std::size_t i = 0; i + 1 < Latency::kBuckets; ++i) {
    sample.count += latency.buckets[i];
    sample.buckets.push_back({static_cast<double>(Latency::below_ns(i)) / 1e9, sample.count});
  }
  sample.count += latency.buckets.back();
  sample.sum_seconds = static_cast<double>(latency.sum_ns) / 1e9;
  return sample;
}

void add_tables(const Stats& stats, std::vector<Family>& families) {
  Family acquired = counter("declock_acquisitions_total", "Locks that were acquired.", {});
  Family given_up =
      counter("declock_given_up_total", "Acquisitions that ended without the lock, as asked.", {});
  Family failed = counter("declock_failures_total", "Acquisitions and releases that failed.", {});
  Family wait{"declock_wait_seconds", "From the call to the lock.", Type::histogram};
  Family hold{"declock_hold_seconds", "From the lock to its release.", Type::histogram};
  for (const auto& [label, table] : by_label(stats)) {
    const std::pair<std::string, std::string> name{"table", label};
    acquired.samples.push_back(sample(table.acquired_shared, {name, {"mode", "shared"}}));
    acquired.samples.push_back(sample(table.acquired_exclusive, {name, {"mode", "exclusive"}}));
    given_up.samples.push_back(sample(table.busy, {name, {"reason", "busy"}}));
    given_up.samples.push_back(sample(table.timed_out, {name, {"reason", "timed_out"}}));
    given_up.samples.push_back(sample(table.cancelled, {name, {"reason", "cancelled"}}));
    failed.samples.push_back(sample(table.failed, {name}));
    wait.samples.push_back(histogram_of(table.wait, {name}));
    hold.samples.push_back(histogram_of(table.hold, {name}));
  }
  for (Family* family : {&acquired, &given_up, &failed, &wait, &hold})
    families.push_back(std::move(*family));
}

Family operations_of(const Stats& stats) {
  std::map<std::pair<std::string, std::string>, std::uint64_t> counts;
  for (const Stats::Operations& o : stats.operations)
    counts[{label_value(o.kind), label_value(o.purpose)}] += o.count;
  Family family = counter("declock_mn_operations_total", "Operations on memory nodes.", {});
  for (const auto& [by, count] : counts)
    family.samples.push_back(sample(count, {{"kind", by.first}, {"purpose", by.second}}));
  return family;
}

}  // namespace

Sample sample(std::uint64_t value, Labels labels) {
  return {.labels = std::move(labels), .value = static_cast<double>(value)};
}

Family counter(std::string name, std::string help, std::vector<Sample> samples) {
  return {std::move(name), std::move(help), Type::counter, std::move(samples)};
}

Family gauge(std::string name, std::string help, std::vector<Sample> samples) {
  return {std::move(name), std::move(help), Type::gauge, std::move(samples)};
}

std::string label_value(const std::string& bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = utf8_length(bytes, at);
    if (length == 0) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[at]));
    } else {
      text.append(bytes, at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return text;
}

std::vector<Family> families_of(const Stats& stats) {
  std::vector<Family> families;
  add_tables(stats, families);
  families.push_back(counter("declock_hand_overs_total", "Locks got from their holder before.",
                             {sample(stats.hand_overs_local, {{"kind", "local"}}),
                              sample(stats.hand_overs_remote, {{"kind", "remote"}})}));
  families.push_back(counter("declock_resets_total", "Locks that this process reset after a failure.",
                             {sample(stats.resets)}));
  families.push_back(counter("declock_aborted_acquisitions_total",
                             "Acquisitions that a reset made try again.", {sample(stats.aborted)}));
  families.push_back(operations_of(stats));
  families.push_back(
      counter("declock_messages_total", "Messages to other compute nodes.", {sample(stats.messages)}));
  families.push_back(gauge("declock_view", "Number of the membership view that this process knows.",
                           {sample(stats.view)}));
  families.push_back(gauge("declock_members", "Members in that view.", {sample(stats.members)}));
  families.push_back(counter("declock_removals_total",
                             "Members that were taken for dead, since the cluster was made.",
                             {sample(stats.removals)}));
  return families;
}

}  // namespace declock::metrics
