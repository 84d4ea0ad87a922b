// The runs behind the figures: what is to be run, on all cores, and what came out, kept on disk so that work which was
// interrupted goes on where it stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace declock::bench::figures {

using Json = nlohmann::ordered_json;

// One run. `key` says everything that its result depends on, but for the commit.
struct Job {
  std::string key;
  double cost;  // about proportional to the time it takes
  // Calls `alive` now and then, which throws to end it.
  std::function<Json(const std::function<void()>& alive)> run;
};

class Results {
 public:
  // In this file, one line for each; made if it does not exist. Throws std::runtime_error if it cannot be used, or holds
  // results of another commit, unless `any_commit`.
  Results(const std::filesystem::path& file, std::string_view commit, bool any_commit);

  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  ~Results();

  const Json* find(const std::string& key) const;
  // In the file before it returns. Throws std::runtime_error.
  void add(const std::string& key, Json result);
  const std::map<std::string, Json>& all() const { return by_key_; }
  // Of the results, as far as they are not of this program's commit.
  const std::vector<std::string>& other_commits() const { return other_commits_; }

 private:
  void load();

  std::filesystem::path file_;
  int descriptor_;  // nobody else works on it
  std::string commit_;
  std::map<std::string, Json> by_key_;
  std::vector<std::string> other_commits_;
};

// Runs those that have no result yet, `threads` at a time, dearest first. `progress` is told, by the calling thread, which
// part of the cost is done and how many seconds are left; what it throws ends all. What was finished by then is kept.
void run_jobs(const std::vector<Job>& jobs, Results& results, unsigned threads,
              const std::function<void(double part, double seconds_left)>& progress);

}  // namespace declock::bench::figures
