// What a process shows of its locks: stats, its report on the board, the metrics endpoint.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "client/core.h"
#include "metrics/exporter.h"
#include "metrics/families.h"

namespace declock::client {
namespace {

std::span<std::uint64_t> words_of(Report& report) {
  return {reinterpret_cast<std::uint64_t*>(&report), sizeof(Report) / 8};
}

RemoteAddr place_of(const member::Node::Memory& board, Slot slot) {
  return {board.at.mn, board.at.offset + slot.value * sizeof(Report), board.mn_incarnation};
}

}  // namespace

Stats Core::stats() {
  Stats stats;
  if (is_closed()) return stats;
  count_near();
  {
    const std::lock_guard guard{mutex_};
    for (const Table& table : tables_) stats.tables.push_back({.table = table.name});
  }
  for_each_recorder([&](const Recorder& recorder) { recorder.add_to(stats); });
  OpCounts operations = near_->operations;
  for (const auto& lane : lanes_) {
    operations += lane->endpoint.counts();
    const cql::ResetCounts& resets = lane->locks.cql().resets();
    stats.resets += resets.done;
    stats.aborted += resets.aborted;
  }
  for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
    for (std::size_t purpose = 0; purpose < kPurposes; ++purpose) {
      const auto k = static_cast<OpKind>(kind);
      const auto p = static_cast<Purpose>(purpose);
      if (operations.of(k, p) == 0) continue;
      stats.operations.push_back(
          {std::string{to_string(k)}, std::string{to_string(p)}, operations.of(k, p)});
    }
  }
  stats.messages = operations.messages;
  stats.view = view_;
  stats.members = members_;
  stats.removals = removals_;
  return stats;
}

void Core::look_at_view() {
  const member::View& view = lanes_[0]->membership.known();
  view_.set(view.number);
  members_.set(view.members.size());
  removals_.set(view.removals);
}

void Core::fill_report() {
  const Stats now = stats();
  const std::uint64_t sequence = report_.sequence + 1;
  report_ = {};
  report_.format = Report::kFormat;
  report_.sequence = report_.sequence_again = sequence;
  report_.pid = static_cast<std::uint64_t>(getpid());
  report_.incarnation = node_->self().incarnation.value;
  report_.at_ns = static_cast<std::uint64_t>(lanes_[0]->worker.now().ns);
  for (const TableStats& table : now.tables) {
    report_.acquired_shared += table.acquired_shared;
    report_.acquired_exclusive += table.acquired_exclusive;
    report_.given_up += table.busy + table.timed_out + table.cancelled;
    report_.failed += table.failed;
    report_.wait += table.wait;
    report_.hold += table.hold;
  }
  report_.hand_overs_local = now.hand_overs_local;
  report_.hand_overs_remote = now.hand_overs_remote;
  report_.resets = now.resets;
  report_.aborted = now.aborted;
  for (const Stats::Operations& operations : now.operations) report_.operations += operations.count;
  report_.messages = now.messages;
  report_.view = now.view;
  report_.members = now.members;
  report_.removals = now.removals;
  std::vector<HotLock> hot;
  std::uint64_t waiting = 0;
  std::uint64_t holding = 0;
  for_each_recorder([&](const Recorder& recorder) {
    waiting += recorder.waiting();
    holding += recorder.holding();
    recorder.add_to(hot);
  });
  // What is read a moment apart may be less than nothing: a hold that one recorder was not told of yet, and another released.
  const auto at_least_none = [](std::uint64_t n) { return n >> 63 != 0 ? 0 : n; };
  report_.waiting = at_least_none(waiting);
  report_.holding = at_least_none(holding);
  std::sort(hot.begin(), hot.end(),
            [](const HotLock& a, const HotLock& b) { return a.acquired > b.acquired; });
  for (std::size_t i = 0; i < std::min(hot.size(), Report::kHotLocks); ++i) {
    report_.hot[i] = hot[i];
    const std::string name = label(RemoteAddr::unpack(hot[i].lock));
    std::memcpy(report_.hot[i].label.data(), name.data(), std::min(name.size(), HotLock::kLabelBytes));
  }
}

// Once a second. Without a board, or with a memory node that is away, the process is not seen, and goes on.
Task<void> Core::keep_reporting(Lane& lane, Core& core) {
  for (;;) {
    core.look_at_view();
    if (core.board_) {
      core.fill_report();
      const Result<void> written = co_await Lane::write(
          lane, place_of(*core.board_, core.node_->self().slot), words_of(core.report_), {});
      // Other memory lies there now; a process that is opened again finds the new board.
      if (!written) core.board_.reset();
    }
    co_await lane.worker.sleep_for(seconds(1));
  }
}

Result<std::vector<Report>, Error> Core::reports() {
  if (standing() != Errc::ok) return Failure{not_open()};
  std::vector<Report> whole;
  const auto board = node_->find(MnId{0}, std::string{kBoardName});
  if (!board) return whole;  // nobody has published anything yet
  for (std::uint32_t slot = 0; slot < node_->members(); ++slot) {
    Report report;
    for (int tries = 0; tries < 3 && !report.is_whole(); ++tries) {
      const Result<void> done =
          read(place_of(*board, Slot{static_cast<std::uint16_t>(slot)}), words_of(report));
      if (!done)
        return Failure{Error{done.error(), fmt::format("the board: {}", to_string(done.error()))}};
      if (report.format == 0) break;
    }
    if (report.is_whole() && is_member(Slot{static_cast<std::uint16_t>(slot)}, report.incarnation)) {
      whole.push_back(report);
    }
  }
  return whole;
}

Result<std::uint16_t, Error> Core::serve_metrics(const std::string& host_port) {
  if (is_closed()) return Failure{not_open()};
  const std::lock_guard guard{metrics_mutex_};
  if (metrics_ != nullptr) {
    return Failure{
        Error{Errc::busy, fmt::format("metrics are served at port {} already", metrics_->port())}};
  }
  auto opened = metrics::Exporter::open(host_port, [this] { return metrics::families_of(stats()); });
  if (!opened) return Failure{Error{Errc::unavailable, opened.error()}};
  metrics_ = std::move(*opened);
  return metrics_->port();
}

}  // namespace declock::client
