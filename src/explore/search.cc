#include "explore/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <thread>

namespace declock::explore {
namespace {

// A set of digests: open addressing, at most half full. 64 bits: for 10^7 states the chance that two
// share a digest, and one of them is missed, is below 3 in 10^6.
class DigestSet {
 public:
  DigestSet() : slots_(1 << 16) {}

  // False: it was there already.
  bool insert(std::uint64_t digest) {
    if (digest == 0) digest = 1;  // 0 marks a free slot
    if (size_ * 2 >= slots_.size()) grow();
    return place(digest);
  }
  std::uint64_t size() const { return size_; }

 private:
  bool place(std::uint64_t digest) {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = digest & mask;; at = (at + 1) & mask) {
      if (slots_[at] == digest) return false;
      if (slots_[at] != 0) continue;
      slots_[at] = digest;
      size_ += 1;
      return true;
    }
  }
  void grow() {
    std::vector<std::uint64_t> old(slots_.size() * 2);
    old.swap(slots_);
    size_ = 0;
    for (const std::uint64_t digest : old) {
      if (digest != 0) place(digest);
    }
  }

  std::vector<std::uint64_t> slots_;
  std::uint64_t size_ = 0;
};

struct Node {
  std::uint32_t parent;
  sim::Choice choice;
};

class Search {
 public:
  Search(const Scenario& scenario, const SearchLimits& limits) : world_(scenario), limits_(limits) {}

  Finding run(const Progress& progress) {
    world_.restart();
    seen_.insert(world_.engine().digest());
    nodes_.push_back({});
    for (std::uint32_t at = 0; at < nodes_.size(); ++at) {
      if (over_limit()) return finish(false);
      if (expand(at)) return finish(false);
      if (progress && at % 4096 == 0) progress(seen_.size());
    }
    return finish(true);
  }

 private:
  bool over_limit() const {
    return seen_.size() > limits_.max_states || (limits_.stop != nullptr && *limits_.stop);
  }

  // True: a violation was found that ends the search.
  bool expand(std::uint32_t at) {
    load_path(at);
    replay();
    const std::uint64_t here = world_.engine().digest();
    world_.engine().enabled(choices_);
    bool progress = false;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) replay();
      world_.engine().perform(choices_[i]);
      const std::uint64_t there = world_.engine().digest();
      progress = progress || there != here;
      if (world_.violation()) {
        path_.push_back(choices_[i]);
        if (settle(*world_.violation())) return true;
        path_.pop_back();
        continue;  // a client that gave up: nothing beyond is of interest
      }
      if (seen_.insert(there)) nodes_.push_back({at, choices_[i]});
    }
    if (progress) return false;
    if (choices_.empty() && world_.finished()) {
      world_.check_end();
      return world_.violation() && settle(*world_.violation());
    }
    if (!choices_.empty()) replay();
    return settle(
        {Violation::Kind::hang, fmt::format("nothing more can happen, and {} will never finish",
                                            world_.unfinished_clients())});
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
    for (const sim::Choice choice : path_) world_.engine().perform(choice);
  }

  Finding finish(bool complete) {
    finding_.states = seen_.size();
    finding_.complete = complete;
    return std::move(finding_);
  }

  World world_;
  SearchLimits limits_;
  DigestSet seen_;
  std::vector<Node> nodes_;  // in the order of their distance from the start
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

  const auto work = [&] {
    for (std::size_t i = next++; i < end; i = next++) {
      Scenario mine = scenario;
      mine.program = programs[i];
      findings[i] = search(mine, limits, [&](std::uint64_t seen) {
        states[i] = seen;
        if (!progress) return;
        const std::lock_guard lock{reporting};
        progress(std::accumulate(states.begin(), states.end(), std::uint64_t{0}));
      });
      if (findings[i].complete && !findings[i].violation) continue;
      for (std::size_t old = end; i + 1 < old && !end.compare_exchange_weak(old, i + 1);) {
      }
    }
  };
  {
    std::vector<std::jthread> crew;
    for (unsigned t = 1; t < threads; ++t) crew.emplace_back(work);
    work();
  }
  Survey survey;
  survey.explored = end;
  for (std::size_t i = 0; i < end; ++i) survey.states += findings[i].states;
  survey.last = std::move(findings[end - 1]);
  return survey;
}

}  // namespace declock::explore
