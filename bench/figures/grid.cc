#include "figures/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

namespace declock::bench::figures {
namespace {

constexpr double kSlowNetwork = 4;

using Numbers = std::vector<double>;

// Every combination of two numbers, of which the second varies faster.
class GroupOf {
 public:
  GroupOf(const Scale& scale, std::string title) : scale_(scale), group_{std::move(title), {}} {}

  template <class Change>
  Group over(const Numbers& rows, const Numbers& within, Change change) && {
    for (const double row : rows) {
      for (const double x : within) {
        Setting cell{x, "", defaults(scale_)};
        change(cell, row, x);
        group_.cells.push_back(std::move(cell));
      }
    }
    return std::move(group_);
  }

 private:
  const Scale& scale_;
  Group group_;
};

void set_reads(Setting& cell, double reads) {
  cell.config.read_ratio = reads / 100;
}

void set_section(Setting& cell, double section) {
  cell.config.cs_ops = static_cast<std::uint32_t>(section);
}

// So many, over 8 CNs.
void set_clients(Setting& cell, double clients) {
  cell.config.clients = static_cast<std::uint32_t>(clients) / cell.config.cns;
  cell.config.workers = std::min(cell.config.workers, cell.config.clients);
}

Group reads_and_sections(const Scale& scale, const Numbers& reads, const Numbers& sections) {
  return GroupOf{scale, "Reads, and length of the section"}.over(
      reads, sections, [](Setting& cell, double reads_now, double section) {
        set_reads(cell, reads_now);
        set_section(cell, section);
        cell.label = fmt::format("{} % reads, section {}", reads_now, section);
      });
}

Group slow_network(const Scale& scale, const Numbers& reads) {
  return GroupOf{scale, fmt::format("Messages between CNs {} times slower", kSlowNetwork)}.over(
      {kSlowNetwork}, reads, [](Setting& cell, double factor, double reads_now) {
        cell.config.cn_latency = factor;
        set_reads(cell, reads_now);
        cell.label = fmt::format("{} % reads", reads_now);
      });
}

// What stands in a box: three digits are enough to see, and to compare.
std::string in_box(double ratio) {
  if (ratio >= 100) return fmt::format("{:.0f}", ratio);
  if (ratio >= 10) return fmt::format("{:.1f}", ratio);
  return ratio < 0.1 ? fmt::format("{:.3f}", ratio) : fmt::format("{:.2f}", ratio);
}

// gnuplot takes the text of a tic for a format.
std::string as_tic(std::string text) {
  for (std::size_t at = 0; (at = text.find('%', at)) != std::string::npos; at += 2)
    text.insert(at, "%");
  return text;
}

struct Measure {
  const char* name;
  const char* title;
  double Ratios::*value;
  bool smaller_is_better;
};
constexpr std::array<Measure, 2> kMeasures{
    {{"throughput", "Throughput: above 1 is better", &Ratios::throughput, false},
     {"p99", "P99 latency: below 1 is better", &Ratios::p99, true}}};

// Rows of the picture, from above: each group has a line for its title.
template <class Visit>
std::size_t for_each_row(const std::vector<Group>& grid, Visit visit) {
  std::size_t row = 0;
  for (const Group& group : grid) {
    visit(row++, group, nullptr);
    for (const Setting& cell : group.cells) visit(row++, group, &cell);
  }
  return row;
}

// Column, row, by which power of 2 ours is better, and what stands there.
std::string boxes(const std::vector<Group>& grid, const Measure& measure, const Results& results) {
  std::string lines;
  for_each_row(grid, [&](std::size_t row, const Group&, const Setting* cell) {
    for (std::size_t column = 1; cell != nullptr && column < grid_contestants().size(); ++column) {
      const double ratio = ratios(*cell, grid_contestants()[column], results).*measure.value;
      const double power = std::log2(ratio) * (measure.smaller_is_better ? -1 : 1);
      lines += fmt::format("{} {} {:.4f} {}\n", column, row, power, in_box(ratio));
    }
  });
  return lines;
}

// Of the picture, in the SVG's pixels.
constexpr double kLeft = 200, kColumn = 74, kBetween = 24, kRow = 19, kAbove = 76, kBelow = 30;
constexpr double kRight = 10;

}  // namespace

std::vector<Group> grid_cells(const Scale& scale) {
  if (scale.quick) return {reads_and_sections(scale, {50}, {1, 32}), slow_network(scale, {50})};
  const Numbers all_reads{0, 50, 90, 100}, some_reads{0, 50, 90};
  return {reads_and_sections(scale, all_reads, {0, 1, 2, 4, 8, 16, 32}),
          GroupOf{scale, "CNs of 32 clients, 50 % reads"}.over(
              {1, 4}, {8, 16, 32, 64, 128},
              [](Setting& cell, double section, double cns) {
                cell.config.cns = static_cast<std::uint32_t>(cns);
                set_section(cell, section);
                cell.label = fmt::format("{} CNs, section {}", cns, section);
              }),
          GroupOf{scale, "Clients, over 8 CNs"}.over({16, 64, 256}, all_reads,
                                                     [](Setting& cell, double clients, double reads) {
                                                       set_clients(cell, clients);
                                                       set_reads(cell, reads);
                                                       cell.label = fmt::format(
                                                           "{} clients, {} % reads", clients, reads);
                                                     }),
          GroupOf{scale, "Skew"}.over({0.9, 0.99, 1.2}, some_reads,
                                      [](Setting& cell, double zipf, double reads) {
                                        cell.config.zipf = zipf;
                                        set_reads(cell, reads);
                                        cell.label = fmt::format("Zipf {}, {} % reads", zipf, reads);
                                      }),
          slow_network(scale, some_reads),
          GroupOf{scale, "Number of locks, 50 % reads"}.over(
              {50}, {1e3, 1e5, 1e7}, [](Setting& cell, double reads, double locks) {
                cell.config.locks = static_cast<std::uint64_t>(locks);
                set_reads(cell, reads);
                cell.label = fmt::format("10^{:.0f} locks", std::log10(locks));
              })};
}

// DecLock as published is PF. Its order and its hand-over are what is compared here, so it has the doorbell that all
// have; without it, as in the paper, it is one of beyond(). Waits grow with the nodes, and so does the slack.
const std::vector<Contestant>& grid_contestants() {
  static const std::vector<Contestant> all{
      {kTokenLock, "token", true},       {"shiftlock", "ShiftLock", true},
      {"declock-pf", "published", true}, {"declock-slack", "slack", true, microseconds(25)},
      {"ideal", "ideal", true},          {"ideal-group", "ideal-group", true}};
  return all;
}

Ratios ratios(const Setting& cell, const Contestant& other, const Results& results) {
  const auto value = [&](const Contestant& contestant, const char* pointer) {
    return results.find(key_of(contestant.with(cell.config)))
        ->at(Json::json_pointer(pointer))
        .get<double>();
  };
  const auto over = [&](const char* pointer) {
    return value(grid_contestants().front(), pointer) / value(other, pointer);
  };
  return {over("/throughput_mops"), over("/latency_us/op/p99")};
}

std::string grid_csv(const std::vector<Group>& grid, const Results& results) {
  constexpr std::array<std::pair<const char*, const char*>, 29> kColumns{
      {{"cns", "/config/cns"},
       {"clients_per_cn", "/config/clients"},
       {"locks", "/config/locks"},
       {"zipf", "/config/zipf"},
       {"read_ratio", "/config/read_ratio"},
       {"section", "/config/cs_ops"},
       {"cn_latency", "/config/cn_latency"},
       {"piggyback", "/config/piggyback"},
       {"slack", "/config/slack"},
       {"duration", "/config/duration"},
       {"seed", "/seed"},
       {"ops", "/ops"},
       {"throughput_mops", "/throughput_mops"},
       {"p50_us", "/latency_us/op/p50"},
       {"p99_us", "/latency_us/op/p99"},
       {"p999_us", "/latency_us/op/p999"},
       {"acquire_p50_us", "/latency_us/acquire/p50"},
       {"acquire_p99_us", "/latency_us/acquire/p99"},
       {"hottest_acquire_p50_us", "/fairness/hottest_lock_acquire_us/p50"},
       {"hottest_acquire_p99_us", "/fairness/hottest_lock_acquire_us/p99"},
       {"mn_ops_per_op", "/mn_ops_per_op"},
       {"mn_ops_per_acquire", "/mn_ops_per_acquire"},
       {"messages", "/messages"},
       {"overtakes_per_acquire", "/fairness/overtakes_per_acquire"},
       {"overtakes_p99", "/fairness/overtakes/p99"},
       {"overtakes_max", "/fairness/overtakes/max"},
       {"trace_hash", "/trace_hash"},
       {"lost_updates", "/lost_updates"},
       {"violations", "/violations"}}};
  std::string text = "group,cell,lock";
  for (const auto& [name, pointer] : kColumns) text += fmt::format(",{}", name);
  text += ",messages_per_op\n";
  for_each_row(grid, [&](std::size_t, const Group& group, const Setting* cell) {
    if (cell == nullptr) return;
    for (const Contestant& contestant : grid_contestants()) {
      const Json& run = *results.find(key_of(contestant.with(cell->config)));
      text += fmt::format("\"{}\",\"{}\",\"{}\"", group.title, cell->label, contestant.label);
      for (const auto& [name, pointer] : kColumns) {
        const Json& value = run.at(Json::json_pointer(pointer));
        text += fmt::format(",{}", value.is_null() ? "" : value.dump());
      }
      text += fmt::format(",{}\n", run["messages"].get<double>() / run["ops"].get<double>());
    }
  });
  return text;
}

Json grid_json(const std::vector<Group>& grid, const Results& results) {
  Json all = Json::object();
  for (const Group& group : grid) {
    for (const Setting& cell : group.cells) {
      Json& of_cell = all[group.title][cell.label];
      for (std::size_t i = 1; i < grid_contestants().size(); ++i) {
        const Contestant& other = grid_contestants()[i];
        const Ratios found = ratios(cell, other, results);
        of_cell[other.label] = {{"throughput", found.throughput}, {"p99", found.p99}};
      }
    }
  }
  return all;
}

std::string grid_script(const std::vector<Group>& grid, const Results& results) {
  std::string text = "reset\n", labels, titles;
  const std::size_t rows =
      for_each_row(grid, [&](std::size_t row, const Group& group, const Setting* cell) {
        if (cell == nullptr) {
          titles += fmt::format(
              "set label \"{}\" at screen 0.012, first {} left font 'DejaVu Sans Bold,' noenhanced\n",
              group.title, row);
        } else {
          labels += fmt::format("{}\"{}\" {}", labels.empty() ? "" : ", ", as_tic(cell->label), row);
        }
      });
  const std::size_t others = grid_contestants().size() - 1;
  std::string heads;
  for (std::size_t i = 1; i <= others; ++i)
    heads += fmt::format("{}\"{}\" {}", i == 1 ? "" : ", ", grid_contestants()[i].label, i);
  for (const Measure& measure : kMeasures)
    text += fmt::format("${} << END\n{}END\n", measure.name, boxes(grid, measure, results));

  const double panel = kColumn * static_cast<double>(others);
  const double width = kLeft + 2 * panel + kBetween + kRight;
  const double height = kAbove + kRow * static_cast<double>(rows) + kBelow;
  text += fmt::format(
      "set palette defined (-1 '#e5695e', 0 '#ffffff', 1 '#5fb56b')\nset cbrange [-1:1]\n"
      "unset colorbox\nunset key\nunset border\nunset xtics\nset xrange [0.5:{0}.5]\n"
      "set x2range [0.5:{0}.5]\nset yrange [{1}.5:-0.5]\nset x2tics scale 0 ({2}) noenhanced\n"
      "set tmargin at screen {3:.5f}\nset bmargin at screen {4:.5f}\n",
      others, rows - 1, heads, 1 - kAbove / height, kBelow / height);
  std::string plots = "set multiplot\n";
  for (std::size_t i = 0; i < kMeasures.size(); ++i) {
    const double left = kLeft + static_cast<double>(i) * (panel + kBetween);
    plots += fmt::format("set lmargin at screen {:.5f}\nset rmargin at screen {:.5f}\n", left / width,
                         (left + panel) / width);
    if (i == 0) {
      plots += fmt::format("set ytics scale 0 ({}) noenhanced\n{}", labels, titles);
      plots += fmt::format(
          "set label \"{} divided by the lock above: green where it is better, red where it is "
          "worse, in full colour from a factor of 2\" at screen 0.5, screen {:.5f} center noenhanced\n",
          kTokenLock, kBelow / 2 / height);
    } else {
      plots += "unset ytics\nunset label\n";
    }
    plots += fmt::format(
        "set title \"{0}\" offset 0,0.6 noenhanced\nplot ${1} using 1:2:(0.49):(0.47):3 with "
        "boxxyerror lc palette fs solid 1 noborder, ${1} using 1:2:4 with labels noenhanced\n",
        kMeasures[i].title, kMeasures[i].name);
  }
  plots += "unset multiplot\nunset output\nunset label\n";
  text += fmt::format(
      "set terminal svg size {:.0f},{:.0f} dynamic font 'DejaVu Sans,12' background '#ffffff'\n"
      "set output '{}.svg'\n{}",
      width, height, kGridPicture, plots);
  text += fmt::format(
      "set terminal pngcairo size {:.0f},{:.0f} font 'DejaVu Sans,13.5' background '#ffffff'\n"
      "set output '{}.png'\n{}",
      1.5 * width, 1.5 * height, kGridPicture, plots);
  return text;
}

}  // namespace declock::bench::figures
