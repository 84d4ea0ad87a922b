#include "explore/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

namespace declock::explore {
namespace {

// The states that were seen, by digest: open addressing, at most half full. Digests have 64 bits: for 10^7
// states the chance that two share one, and a state is missed, is below 3 in 10^6.
class StateSet {
 public:
  StateSet() : slots_(1 << 12) {}

  // The number of the state, counted from 0 in the order of their first insertion.
  std::uint32_t insert(std::uint64_t digest) {
    if (size_ * 2 >= slots_.size()) grow();
    Slot& slot = place(digest);
    if (slot.number == kFree) slot = {digest, static_cast<std::uint32_t>(size_++)};
    return slot.number;
  }
  std::uint64_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kFree = ~std::uint32_t{0};
  struct Slot {
    std::uint64_t digest = 0;
    std::uint32_t number = kFree;
  };

  Slot& place(std::uint64_t digest) {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = digest & mask;; at = (at + 1) & mask) {
      Slot& slot = slots_[at];
      if (slot.number == kFree || slot.digest == digest) return slot;
    }
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number != kFree) place(slot.digest) = slot;
    }
  }

  std::vector<Slot> slots_;
  std::uint64_t size_ = 0;
};

struct Node {
  std::uint32_t parent;
  std::uint32_t first_edge;
  sim::Choice choice;
};

class Search {
 public:
  Search(const Scenario& scenario, const SearchLimits& limits) : world_(scenario), limits_(limits) {}

  Finding run(const Progress& progress) {
    world_.restart();
    seen_.insert(world_.digest());
    nodes_.push_back({});
    for (std::uint32_t at = 0; at < nodes_.size(); ++at) {
      if (over_limit()) return finish(false);
      if (expand(at)) return finish(false);
      if (progress && at % 4096 == 0) progress(seen_.size());
    }
    look_for_livelock();
    return finish(true);
  }

 private:
  bool over_limit() const {
    return seen_.size() > limits_.max_states || (limits_.stop != nullptr && *limits_.stop);
  }

  // True: a violation was found that ends the search.
  bool expand(std::uint32_t at) {
    nodes_[at].first_edge = static_cast<std::uint32_t>(edges_.size());
    load_path(at);
    replay();
    world_.enabled(choices_);
    const bool at_rest = choices_.empty();
    if (at_rest && world_.finished() && world_.nothing_behind()) {
      ends_.push_back(at);
      world_.check_end();
      return world_.violation() && settle(*world_.violation());
    }
    if (at_rest) rests_.push_back(at);
    bool progress = false;
    if (try_choices(at, progress)) return true;
    if (!progress) {
      if (!at_rest) replay();
      world_.engine().timers(choices_);
      if (try_choices(at, progress)) return true;
    }
    return !progress && settle(hang());
  }

  // REQUIRES: the world is in the state `at`. True: a violation was found that ends the search.
  bool try_choices(std::uint32_t at, bool& progress) {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) replay();
      const bool is_mishap = world_.is_mishap(choices_[i]);
      world_.perform(choices_[i]);
      if (world_.violation()) {
        path_.push_back(choices_[i]);
        if (settle(*world_.violation())) return true;
        path_.pop_back();
        progress = true;
        ends_.push_back(at);
        continue;  // a client that gave up, and said so: nothing beyond is of interest
      }
      const std::uint32_t to = seen_.insert(world_.digest());
      if (to == nodes_.size()) nodes_.push_back({at, 0, choices_[i]});
      if (is_mishap) continue;  // nobody may need it to go on
      progress = progress || to != at;
      edges_.push_back(to);
    }
    return false;
  }

  Violation hang() {
    replay();
    return {Violation::Kind::hang, fmt::format("nothing more can happen, and {} will never finish",
                                               world_.unfinished_clients())};
  }

  // From every state there must be a way to the end: a circle of several states that nothing leads out of
  // is a hang as well.
  void look_for_livelock() {
    if (finding_.violation && finding_.violation->kind != Violation::Kind::stuck) return;
    std::vector<std::uint32_t> begin(nodes_.size() + 1);  // of each state's predecessors
    for (const std::uint32_t to : edges_) begin[to + 1] += 1;
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<std::uint32_t> predecessors(edges_.size());
    std::vector<std::uint32_t> fill(begin.begin(), begin.end() - 1);
    for (std::uint32_t from = 0; from < nodes_.size(); ++from) {
      const std::size_t end = from + 1 < nodes_.size() ? nodes_[from + 1].first_edge : edges_.size();
      for (std::size_t e = nodes_[from].first_edge; e < end; ++e)
        predecessors[fill[edges_[e]]++] = from;
    }
    std::vector<bool> can_end(nodes_.size());
    std::vector<std::uint32_t> todo = ends_;
    for (const std::uint32_t end : ends_) can_end[end] = true;
    while (!todo.empty()) {
      const std::uint32_t at = todo.back();
      todo.pop_back();
      for (std::uint32_t i = begin[at]; i < begin[at + 1]; ++i) {
        const std::uint32_t from = predecessors[i];
        if (can_end[from]) continue;
        can_end[from] = true;
        todo.push_back(from);
      }
    }
    const auto lost = std::find(can_end.begin(), can_end.end(), false);
    if (lost == can_end.end()) return;
    // The story is clearest where all that is left is to wait.
    const auto rest =
        std::find_if(rests_.begin(), rests_.end(), [&](std::uint32_t at) { return !can_end[at]; });
    load_path(rest != rests_.end() ? *rest : static_cast<std::uint32_t>(lost - can_end.begin()));
    settle(hang());
  }

  // A client that gives up with an error has noticed; a hang or a wrong entry nobody notices. Those end
  // the search, the former is reported only if it stays the worst.
  bool settle(const Violation& violation) {
    if (!finding_.violation || violation.kind != Violation::Kind::stuck) {
      finding_.violation = violation;
      finding_.path = path_;
    }
    return violation.kind != Violation::Kind::stuck;
  }

  void load_path(std::uint32_t at) {
    path_.clear();
    for (; at != 0; at = nodes_[at].parent) path_.push_back(nodes_[at].choice);
    std::reverse(path_.begin(), path_.end());
  }

  void replay() {
    world_.restart();
    for (const sim::Choice choice : path_) world_.perform(choice);
  }

  Finding finish(bool complete) {
    finding_.states = seen_.size();
    finding_.complete = complete;
    return std::move(finding_);
  }

  World world_;
  SearchLimits limits_;
  StateSet seen_;
  std::vector<Node> nodes_;           // by the number of the state: in the order of their distance
  std::vector<std::uint32_t> edges_;  // to which state, for each state's choices in turn
  std::vector<std::uint32_t> ends_;   // states in which all is done, or somebody gives up next
  std::vector<std::uint32_t> rests_;  // states in which nothing can happen but timers
  std::vector<sim::Choice> path_;
  std::vector<sim::Choice> choices_;
  Finding finding_;
};

}  // namespace

Finding search(const Scenario& scenario, const SearchLimits& limits, const Progress& progress) {
  return Search{scenario, limits}.run(progress);
}

Survey search_all(const Scenario& scenario, const std::vector<Program>& programs,
                  const SearchLimits& limits, unsigned threads, const Progress& progress) {
  std::vector<Finding> findings(programs.size());
  std::vector<std::atomic<std::uint64_t>> states(programs.size());
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> end{programs.size()};  // programs from here on do not count
  std::mutex reporting;

  std::exception_ptr failure;  // the first; the others stop at their next program

  const auto explore_next = [&](std::size_t i) {
    Scenario mine = scenario;
    mine.program = programs[i];
    findings[i] = search(mine, limits, [&](std::uint64_t seen) {
      states[i] = seen;
      if (!progress) return;
      const std::lock_guard lock{reporting};
      progress(std::accumulate(states.begin(), states.end(), std::uint64_t{0}));
    });
    if (findings[i].complete && !findings[i].violation) return;
    for (std::size_t old = end; i + 1 < old && !end.compare_exchange_weak(old, i + 1);) {
    }
  };
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < end; i = next++) explore_next(i);
    } catch (...) {
      const std::lock_guard lock{reporting};
      if (!failure) failure = std::current_exception();
      end = 0;
    }
  };
  {
    std::vector<std::jthread> crew;
    for (std::size_t t = 1; t < std::min<std::size_t>(threads, programs.size()); ++t) {
      crew.emplace_back(work);
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
  Survey survey;
  survey.explored = end;
  for (std::size_t i = 0; i < end; ++i) survey.states += findings[i].states;
  survey.last = std::move(findings[end - 1]);
  return survey;
}

}  // namespace declock::explore
