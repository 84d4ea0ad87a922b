#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace declock {
namespace {

constexpr std::array<std::pair<std::string_view, std::int64_t>, 4> kUnits{
    {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};

constexpr double kLongestNs = 9e18;

}  // namespace

Result<Duration, std::string> parse_duration(std::string_view text) {
  const Failure<std::string> wrong{
      fmt::format("'{}' is not a duration; write a number and a unit: 2s, 100ms, 200us or 50ns", text)};

  double number = 0;
  const auto [rest, ec] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (ec != std::errc{} || number < 0) return wrong;
  const std::string_view unit{rest, static_cast<std::size_t>(text.data() + text.size() - rest)};
  for (const auto& [name, ns] : kUnits) {
    if (unit != name) continue;
    const double total = number * static_cast<double>(ns);
    if (!(total < kLongestNs)) return wrong;
    return Duration{std::llround(total)};
  }
  return wrong;
}

std::string format_duration(Duration d) {
  for (auto unit = kUnits.rbegin(); unit != kUnits.rend(); ++unit) {
    if (d.ns != 0 && d.ns % unit->second == 0) {
      return fmt::format("{}{}", d.ns / unit->second, unit->first);
    }
  }
  return "0s";
}

std::string format_count(std::uint64_t n) {
  const std::string digits = fmt::to_string(n);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace declock
