// What a process tells of itself, in Prometheus's terms: families of samples. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace declock::metrics {

enum class Type : std::uint8_t { counter, gauge, histogram };

struct Bucket {
  double upper_seconds = 0;      // what took at most so long
  std::uint64_t cumulative = 0;  // is counted here, with all of the buckets before
};

struct Sample {
  std::vector<std::pair<std::string, std::string>> labels{};
  double value = 0;  // of a counter or a gauge
  // Of a histogram:
  std::vector<Bucket> buckets{};  // upper bounds ascending, the infinite one left out
  double sum_seconds = 0;
  std::uint64_t count = 0;
};

struct Family {
  std::string name;
  std::string help;
  Type type = Type::gauge;
  std::vector<Sample> samples{};
};

Family counter(std::string name, std::string help, std::vector<Sample> samples);
Family gauge(std::string name, std::string help, std::vector<Sample> samples);
Sample sample(std::uint64_t value, std::vector<std::pair<std::string, std::string>> labels = {});

// Prometheus wants UTF-8: bytes that are none become "\xNN".
std::string label_value(const std::string& bytes);

}  // namespace declock::metrics
