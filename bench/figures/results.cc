#include "figures/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
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
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, std::string_view why) {
  throw std::runtime_error(fmt::format("{}: {}", file.string(), why));
}

constexpr std::string_view kLineBegins = "{\"key\":";

}  // namespace

Results::Results(const std::filesystem::path& file, std::string_view commit, bool any_commit)
    : file_(file), commit_(commit) {
  // For writing, so that it fails before anything was run.
  descriptor_ = open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail(file, std::strerror(errno));
  try {
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) fail(file, "another process works on it");
    load();
  } catch (...) {
    close(descriptor_);
    throw;
  }
  if (!other_commits_.empty() && !any_commit) {
    close(descriptor_);
    fail(file, fmt::format(
                   "it holds runs of commit {}, and this is {}; take another --out, or --keep to go on "
                   "with them",
                   other_commits_.front(), commit_));
  }
}

Results::~Results() {
  close(descriptor_);
}

void Results::load() {
  std::ifstream lines(file_, std::ios::binary);
  std::string line;
  std::uintmax_t good = 0;
  while (std::getline(lines, line)) {
    const bool is_whole = !lines.eof();
    if (!is_whole && line.starts_with(kLineBegins)) break;  // it was interrupted: run again
    Json stored = Json::parse(line, nullptr, false);
    if (stored.is_discarded() || !stored.contains("key") || !stored.contains("commit") ||
        !stored.contains("result")) {
      fail(file_, fmt::format("line {} is not the result of a run; remove the file to start again",
                              by_key_.size() + 1));
    }
    good += line.size() + 1;
    const std::string of = stored["commit"];
    const bool is_known =
        std::find(other_commits_.begin(), other_commits_.end(), of) != other_commits_.end();
    if (of != commit_ && !is_known) other_commits_.push_back(of);
    by_key_[stored["key"]] = std::move(stored["result"]);
  }
  if (lines.bad()) fail(file_, "it cannot be read");
  if (std::filesystem::file_size(file_) > good) std::filesystem::resize_file(file_, good);
}

const Json* Results::find(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &found->second;
}

void Results::add(const std::string& key, Json result) {
  const std::string line = Json{{"key", key}, {"commit", commit_}, {"result", result}}.dump() + "\n";
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(file_, written < 0 ? std::strerror(errno) : "nothing more can be written");
    left.remove_prefix(static_cast<std::size_t>(written));
  }
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
      if (stop && failed) break;
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
  try {
    while (workers.size() < std::min<std::size_t>(threads, open.size())) workers.emplace_back(work);
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
