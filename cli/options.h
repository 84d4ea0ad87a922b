// Commands and their options, with errors that say what is accepted. Behind it is CLI11, which takes seconds to compile
// wherever it is seen: in options.cc alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "networks/networks.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace declock::cli {

// Of the text of an option.
struct Check {
  std::function<std::string(const std::string&)> error;  // empty: none
  std::string accepted;                                  // for the help
};
Check whole_number(std::uint64_t low, std::uint64_t high);
Check decimal(double low, double high);
// A factor: "4x", "1.5x".
std::optional<double> parse_factor(const std::string& text);
Check factor(double low, double high);
Check one_of(std::vector<std::string> names);

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& check(const Check& check);
  Option& required();
  Option& type_name(const std::string& name);
  Option& default_text(const std::string& text);
  Option& delimiter(char between);
  Option& excludes(const Option& other);
  // Calls this with every value, besides setting it.
  Option& each(const std::function<void(const std::string&)>& see);

 private:
  CLI::Option* option_;
};

class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}
  Command add_command(const std::string& name, const std::string& help);
  // What is there is the default. One named without dashes goes by its place. `value` must stay as long as the program.
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& help);
  Option add_option(const std::string& name, const std::function<void(const std::string&)>& set,
                    const std::string& help);
  // A duration ("100ms") of at least `low` and at most `high`.
  Option add_duration(const std::string& name, Duration& value, const std::string& help, Duration low,
                      Duration high);
  void require_command();
  Option add_flag(const std::string& name, bool& value, const std::string& help);

 private:
  CLI::App* app_;
};

// The whole command line.
class Program {
 public:
  Program(const std::string& name, const std::string& what, const std::string& version);
  ~Program();
  Command root() { return Command{*app_}; }
  // The command that was asked for, "bench micro". Nothing: --help or --version was, and is printed. Throws BadInput.
  std::optional<std::string> parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

// Which device, port, GID and MTU a program uses on --fabric verbs.
void add_verbs_options(Command app, net::NetworkOptions& options);

}  // namespace declock::cli
