#include "bench/mutex.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <shared_mutex>
#include <stdexcept>
#include <thread>

#include "bench/contest.h"
#include "declock/declock.h"

namespace declock::bench {
namespace {

using Steady = std::chrono::steady_clock;

std::int64_t ns_since(Steady::time_point began) {
  return std::chrono::nanoseconds(Steady::now() - began).count();
}

// Those who use the lock at once.
struct Users {
  std::string what;
  std::uint32_t processes = 1;
  std::uint32_t threads = 1;
};

std::vector<Users> users_of_all_kinds() {
  const std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Users> users{{"alone"}};
  for (const std::uint32_t n : std::set<std::uint32_t>{2, cores, 2 * cores}) {
    if (n >= 2) users.push_back({fmt::format("{} threads", n), 1, n});
  }
  for (const std::uint32_t n : std::set<std::uint32_t>{2, cores, 2 * cores}) {
    if (n >= 2) users.push_back({fmt::format("{} processes", n), n, 1});
  }
  return users;
}

struct Mix {
  std::string_view what;
  double read_ratio;
};
constexpr std::array kMixes{Mix{"exclusive", 0}, Mix{"half shared", 0.5}, Mix{"shared", 1}};

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// All locks in turn, round by round: what else the machine does meanwhile meets them all.
void compare(const MutexConfig& config, const Users& users, const Mix& mix, MutexResult& result,
             const std::function<void(std::string_view)>& progress) {
  const std::string what = fmt::format("{}, {}", users.what, mix.what);
  std::vector<std::vector<double>> ns(result.locks.size());
  std::vector<std::vector<double>> instructions(result.locks.size());
  std::vector<std::optional<double>> overtakes(result.locks.size());
  const bool is_alone = users.processes * users.threads == 1;
  for (std::uint32_t round = 0; round <= config.rounds; ++round) {
    for (std::size_t i = 0; i < result.locks.size(); ++i) {
      const Contest contest{.lock = result.locks[i],
                            .processes = users.processes,
                            .threads = users.threads,
                            .read_ratio = mix.read_ratio,
                            .duration = config.duration,
                            .watched = round == config.rounds,
                            .uri = config.uri};
      if (!can_take_part(contest) || (is_alone && contest.watched)) continue;
      const ContestResult measured = run_contest(contest, [&] { progress(what); });
      result.lost_updates += measured.lost_updates;
      if (contest.watched) {
        overtakes[i] = measured.overtakes;
        continue;
      }
      ns[i].push_back(measured.ns());
      if (measured.instructions) instructions[i].push_back(*measured.instructions);
    }
  }
  MutexResult::Row& row = result.ns.emplace_back(what);
  for (const std::vector<double>& values : ns) row.values.push_back(median(values));
  if (!is_alone) {
    if (mix.read_ratio == 0) result.overtakes.push_back({what, overtakes});
    return;
  }
  MutexResult::Row& counted = result.instructions.emplace_back(what);
  for (const std::vector<double>& values : instructions) counted.values.push_back(median(values));
}

// REQUIRES: somebody else holds the lock.
template <class TryFor>
MutexResult::Lateness lateness_of(std::string what, const MutexConfig& config, TryFor try_for) {
  MutexResult::Lateness lateness{std::move(what), 0, {}};
  for (std::uint32_t i = 0; i < config.timeouts; ++i) {
    const Steady::time_point began = Steady::now();
    if (try_for(std::chrono::nanoseconds(config.timeout.ns)))
      throw std::runtime_error("the lock was free");
    const std::int64_t late = ns_since(began) - config.timeout.ns;
    lateness.early += late < 0 ? 1 : 0;
    lateness.late_ns.add(static_cast<std::uint64_t>(std::max<std::int64_t>(late, 0)));
  }
  return lateness;
}

Task<void> lock_often(Client& client, LockRef lock, std::uint32_t operations, Mode mode) {
  for (std::uint32_t i = 0; i < operations; ++i) {
    Result<Guard> guard = Failure{Errc::ok};
    if (mode == Mode::exclusive) {
      guard = co_await client.lock(lock);
    } else {
      guard = co_await client.lock_shared(lock);
    }
    if (!guard) throw std::runtime_error(std::string{to_string(guard.error())});
  }
}

Task<bool> try_for(Client& client, LockRef lock, std::chrono::nanoseconds timeout) {
  const Result<Guard> guard = co_await client.try_lock_for(lock, timeout);
  co_return guard.has_value();
}

double ns_each_in(Client& client, LockRef lock, std::uint32_t operations, Mode mode) {
  client.run(lock_often(client, lock, operations / 10, mode));
  const Steady::time_point began = Steady::now();
  client.run(lock_often(client, lock, operations, mode));
  return static_cast<double>(ns_since(began)) / operations;
}

}  // namespace

MutexResult run_mutex(const MutexConfig& config,
                      const std::function<void(std::string_view)>& progress) {
  MutexResult result;
  result.locks = {"declock::SharedMutex", "std::shared_timed_mutex", "pthread_rwlock",
                  "boost_sharable"};
  for (const Users& users : users_of_all_kinds()) {
    for (const Mix& mix : kMixes) {
      if (users.processes * users.threads > 1 || mix.read_ratio != 0.5)
        compare(config, users, mix, result, progress);
    }
  }
  // From here on this process has threads.
  const std::string uri =
      config.uri.empty() ? fmt::format("shm:bench-mutex-{}?remove=yes", getpid()) : config.uri;
  auto opened = Cluster::open(uri);
  if (!opened) throw std::runtime_error(opened.error().message);
  Cluster& cluster = *opened;
  SharedMutex mutex = cluster.shared_mutex("bench");
  auto client = cluster.client();
  if (!client) throw std::runtime_error(client.error().message);

  progress("declock::Client");
  result.client_exclusive_ns = ns_each_in(*client, mutex.ref(), config.operations, Mode::exclusive);
  result.client_shared_ns = ns_each_in(*client, mutex.ref(), config.operations, Mode::shared);

  progress("time-outs");
  mutex.lock();
  result.lateness.push_back(
      lateness_of("SharedMutex, one thread", config, [&](auto t) { return mutex.try_lock_for(t); }));
  {
    // Threads that wait for ever keep every worker: this one's time-outs are another thread's work.
    std::vector<std::jthread> waiting;
    for (int i = 0; i < 16; ++i) {
      waiting.emplace_back([&] {
        mutex.lock_shared();
        mutex.unlock_shared();
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    result.lateness.push_back(lateness_of("SharedMutex, 16 threads wait", config,
                                          [&](auto t) { return mutex.try_lock_for(t); }));
    mutex.unlock();
  }
  mutex.lock();
  result.lateness.push_back(lateness_of("Client, in a coroutine", config, [&](auto t) {
    return client->run(try_for(*client, mutex.ref(), t));
  }));
  std::shared_timed_mutex held;
  const std::unique_lock lock{held};
  std::jthread{[&] {
    result.lateness.push_back(
        lateness_of("std::shared_timed_mutex", config, [&](auto t) { return held.try_lock_for(t); }));
  }}.join();
  mutex.unlock();
  return result;
}

namespace {

std::string rows_of(std::string_view title, const std::vector<std::string>& locks,
                    const std::vector<MutexResult::Row>& rows, int digits) {
  std::string text = fmt::format("{:<28}", title);
  for (const std::string& lock : locks) text += fmt::format("{:>26}", lock);
  text += "\n";
  for (const MutexResult::Row& row : rows) {
    text += fmt::format("{:<28}", row.what);
    for (const std::optional<double>& value : row.values) {
      text += value ? fmt::format("{:>26.{}f}", *value, digits) : fmt::format("{:>26}", "-");
    }
    text += "\n";
  }
  return text + "\n";
}

nlohmann::ordered_json json_of(const std::vector<std::string>& locks,
                               const std::vector<MutexResult::Row>& rows) {
  nlohmann::ordered_json json;
  for (const MutexResult::Row& row : rows) {
    for (std::size_t i = 0; i < locks.size(); ++i) {
      json[row.what][locks[i]] = row.values[i] ? nlohmann::ordered_json(*row.values[i]) : nullptr;
    }
  }
  return json;
}

}  // namespace

std::string table(const MutexResult& result) {
  std::string text = rows_of("ns per lock + unlock", result.locks, result.ns, 0);
  const bool counted =
      std::any_of(result.instructions[0].values.begin(), result.instructions[0].values.end(),
                  [](const auto& value) { return value.has_value(); });
  text += counted ? rows_of("instructions for both", result.locks, result.instructions, 0)
                  : "The kernel counts no instructions here.\n\n";
  text += rows_of("overtakes per acquisition", result.locks, result.overtakes, 4);
  text += fmt::format("declock::Client in a coroutine, alone: {:.0f} ns exclusive, {:.0f} ns shared\n",
                      result.client_exclusive_ns, result.client_shared_ns);
  text += fmt::format("\n{:<32}{:>9}{:>9}{:>9}{:>9}\n", "time-outs: late by us", "p50", "p99", "max",
                      "early");
  for (const MutexResult::Lateness& l : result.lateness) {
    const auto us = [](std::uint64_t ns) { return static_cast<double>(ns) / 1000; };
    text += fmt::format("{:<32}{:>9.0f}{:>9.0f}{:>9.0f}{:>9}\n", l.what, us(l.late_ns.quantile(500)),
                        us(l.late_ns.quantile(990)), us(l.late_ns.max()), l.early);
  }
  return text;
}

std::string to_json(const MutexConfig& config, const MutexResult& result, std::string_view commit) {
  nlohmann::ordered_json json{{"commit", commit},
                              {"benchmark", "mutex"},
                              {"config",
                               {{"uri", config.uri},
                                {"duration_ns", config.duration.ns},
                                {"rounds", config.rounds},
                                {"operations", config.operations},
                                {"timeouts", config.timeouts},
                                {"timeout_ns", config.timeout.ns}}}};
  json["ns"] = json_of(result.locks, result.ns);
  json["instructions"] = json_of(result.locks, result.instructions);
  json["overtakes_per_acquire"] = json_of(result.locks, result.overtakes);
  json["lost_updates"] = result.lost_updates;
  json["client_ns"] = {{"exclusive", result.client_exclusive_ns}, {"shared", result.client_shared_ns}};
  for (const MutexResult::Lateness& l : result.lateness) {
    json["timeout_late_ns"][l.what] = {{"early", l.early},
                                       {"p50", l.late_ns.quantile(500)},
                                       {"p99", l.late_ns.quantile(990)},
                                       {"max", l.late_ns.max()}};
  }
  return json.dump(2) + "\n";
}

}  // namespace declock::bench
