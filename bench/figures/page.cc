#include "figures/page.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/units.h"
#include "figures/grid.h"
#include "figures/plots.h"

namespace declock::bench::figures {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>DecLock: the evaluation</title>
<style>
  body { margin: 0 auto; max-width: 76rem; padding: 1rem; color: #222; background: #fff;
         font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; overflow-wrap: break-word; }
  h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; font-size: 1.25rem; }
  h3 { margin: 1.5rem 0 .5rem; font-size: 1rem; }
  table { border-collapse: collapse; font-size: .9rem; }
  th { text-align: left; } th, td { padding: .25rem .6rem; vertical-align: top; border-bottom: 1px solid #e4e4e4; }
  .scroll { overflow-x: auto; }
  .plots { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); }
  figure { margin: 0; } img { width: 100%; height: auto; display: block; }
  img.grid { width: 62rem; max-width: none; }
  figcaption { font-size: .8rem; color: #555; }
  .claim { display: grid; grid-template-columns: 2.2rem 5.5rem minmax(0, 1fr) minmax(0, 1.35fr); gap: 0 .8rem;
           padding: .6rem 0; border-bottom: 1px solid #ccc; font-size: .9rem; }
  .claim .parts { display: grid; grid-template-columns: minmax(0, 1.6fr) minmax(0, 1fr) minmax(0, 1fr) 1.2rem 1.2rem;
                  gap: 0 .6rem; align-content: start; }
  .number { font-weight: bold; } .where { color: #555; } .why { grid-column: 3 / 5; color: #555; margin: .3rem 0 0; }
  .head { font-weight: bold; } .yes { color: #00702f; font-weight: bold; } .no { color: #b3261e; font-weight: bold; }
  .tag { border: 1px solid #777; border-radius: .3rem; padding: 0 .3rem; font-size: .75rem; white-space: nowrap; }
  @media (max-width: 50rem) {
    .claim { grid-template-columns: 2.2rem 1fr; } .claim > .text, .claim > .parts, .why { grid-column: 1 / 3; }
    .claim .parts { margin-top: .4rem; gap: .1rem .4rem; font-size: .85rem; }
    .claim.head .text, .claim.head .where { display: none; }
  }
</style>
</head>
<body>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      out += i + j > bytes.size() ? '=' : kDigits[group >> (18 - 6 * j) & 63];
  }
  return out;
}

std::string mark(bool good) {
  return good ? R"(<span class="yes" title="yes">&#10003;</span>)"
              : R"(<span class="no" title="no">&#10007;</span>)";
}

std::string_view caption_of(const std::string& figure) {
  if (figure == "3") return "Figure 3: what is wrong with earlier locks";
  if (figure == "12") return "Figure 12: throughput";
  if (figure == "13")
    return "Figure 13: latency and MN operations over the length of the critical section";
  if (figure == "14") return "Figure 14: the hottest lock under each policy";
  if (figure == "15") return "Figure 15: refetching, and long queues";
  if (figure == "16") return "Figure 16: resets and failures";
  if (figure == "18") return "Figure 18: a slow network between compute nodes";
  if (figure == "beyond")
    return "Beyond the paper: DecLock as published, ours, ShiftLock at full strength, and locks that "
           "cost nothing";
  return "Which slack to choose";
}

std::string_view text_of(const std::string& figure) {
  if (figure == "beyond") {
    return "Ours are <code>declock-token</code>, which hands over by messages alone, and "
           "<code>declock-slack</code> (200 us), with lock and data in one doorbell. ShiftLock "
           "and the ideal locks, "
           "which cost nothing and cannot exist, have the same doorbell; ShiftLock hands over by one "
           "message and has "
           "masked compare-and-swap. DecLock-PF is as published: data apart from the lock. "
           "<code>ideal</code> is strictly "
           "phase-fair, one writer and then all readers that wait, so a lock that lets more clients "
           "overtake can pass it; <code>ideal-group</code> serves up to 64 writers that wait, and then "
           "all readers. Slack falls behind "
           "ShiftLock where sections are "
           "long, and with more than 16 CNs unless the slack grows with them: 25 us per CN, the same "
           "200 us at 8 CNs, keeps it "
           "ahead to 128. Timestamps have 16 bits: where clients wait for more than 32 ms, as some do "
           "at 128 CNs or sections of 32, the "
           "order between nodes is lost.";
  }
  if (figure == "slack") {
    return "Slack is how much later than the first known remote waiter a local one may have asked and "
           "still go first. "
           "0 is the published order. More slack means more hand-overs that need no message, until "
           "whole phases of one "
           "node's clients begin to delay the others: choose where the P99 is lowest and the overtakes "
           "are bearable.";
  }
  if (figure == "16") {
    return "A reset signals each compute node once, not each client, so it is flat in the clients and "
           "grows with the "
           "nodes. Failures come at 200 ms; a node is suspected after 20 ms; the memory node is back "
           "after 100 ms with "
           "fresh memory.";
  }
  if (figure == "14")
    return "The paper draws distributions: a curve further left is faster, a steep one is fair.";
  return "";
}

std::string claim_html(const Claim& claim) {
  std::string parts;
  for (const Part& part : claim.parts) {
    parts += fmt::format("<span>{}</span><span>{}</span><span>{}</span>{}{}", escaped(part.what),
                         escaped(part.paper), escaped(part.ours), mark(part.agrees),
                         part.is_close ? mark(*part.is_close) : "<span></span>");
  }
  if (parts.empty()) parts = "<span>not run</span>";
  return fmt::format(
      "<div class=\"claim\"><span class=\"number\">{}</span><span class=\"where\">{}</span><span "
      "class=\"text\">{}{}</span>"
      "<div class=\"parts\">{}</div>{}</div>\n",
      claim.number, escaped(claim.figure), escaped(claim.text),
      claim.calibrated ? " <span class=\"tag\">calibrated</span>" : "", parts,
      !claim.note.empty() ? fmt::format("<p class=\"why\">{}</p>", escaped(claim.note)) : "");
}

std::string counts_text(const std::vector<Claim>& claims, std::optional<bool> calibrated) {
  const ClaimCounts counts = count(claims, calibrated);
  return fmt::format(
      "{} of {} agree in direction in every part ({} in most parts), {} of {} with numbers are within "
      "30 % in all",
      counts.agree, counts.run, counts.mostly_agree, counts.close, counts.numeric);
}

// Ours beside the others where the paper's settings are.
std::string ratios_html(const Evaluation& e) {
  struct At {
    std::string name;
    MicroConfig config;
  };
  std::vector<At> settings;
  for (const Setting& s : reads_sweep(e.scale)) {
    if (s.x == 0 || s.x == 50 || s.x == 90)
      settings.push_back({fmt::format("{} % reads", s.x), s.config});
  }
  settings.push_back({"section of 32 operations", section_sweep(e.scale).back().config});
  settings.push_back({"uniform choice of locks", skew_sweep(e.scale).back().config});
  const Setting nodes = nodes_sweep(e.scale).back();
  settings.push_back({fmt::format("{} CNs x 32 clients", nodes.x), nodes.config});
  std::string rows;
  for (const At& at : settings) {
    std::string cells;
    for (const Contestant& contestant : beyond()) {
      const Json* result = e.results.find(key_of(contestant.with(at.config)));
      if (result == nullptr) return "";
      cells += fmt::format("<td>{:.2f}</td><td>{:.0f}</td>", (*result)["throughput_mops"].get<double>(),
                           (*result)["latency_us"]["op"]["p99"].get<double>());
    }
    rows += fmt::format("<tr><td>{}</td>{}</tr>\n", at.name, cells);
  }
  std::string head = "<tr><th></th>", units = "<tr><th></th>";
  for (const Contestant& contestant : beyond()) {
    head += fmt::format("<th colspan=\"2\">{}</th>", escaped(contestant.label));
    units += "<th>M/s</th><th>P99, us</th>";
  }
  return fmt::format("<div class=\"scroll\"><table>{}</tr>{}</tr>\n{}</table></div>\n", head, units,
                     rows);
}

std::string picture(const std::filesystem::path& file) {
  std::ifstream in{file, std::ios::binary};
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in) throw std::runtime_error(fmt::format("{} cannot be read", file.string()));
  return base64(bytes.str());
}

std::string grid_html(const std::filesystem::path& pictures) {
  std::string others;
  for (std::size_t i = 1; i < grid_contestants().size(); ++i)
    others += fmt::format("{}{} (<code>{}</code>)", others.empty() ? "" : ", ",
                          escaped(grid_contestants()[i].label), grid_contestants()[i].lock);
  return fmt::format(
      "<h2>The grid: <code>{}</code> beside the others</h2>\n"
      "<p>A row is a setting, 8 CNs x 32 clients, 100,000 locks, Zipf 0.99 and a section of 1 unless "
      "it "
      "says otherwise; a box is what ours has, divided by what the lock above has: {}. "
      "All have lock and data in one doorbell. Published is DecLock-PF, with the order and the "
      "hand-over "
      "of the paper. Slack has 25 us per CN. The ideal locks cost nothing and cannot exist. "
      "A setting that belongs to two groups is shown in both.</p>\n"
      "<figure class=\"scroll\"><img class=\"grid\" alt=\"Ratios of throughput and P99 in every cell\" "
      "src=\"data:image/svg+xml;base64,{}\"><figcaption>{}.csv</figcaption></figure>\n",
      kTokenLock, others, picture(pictures / fmt::format("{}.svg", kGridPicture)), kGridPicture);
}

std::string paths_html(const Evaluation& e) {
  std::string text =
      "<h2>What each path costs</h2>\n<p>Scripts of a few clients, one step at a time: the MN "
      "operations and messages that each "
      "step took, beside what is documented of the lock (the peers' from their authors' code). The "
      "simulator's counts and the "
      "real ones are of the same protocol code; n counts polls, which take as long as the wait. "
      "DecLock's releases READ the queue "
      "only where somebody may wait; with <code>--release-read always</code>, as in the paper's "
      "figures, every release adds one. "
      "&ldquo;-&rdquo;: the fabric "
      "cannot play that script, or lacks an operation of the lock.</p>\n"
      "<div class=\"scroll\"><table><tr><th>lock</th><th>path</th><th>documented</th>";
  for (const Fabric fabric : e.fabrics) text += fmt::format("<th>{}</th>", to_string(fabric));
  text += "<th></th></tr>\n";
  for (const WalkedPath& walked : e.paths) {
    text += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td>", escaped(walked.lock),
                        escaped(walked.path->name), escaped(walked.path->cost.text()));
    for (const Fabric fabric : e.fabrics)
      text += fmt::format("<td>{}</td>", escaped(walked.text(fabric)));
    text += fmt::format("<td>{}</td></tr>\n", mark(walked.agrees()));
  }
  return text + "</table></div>\n";
}

std::string commits_text(const Evaluation& e) {
  std::string text = e.commit;
  for (const std::string& other : e.results.other_commits())
    text += fmt::format("; runs kept of commit {}", other);
  return text;
}

}  // namespace

std::string to_html(const Evaluation& e, const std::filesystem::path& pictures) {
  std::string text{kHead};
  text += fmt::format(
      "<h1>DecLock: the evaluation</h1>\n"
      "<p>Every figure of the DecLock paper that is not about applications, from the production code "
      "on the simulated "
      "fabric, and what we have beyond it. Virtual time, one model of the memory node's NIC for all of "
      "it (<code>{}</code>); "
      "ratios between locks are what counts, absolute values are the model's. docs/EVALUATION.md "
      "explains the model and its "
      "limits.</p>\n"
      "<p>Commit {}, seed {}, {} of virtual time per run after {} of warm-up{}, CASLock for four times "
      "as long. Unless a plot varies "
      "it: 8 CNs x 32 clients, "
      "1 MN, 100,000 locks, Zipf 0.99, 50 % reads, one data operation of 8 bytes per section. No run "
      "had a violation of "
      "mutual exclusion or a lost update: one that has ends the program.</p>\n",
      sim::NicModel{}.name, escaped(commits_text(e)), e.scale.seed, format_duration(e.scale.duration()),
      format_duration(e.scale.warmup()),
      e.scale.quick ? " (a quick run: short, and with few points; starved clients are miscounted)"
                    : "");
  text += fmt::format(
      "<h2>The claims</h2>\n<p><b>{}.</b> Without those that the model was calibrated on: {}. Those "
      "alone: {}. The first mark is for the direction, the second for "
      "30 %. A bound counts as met up to 10 % beyond it, what is similar, or like something, is within "
      "25 % of it.</p>\n",
      counts_text(e.claims, {}), counts_text(e.claims, false), counts_text(e.claims, true));
  text +=
      "<div class=\"claim head\"><span>#</span><span class=\"where\">figure</span><span "
      "class=\"text\">claim</span>"
      "<div "
      "class=\"parts\"><span></span><span>paper</span><span>ours</span><span></span><span></span></"
      "div></div>\n";
  for (const Claim& claim : e.claims) text += claim_html(claim);
  std::string figure;
  for (const Panel& panel : e.plan.panels) {
    if (panel.figure != figure) {
      if (!figure.empty()) text += "</div>\n";
      figure = panel.figure;
      text += fmt::format("<h2>{}</h2>\n", caption_of(figure));
      if (const std::string_view about = text_of(figure); !about.empty())
        text += fmt::format("<p>{}</p>\n", about);
      if (figure == "beyond") text += ratios_html(e);
      text += "<div class=\"plots\">\n";
    }
    text += fmt::format(
        "<figure><img alt=\"{}: {} against {}\" "
        "src=\"data:image/svg+xml;base64,{}\"><figcaption>{}.csv</figcaption></figure>\n",
        escaped(panel.title), escaped(panel.y), escaped(panel.x),
        picture(pictures / (panel.id + ".svg")), panel.id);
  }
  if (!figure.empty()) text += "</div>\n";
  if (!e.plan.grid.empty()) text += grid_html(pictures);
  if (!e.paths.empty()) text += paths_html(e);
  return text + "</body>\n</html>\n";
}

std::string to_json(const Evaluation& e) {
  Json claims = Json::array();
  for (const Claim& claim : e.claims) {
    Json parts = Json::array();
    for (const Part& part : claim.parts) {
      parts.push_back({{"what", part.what},
                       {"paper", part.paper},
                       {"ours", part.ours},
                       {"agrees", part.agrees},
                       {"within_30_percent", part.is_close ? Json(*part.is_close) : Json()}});
    }
    claims.push_back({{"number", claim.number},
                      {"figure", claim.figure},
                      {"claim", claim.text},
                      {"calibrated", claim.calibrated},
                      {"agrees", claim.was_run() ? Json(claim.agrees()) : Json()},
                      {"within_30_percent", claim.is_numeric() ? Json(claim.is_close()) : Json()},
                      {"note", claim.note},
                      {"parts", parts}});
  }
  Json panels = Json::object();
  for (const Panel& panel : e.plan.panels) {
    Json lines = Json::object();
    for (const Series& series : panel.series) {
      Json line = Json::array();
      for (const auto& [x, y] : points(panel, series, e.results)) line.push_back({x, y});
      lines[series.label] = line;
    }
    panels[panel.id] = {{"title", panel.title}, {"x", panel.x}, {"y", panel.y}, {"series", lines}};
    if (panel.ticks.empty()) continue;
    Json ticks = Json::array();
    for (const auto& [label, x] : panel.ticks) ticks.push_back(label);
    panels[panel.id]["ticks"] = ticks;
  }
  Json all{{"commit", commits_text(e)},
           {"seed", e.scale.seed},
           {"quick", e.scale.quick},
           {"duration", format_duration(e.scale.duration())},
           {"warmup", format_duration(e.scale.warmup())},
           {"defaults", Json::parse(config_text(defaults(e.scale)))},
           {"claims", claims},
           {"paths", Json::parse(paths_json(e.paths, e.commit))["paths"]},
           {"figures", panels}};
  if (!e.plan.grid.empty()) all["grid"] = grid_json(e.plan.grid, e.results);
  return all.dump() + "\n";
}

std::string summary(const std::vector<Claim>& claims) {
  std::string text = fmt::format(
      "Claims: {}.\n  Without those that the model was calibrated on: {}.\n  Those alone: {}.\n",
      counts_text(claims, {}), counts_text(claims, false), counts_text(claims, true));
  for (const Claim& claim : claims) {
    if (!claim.was_run() || claim.agrees()) continue;
    text += fmt::format("  {:>2} differs:", claim.number);
    for (const Part& part : claim.parts) {
      if (!part.agrees) text += fmt::format(" {}: {} ({});", part.what, part.ours, part.paper);
    }
    text += "\n";
  }
  return text;
}

}  // namespace declock::bench::figures
