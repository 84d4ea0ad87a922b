#include "figures/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace declock::bench::figures {

Results::Results(const std::filesystem::path& file, std::string_view commit, bool any_commit)
    : file_(file), commit_(commit) {
  std::ifstream lines(file);
  std::uintmax_t good = 0;
  for (std::string line;
       std::getline(lines, line) && !lines.eof();) {  // a line without an end was interrupted
    Json stored = Json::parse(line, nullptr, false);
    if (stored.is_discarded() || !stored.contains("key") || !stored.contains("commit") ||
        !stored.contains("result")) {
      throw std::runtime_error(
          fmt::format("{}: line {} is not the result of a run; remove the file to start again",
                      file.string(), by_key_.size() + 1));
    }
    good += line.size() + 1;
    const std::string of = stored["commit"];
    if (of != commit_ &&
        std::find(other_commits_.begin(), other_commits_.end(), of) == other_commits_.end())
      other_commits_.push_back(of);
    by_key_[stored["key"]] = std::move(stored["result"]);
  }
  if (!other_commits_.empty() && !any_commit) {
    throw std::runtime_error(fmt::format(
        "{} holds runs of commit {}, and this is {}; take another --out, or --keep to go on with them",
        file.string(), other_commits_.front(), commit_));
  }
  lines.close();
  if (std::filesystem::exists(file) && std::filesystem::file_size(file) > good)
    std::filesystem::resize_file(file, good);
}

const Json* Results::find(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &found->second;
}

void Results::add(const std::string& key, Json result) {
  const std::string line = Json{{"key", key}, {"commit", commit_}, {"result", result}}.dump() + "\n";
  const int file = open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const bool written =
      file >= 0 && write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const int error = errno;
  if (file >= 0) close(file);
  if (!written) throw std::runtime_error(fmt::format("{}: {}", file_.string(), std::strerror(error)));
  by_key_[key] = std::move(result);
}

namespace {

// Thrown inside a run that is given up.
struct GivenUp {};

}  // namespace

void run_jobs(const std::vector<Job>& jobs, Results& results, unsigned threads,
              const std::function<void(double, double)>& progress) {
  std::vector<const Job*> open;
  double total = 0;
  for (const Job& job : jobs) {
    const bool known =
        results.find(job.key) != nullptr ||
        std::any_of(open.begin(), open.end(), [&](const Job* o) { return o->key == job.key; });
    if (known) continue;
    open.push_back(&job);
    total += job.cost;
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const Job* a, const Job* b) { return a->cost > b->cost; });

  std::mutex mutex;
  std::condition_variable something;
  std::size_t next = 0, ended = 0;
  double done = 0;
  std::exception_ptr failure;
  std::atomic<bool> stop = false;
  const auto work = [&] {
    std::unique_lock lock{mutex};
    while (next < open.size() && !stop) {
      const Job& job = *open[next++];
      lock.unlock();
      Json result;
      std::exception_ptr failed;
      try {
        result = job.run([&] {
          if (stop) throw GivenUp{};
        });
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      if (stop) break;
      try {
        if (failed) std::rethrow_exception(failed);
        results.add(job.key, std::move(result));
      } catch (...) {
        failure = std::current_exception();
        stop = true;
      }
      done += job.cost;
      ended += 1;
      something.notify_one();
    }
  };
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::jthread> workers;
  for (unsigned i = 0; i < threads; ++i) workers.emplace_back(work);
  try {
    std::unique_lock lock{mutex};
    while (ended < open.size() && !stop) {
      something.wait_for(lock, std::chrono::milliseconds(200));
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
      if (progress) progress(done / total, done > 0 ? seconds * (total - done) / done : -1);
    }
  } catch (...) {
    stop = true;
    throw;
  }
  workers.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace declock::bench::figures
