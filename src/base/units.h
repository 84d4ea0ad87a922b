// Text for people: durations with a unit ("2s", "100ms", "200us", "50ns") and large counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/time.h"
#include "declock/result.h"

namespace declock {

// Accepts a number with at most one fraction ("1.5ms") and a unit; the result is exact in nanoseconds.
Result<Duration, std::string> parse_duration(std::string_view text);

std::string format_duration(Duration d);

// "4096", "64KiB", "512MiB", "1GiB", "2TiB".
Result<std::uint64_t, std::string> parse_bytes(std::string_view text);
std::string format_bytes(std::uint64_t bytes);

// 1234567 -> "1,234,567"
std::string format_count(std::uint64_t n);

}  // namespace declock
