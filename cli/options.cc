#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

#include "base/units.h"
#include "commands.h"

namespace declock::cli {
namespace {

// The whole text must be one number.
template <class T>
bool parses(const std::string& text, T& value) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  return ec == std::errc{} && end == text.data() + text.size();
}

// The command line up to the first option.
std::string command_path(const CLI::App& app) {
  std::string path = app.get_name();
  for (const CLI::App* chosen : app.get_subcommands()) path += " " + command_path(*chosen);
  return path;
}

// The innermost command that was named has subcommands and was given none of them. Empty: it has none.
std::string command_needed(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  std::string accepted;
  for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; })) {
    accepted += (accepted.empty() ? "" : ", ") + sub->get_name();
  }
  if (accepted.empty()) return {};
  const std::vector<std::string> rest = program.remaining(true);
  return fmt::format(
      "{}; commands of '{}' are {}",
      rest.empty() ? "a command is missing" : fmt::format("'{}' is no command", rest.front()),
      command_path(program), accepted);
}

}  // namespace

Check whole_number(std::uint64_t low, std::uint64_t high) {
  return {[=](const std::string& text) {
            std::uint64_t value = 0;
            const bool octal =
                text.size() > 1 && text[0] == '0';  // it would be taken for that later on
            if (!octal && parses(text, value) && value >= low && value <= high) return std::string{};
            return fmt::format("'{}' is not a whole number from {} to {}", text, low, high);
          },
          fmt::format("{}..{}", low, high)};
}

Check decimal(double low, double high) {
  return {[=](const std::string& text) {
            double value = 0;
            if (parses(text, value) && value >= low && value <= high) return std::string{};
            return fmt::format("'{}' is not a number from {} to {}", text, low, high);
          },
          fmt::format("{}..{}", low, high)};
}

std::optional<double> parse_factor(const std::string& text) {
  double value = 0;
  if (text.empty() || text.back() != 'x' || !parses(text.substr(0, text.size() - 1), value)) {
    return std::nullopt;
  }
  return value;
}

Check factor(double low, double high) {
  return {[=](const std::string& text) {
            const std::optional<double> value = parse_factor(text);
            if (value && *value >= low && *value <= high) return std::string{};
            return fmt::format("'{}' is not a factor from {}x to {}x", text, low, high);
          },
          fmt::format("{}x..{}x", low, high)};
}

Check one_of(std::vector<std::string> names) {
  const std::string accepted = fmt::format("{}", fmt::join(names, "|"));
  return {[=](const std::string& text) {
            for (const std::string& name : names) {
              if (text == name) return std::string{};
            }
            return fmt::format("'{}' is not accepted; use one of {}", text, accepted);
          },
          accepted};
}

Option& Option::check(const Check& check) {
  option_->check(CLI::Validator{[error = check.error](const std::string& text) { return error(text); },
                                check.accepted});
  return *this;
}
Option& Option::required() {
  option_->required();
  return *this;
}
Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}
Option& Option::default_text(const std::string& text) {
  option_->default_str(text);
  return *this;
}
Option& Option::delimiter(char between) {
  option_->delimiter(between);
  return *this;
}
Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}
Option& Option::each(const std::function<void(const std::string&)>& see) {
  option_->each(see);
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& help) {
  return Command{*app_->add_subcommand(name, help)};
}

void Command::require_command() {
  app_->require_subcommand(1);
}

template <class T>
Option Command::add_option(const std::string& name, T& value, const std::string& help) {
  return Option{app_->add_option(name, value, help)};
}
template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, std::uint16_t&, const std::string&);
template Option Command::add_option(const std::string&, std::uint32_t&, const std::string&);
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);

Option Command::add_option(const std::string& name, const std::function<void(const std::string&)>& set,
                           const std::string& help) {
  return Option{app_->add_option_function<std::string>(name, set, help)};
}

Option Command::add_duration(const std::string& name, Duration& value, const std::string& help,
                             Duration low, Duration high) {
  const std::string range = fmt::format("{}..{}", format_duration(low), format_duration(high));
  const auto error = [=](const std::string& text) {
    const auto parsed = parse_duration(text);
    if (!parsed) return parsed.error();
    if (*parsed >= low && *parsed <= high) return std::string{};
    return fmt::format("'{}' is out of range; accepted is {}", text, range);
  };
  return add_option(
             name, [&value](const std::string& text) { value = *parse_duration(text); }, help)
      .check({error, range})
      .default_text(format_duration(value));
}

Option Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  return Option{app_->add_flag(name, value, help)};
}

Program::Program(const std::string& name, const std::string& what, const std::string& version)
    : app_(std::make_unique<CLI::App>(what, name)) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->get_formatter()->column_width(34);
  app_->option_defaults()->always_capture_default();
}
Program::~Program() = default;

std::optional<std::string> Program::parse(int argc, char** argv) {
  const auto bad = [&](const CLI::Error& error) {
    return BadInput(fmt::format("{}; see '{} --help'", error.what(), command_path(*app_)));
  };
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& asked) {
    app_->exit(asked);
    return std::nullopt;
  } catch (const CLI::RequiredError& error) {
    const std::string needed = command_needed(*app_);
    if (!needed.empty()) throw BadInput(needed);
    throw bad(error);
  } catch (const CLI::ParseError& error) {
    throw bad(error);
  }
  return command_path(*app_->get_subcommands().front());
}

void add_verbs_options(Command app, net::NetworkOptions& options) {
  app.add_option("--device", options.device,
                 "verbs: the RDMA device; the first that is up if not given")
      .type_name("NAME");
  app.add_option("--port", options.port, "verbs: its port; 0: the first that is up")
      .check(whole_number(0, 255));
  app.add_option("--gid-index", options.gid_index,
                 "verbs: the GID; if not given RoCE v2 over IPv4 is preferred")
      .check(whole_number(0, 255));
  app.add_option("--mtu", options.mtu, "verbs: bytes per packet; 0: what the port has")
      .check(one_of({"0", "256", "512", "1024", "2048", "4096"}));
}

}  // namespace declock::cli
