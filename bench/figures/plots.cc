#include "figures/plots.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>

#include "figures/grid.h"

extern char** environ;

namespace declock::bench::figures {
namespace {

struct Style {
  const char* lock;
  const char* colour;  // told apart by everybody (Okabe and Ito)
  int point;
};
constexpr std::array<Style, 13> kStyles{{{"caslock", "#D55E00", 2},
                                         {"dslr+", "#E69F00", 4},
                                         {"shiftlock", "#009E73", 8},
                                         {"declock-tf", "#56B4E9", 6},
                                         {"declock-pf", "#0072B2", 7},
                                         {"declock-slack", "#CC79A7", 5},
                                         {"declock-token", "#000000", 9},
                                         {"ideal", "#777777", 1},
                                         {"ideal-group", "#BBBBBB", 3},
                                         {"cql", "#777777", 1},
                                         {"declock-remote-prefer", "#D55E00", 2},
                                         {"declock-local-prefer", "#E69F00", 4},
                                         {"declock-local-bound", "#009E73", 8}}};

const Style& style_of(const std::string& lock) {
  for (const Style& style : kStyles) {
    if (lock == style.lock) return style;
  }
  return kStyles[4];
}

// Runs gnuplot; its exit status, or a negative errno.
int gnuplot(const std::string& argument, const std::filesystem::path& directory) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
  if (argument == "--version") posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  std::string program = "gnuplot", given = argument;
  std::array<char*, 3> arguments{program.data(), given.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return -error;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return '"' + text + '"';
}

std::string paper_label(const std::pair<std::string, double>& value) {
  return fmt::format("paper, {}: {:g}", value.first, value.second);
}

// Two entries fit side by side if they are short.
std::size_t legend_lines(const Panel& panel) {
  std::size_t longest = 0;
  for (const Series& series : panel.series) longest = std::max(longest, series.label.size());
  for (const auto& value : panel.paper) longest = std::max(longest, paper_label(value).size());
  const std::size_t entries = panel.series.size() + panel.paper.size();
  return longest > 20 ? entries : (entries + 1) / 2;
}

std::string script_of(const Panel& panel, const Results& results) {
  std::string text = "reset\n";
  for (std::size_t i = 0; i < panel.series.size(); ++i) {
    text += fmt::format("$s{} << END\n", i);
    for (const auto& [x, y] : points(panel, panel.series[i], results))
      text += fmt::format("{} {}\n", x, y);
    text += "END\n";
  }
  text += fmt::format("set title {} noenhanced\nset xlabel {} noenhanced\nset ylabel {} noenhanced\n",
                      quoted(panel.title), quoted(panel.x), quoted(panel.y));
  const std::size_t lines = legend_lines(panel);
  text += fmt::format(
      "set grid lc rgb '#dddddd'\nset border 3\nset tics nomirror\nset xlabel offset 0,0.4\nset "
      "rmargin 3\nset key bmargin center horizontal Left reverse maxcols {} noenhanced samplen 2 "
      "width 1\n"
      "set bmargin {}\nset autoscale xfix\n",
      lines == panel.series.size() + panel.paper.size() ? 1 : 2, 4 + lines);
  if (panel.log_x)
    text +=
        fmt::format("set logscale x {}\nset format x '%g'\n", panel.x.starts_with("slots") ? 2 : 10);
  if (panel.x == "locks") text += "set format x '10^{%L}'\n";
  text += panel.log_y ? "set logscale y\nset format y '%.10g'\n" : "set yrange [0:*]\n";
  if (panel.kind == Panel::Kind::distribution) text += "set xrange [1:*]\nset yrange [0:100]\n";
  if (!panel.ticks.empty()) {
    text += "set xtics (";
    for (const auto& [label, x] : panel.ticks)
      text += fmt::format("{}{} {}", x == 0 ? "" : ", ", quoted(label), x);
    text += fmt::format(")\nset xrange [-0.3:{}]\n", static_cast<double>(panel.ticks.size()) - 0.7);
  }
  std::string plot;
  for (std::size_t i = 0; i < panel.series.size(); ++i) {
    const Series& series = panel.series[i];
    const Style& style = style_of(series.style);
    plot +=
        fmt::format("{}$s{} with {} lw 2 {}lc rgb '{}' title {}", plot.empty() ? "plot " : ", ", i,
                    panel.kind == Panel::Kind::values ? "linespoints" : "lines",
                    panel.kind == Panel::Kind::values ? fmt::format("pt {} ps 0.7 ", style.point) : "",
                    style.colour, quoted(series.label));
  }
  for (const auto& value : panel.paper) {
    plot += fmt::format(", {} with lines dt 2 lw 1.2 lc rgb 'black' title {}", value.second,
                        quoted(paper_label(value)));
  }
  const std::size_t height = 310 + 18 * lines;
  text += fmt::format(
      "set terminal svg size 480,{} dynamic font 'DejaVu Sans,12' background '#ffffff'\nset output "
      "'{}.svg'\n{}\n",
      height, panel.id, plot);
  text += fmt::format(
      "set terminal pngcairo size 960,{} font 'DejaVu Sans,18' background '#ffffff' lw 2\nset output "
      "'{}.png'\n"
      "{}\nunset output\n",
      2 * height, panel.id, plot);
  return text;
}

}  // namespace

std::vector<std::pair<double, double>> points(const Panel& panel, const Series& series,
                                              const Results& results) {
  std::vector<std::pair<double, double>> all;
  for (const Series::Sample& sample : series.samples) {
    const Json* result = results.find(sample.key);
    if (result == nullptr) continue;
    const Json& value = result->at(Json::json_pointer(series.value));
    if (panel.kind == Panel::Kind::values)
      all.emplace_back(sample.x, value.get<double>() * series.scale);
    if (panel.kind == Panel::Kind::values) continue;
    // The last bucket of a timeline is the end of the run.
    const std::size_t length = value.size() - (panel.kind == Panel::Kind::timeline ? 1 : 0);
    for (std::size_t i = 0; i < length; ++i) {
      const double y = value[i].get<double>() * series.scale;
      if (panel.kind == Panel::Kind::timeline) all.emplace_back(static_cast<double>(i) * 10, y);
      if (panel.kind == Panel::Kind::distribution && y > 0) all.emplace_back(y, static_cast<double>(i));
    }
  }
  return all;
}

std::string to_csv(const Panel& panel, const Results& results) {
  const bool is_distribution = panel.kind == Panel::Kind::distribution;
  std::string text = fmt::format("series,\"{}\",\"{}\"\n", panel.x, panel.y);
  for (const Series& series : panel.series) {
    for (const auto& [x, y] : points(panel, series, results)) {
      std::string name = fmt::format("{}", x);
      for (const auto& [label, at] : panel.ticks) {
        if (at == x && !is_distribution) name = label;
      }
      text += fmt::format("\"{}\",{},{}\n", series.label, name, y);
    }
  }
  return text;
}

std::string runs_csv(const Plan& plan, const Results& results) {
  constexpr std::array kColumns{"/config/lock",
                                "/config/cns",
                                "/config/clients",
                                "/config/locks",
                                "/config/zipf",
                                "/config/read_ratio",
                                "/config/cs_ops",
                                "/config/slots",
                                "/config/piggyback",
                                "/config/release_read",
                                "/config/slack",
                                "/config/cn_latency",
                                "/config/kill",
                                "/config/duration",
                                "/seed",
                                "/trace_hash",
                                "/ops",
                                "/throughput_mops",
                                "/latency_us/op/p50",
                                "/latency_us/op/p99",
                                "/latency_us/acquire/p50",
                                "/latency_us/acquire/p99",
                                "/latency_us/release/p50",
                                "/latency_us/data/p50",
                                "/mn_ops_per_acquire",
                                "/mn_ops_per_release",
                                "/mn_ops_per_op",
                                "/refetches_per_release",
                                "/messages",
                                "/resets",
                                "/fairness/overtakes_per_acquire",
                                "/time_sync_error_us",
                                "/local_table_bytes_max",
                                "/lost_updates",
                                "/violations"};
  std::string text;
  for (const char* column : kColumns)
    text += fmt::format("{}{}", text.empty() ? "" : ",", std::string_view{column}.substr(1));
  text += "\n";
  std::set<std::string> seen;
  for (const Job& job : plan.jobs) {
    const Json& result = *results.find(job.key);
    if (!seen.insert(job.key).second || !result.contains("throughput_mops")) continue;
    std::string line;
    for (const char* column : kColumns) {
      const Json& value = result.at(Json::json_pointer(column));
      line += fmt::format("{}{}", line.empty() ? "" : ",", value.is_null() ? "" : value.dump());
    }
    text += line + "\n";
  }
  return text;
}

void require_gnuplot() {
  const int status = gnuplot("--version", ".");
  if (status == 0) return;
  throw std::runtime_error(fmt::format(
      "gnuplot, which draws the figures, cannot be run ({}); on Debian the package is gnuplot-nox",
      status < 0 ? std::strerror(-status) : "it failed"));
}

void draw(const Plan& plan, const Results& results, const std::filesystem::path& directory) {
  std::string script;
  for (const Panel& panel : plan.panels) script += script_of(panel, results);
  if (!plan.grid.empty()) script += grid_script(plan.grid, results);
  write_file(directory / "plots.gp", script);
  if (const int status = gnuplot("plots.gp", directory); status != 0)
    throw std::runtime_error(fmt::format("gnuplot failed on {}", (directory / "plots.gp").string()));
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path temporary = path.string() + ".new";
  std::ofstream file{temporary, std::ios::binary};
  file << text;
  file.close();
  std::error_code error;
  if (!file) error = {errno, std::generic_category()};
  if (!error) std::filesystem::rename(temporary, path, error);
  if (!error) return;
  std::filesystem::remove(temporary);
  throw std::runtime_error(fmt::format("{} could not be written: {}", path.string(), error.message()));
}

}  // namespace declock::bench::figures
