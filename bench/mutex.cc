#include "bench/mutex.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <shared_mutex>
#include <stdexcept>
#include <thread>

#include "declock/declock.h"

namespace declock::bench {
namespace {

using Steady = std::chrono::steady_clock;

std::int64_t ns_since(Steady::time_point began) {
  return std::chrono::nanoseconds(Steady::now() - began).count();
}

template <class Fn>
double ns_each(std::uint32_t operations, Fn fn) {
  for (std::uint32_t i = 0; i < operations / 10; ++i) fn();  // warm
  const Steady::time_point began = Steady::now();
  for (std::uint32_t i = 0; i < operations; ++i) fn();
  return static_cast<double>(ns_since(began)) / operations;
}

template <class Mutex>
MutexResult::Cost cost_of(std::string what, Mutex& mutex, std::uint32_t operations) {
  const double exclusive = ns_each(operations, [&] { const std::unique_lock lock{mutex}; });
  const double shared = ns_each(operations, [&] { const std::shared_lock lock{mutex}; });
  return {std::move(what), exclusive, shared};
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
  const std::string uri =
      config.uri.empty() ? fmt::format("shm:bench-mutex-{}?remove=yes", getpid()) : config.uri;
  auto opened = Cluster::open(uri);
  if (!opened) throw std::runtime_error(opened.error().message);
  Cluster& cluster = *opened;
  SharedMutex mutex = cluster.shared_mutex("bench");
  auto client = cluster.client();
  if (!client) throw std::runtime_error(client.error().message);

  MutexResult result;
  progress("std::shared_timed_mutex");
  std::shared_timed_mutex standard;
  result.costs.push_back(cost_of("std::shared_timed_mutex", standard, config.operations));
  progress("declock::SharedMutex");
  result.costs.push_back(cost_of("declock::SharedMutex", mutex, config.operations));
  progress("declock::Client");
  result.costs.push_back({"declock::Client",
                          ns_each_in(*client, mutex.ref(), config.operations, Mode::exclusive),
                          ns_each_in(*client, mutex.ref(), config.operations, Mode::shared)});

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

std::string table(const MutexResult& result) {
  std::string text =
      fmt::format("{:<32}{:>18}{:>18}\n", "lock + unlock, nobody else", "exclusive ns", "shared ns");
  for (const MutexResult::Cost& cost : result.costs) {
    text += fmt::format("{:<32}{:>18.0f}{:>18.0f}\n", cost.what, cost.exclusive_ns, cost.shared_ns);
  }
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
                                {"operations", config.operations},
                                {"timeouts", config.timeouts},
                                {"timeout_ns", config.timeout.ns}}}};
  for (const MutexResult::Cost& cost : result.costs) {
    json["lock_unlock_ns"][cost.what] = {{"exclusive", cost.exclusive_ns}, {"shared", cost.shared_ns}};
  }
  for (const MutexResult::Lateness& l : result.lateness) {
    json["timeout_late_ns"][l.what] = {{"early", l.early},
                                       {"p50", l.late_ns.quantile(500)},
                                       {"p99", l.late_ns.quantile(990)},
                                       {"max", l.late_ns.max()}};
  }
  return json.dump(2) + "\n";
}

}  // namespace declock::bench
