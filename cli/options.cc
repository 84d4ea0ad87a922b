#include "options.h"

#include <fmt/format.h>

#include <charconv>

#include "base/units.h"

namespace declock::cli {
namespace {

// The whole text must be one number.
template <class T>
bool parses(const std::string& text, T& value) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  return ec == std::errc{} && end == text.data() + text.size();
}

}  // namespace

CLI::Validator whole_number(std::uint64_t low, std::uint64_t high) {
  return CLI::Validator(
      [=](const std::string& text) {
        std::uint64_t value = 0;
        const bool octal = text.size() > 1 && text[0] == '0';  // it would be taken for that later on
        if (!octal && parses(text, value) && value >= low && value <= high) return std::string{};
        return fmt::format("'{}' is not a whole number from {} to {}", text, low, high);
      },
      fmt::format("{}..{}", low, high));
}

CLI::Validator decimal(double low, double high) {
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        if (parses(text, value) && value >= low && value <= high) return std::string{};
        return fmt::format("'{}' is not a number from {} to {}", text, low, high);
      },
      fmt::format("{}..{}", low, high));
}

std::optional<double> parse_factor(const std::string& text) {
  double value = 0;
  if (text.empty() || text.back() != 'x' || !parses(text.substr(0, text.size() - 1), value)) {
    return std::nullopt;
  }
  return value;
}

CLI::Validator factor(double low, double high) {
  return CLI::Validator(
      [=](const std::string& text) {
        const std::optional<double> value = parse_factor(text);
        if (value && *value >= low && *value <= high) return std::string{};
        return fmt::format("'{}' is not a factor from {}x to {}x", text, low, high);
      },
      fmt::format("{}x..{}x", low, high));
}

CLI::Validator one_of(std::vector<std::string> names) {
  const std::string accepted = fmt::format("{}", fmt::join(names, "|"));
  return CLI::Validator(
      [=](const std::string& text) {
        for (const std::string& name : names) {
          if (text == name) return std::string{};
        }
        return fmt::format("'{}' is not accepted; use one of {}", text, accepted);
      },
      accepted);
}

CLI::Option* add_duration(CLI::App& app, const std::string& name, Duration& value,
                          const std::string& help, Duration low, Duration high) {
  const std::string range = fmt::format("{}..{}", format_duration(low), format_duration(high));
  return app
      .add_option_function<std::string>(
          name, [&value](const std::string& text) { value = *parse_duration(text); }, help)
      ->check(CLI::Validator(
          [=](const std::string& text) {
            const auto parsed = parse_duration(text);
            if (!parsed) return parsed.error();
            if (*parsed >= low && *parsed <= high) return std::string{};
            return fmt::format("'{}' is out of range; accepted is {}", text, range);
          },
          range))
      ->default_str(format_duration(value));
}

void add_verbs_options(CLI::App& app, net::NetworkOptions& options) {
  app.add_option("--device", options.device,
                 "verbs: the RDMA device; the first that is up if not given")
      ->type_name("NAME");
  app.add_option("--port", options.port, "verbs: its port; 0: the first that is up")
      ->check(whole_number(0, 255));
  app.add_option("--gid-index", options.gid_index,
                 "verbs: the GID; if not given RoCE v2 over IPv4 is preferred")
      ->check(whole_number(0, 255));
  app.add_option("--mtu", options.mtu, "verbs: bytes per packet; 0: what the port has")
      ->check(one_of({"0", "256", "512", "1024", "2048", "4096"}));
}

}  // namespace declock::cli
