#include "bench/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/contest.h"

namespace declock::bench {
namespace {

PeerResult run_one(const PeersConfig& config, const std::string& lock,
                   const std::function<void(std::string_view)>& progress) {
  PeerResult result{.lock = lock};
  const auto measure = [&](std::uint32_t processes, double read_ratio, bool watched) {
    const Contest contest{.lock = lock,
                          .processes = processes,
                          .read_ratio = read_ratio,
                          .duration = config.duration,
                          .seed = config.seed,
                          .watched = watched};
    const ContestResult measured = run_contest(contest, [&] {
      if (progress) progress(lock);
    });
    result.lost_updates += measured.lost_updates;
    return measured;
  };
  for (std::uint32_t round = 0; round < config.rounds; ++round) {
    const double exclusive_ns = measure(1, 0, false).ns();
    const double shared_ns = measure(1, 1, false).ns();
    const double contended = measure(config.processes, config.read_ratio, false).mops;
    result.exclusive_ns = round == 0 ? exclusive_ns : std::min(result.exclusive_ns, exclusive_ns);
    result.shared_ns = round == 0 ? shared_ns : std::min(result.shared_ns, shared_ns);
    result.contended_mops = std::max(result.contended_mops, contended);
  }
  const ContestResult watched = measure(config.processes, config.read_ratio, true);
  result.overtakes = watched.overtakes;
  result.overtakes_max = watched.overtakes_max;
  return result;
}

}  // namespace

const std::vector<std::string>& peer_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names = contest_locks();
    std::erase_if(
        names, [](const std::string& lock) { return !can_take_part({.lock = lock, .processes = 2}); });
    return names;
  }();
  return kNames;
}

std::vector<PeerResult> run_peers(const PeersConfig& config,
                                  const std::function<void(std::string_view)>& progress) {
  std::vector<PeerResult> results;
  for (const std::string& lock : peer_names()) {
    if (config.lock == "all" || config.lock == lock) results.push_back(run_one(config, lock, progress));
  }
  return results;
}

std::string to_json(const PeersConfig& config, const std::vector<PeerResult>& results,
                    std::string_view commit) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (const PeerResult& r : results) {
    all.push_back({{"lock", r.lock},
                   {"uncontended_exclusive_ns", r.exclusive_ns},
                   {"uncontended_shared_ns", r.shared_ns},
                   {"contended_mops", r.contended_mops},
                   {"overtakes_per_acquire", r.overtakes},
                   {"overtakes_max", r.overtakes_max},
                   {"lost_updates", r.lost_updates}});
  }
  return Json{{"commit", commit},
              {"fabric", "shm"},
              {"seed", config.seed},
              {"config",
               {{"processes", config.processes},
                {"read_ratio", config.read_ratio},
                {"duration_s", static_cast<double>(config.duration.ns) / 1e9},
                {"rounds", config.rounds}}},
              {"locks", all}}
             .dump(2) +
         "\n";
}

std::string table(const PeersConfig& config, const std::vector<PeerResult>& results) {
  std::string text = fmt::format("{:<22}{:>14}{:>14}{:>22}{:>12}{:>10}{:>14}\n", "lock", "exclusive ns",
                                 "shared ns", fmt::format("{} processes M/s", config.processes),
                                 "overtakes", "max", "lost updates");
  for (const PeerResult& r : results) {
    text +=
        fmt::format("{:<22}{:>14.1f}{:>14.1f}{:>22.2f}{:>12.4f}{:>10}{:>14}\n", r.lock, r.exclusive_ns,
                    r.shared_ns, r.contended_mops, r.overtakes, r.overtakes_max, r.lost_updates);
  }
  return text;
}

}  // namespace declock::bench
