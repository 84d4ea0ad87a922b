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

namespace {
constexpr std::array<std::string_view, 5> kByteUnits{"", "KiB", "MiB", "GiB", "TiB"};
}  // namespace

Result<std::uint64_t, std::string> parse_bytes(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit = text.substr(digits);
  std::uint64_t count = 0;
  const bool is_number =
      std::from_chars(text.data(), text.data() + digits, count).ec == std::errc{} && digits > 0;
  for (std::size_t i = 0; i < kByteUnits.size() && is_number; ++i) {
    if (unit == kByteUnits[i] && count <= ~std::uint64_t{0} >> (10 * i)) return count << (10 * i);
  }
  return Failure{fmt::format(
      "'{}' is no size; accepted is a whole number of bytes, or of KiB, MiB, GiB or TiB, as in "
      "512MiB",
      text)};
}

std::string format_bytes(std::uint64_t bytes) {
  std::size_t unit = 0;
  while (unit + 1 < kByteUnits.size() && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    unit += 1;
  }
  return fmt::format("{}{}{}", format_count(bytes), unit == 0 ? " bytes" : " ", kByteUnits[unit]);
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
