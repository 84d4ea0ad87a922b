#include "looks/merge_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

namespace declock::looks {
namespace {

using Json = nlohmann::ordered_json;

// A slice of a lock operation.
struct Step {
  double from_us = 0;
  double to_us = 0;
  std::uint64_t ticket = 0;
  std::uint64_t sequence = 0;
  const Json* event = nullptr;
};

// What happened to one lock between two resets.
struct LockStory {
  std::vector<Step> waits;
  std::vector<Step> releases;        // by when they began
  std::set<std::uint64_t> released;  // tickets
};

using Stories = std::map<std::pair<std::string, std::uint64_t>, LockStory>;  // by lock and epoch

bool is_number(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_number();
}

bool is_count(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_number_unsigned();
}

// Why this is no event of a trace; empty: it is one.
std::string fault_of(const Json& event) {
  if (!event.is_object() || !event.contains("ph") || !event["ph"].is_string()) return "has no phase";
  if (!is_count(event, "pid")) return "has no pid";
  if (event["ph"] == "M") return "";
  if (!is_number(event, "ts")) return "has no time";
  if (event["ph"] != "X" || event.value("cat", Json{}) != "lock") return "";
  if (!is_number(event, "dur")) return "has no duration";
  if (!event.contains("name") || !event["name"].is_string()) return "has no name";
  if (!event.contains("args") || !event["args"].is_object()) return "does not say which lock";
  const Json& args = event["args"];
  if (!args.contains("lock") || !args["lock"].is_string()) return "does not say which lock";
  for (const char* key : {"ticket", "sequence", "epoch"}) {
    if (!is_count(args, key)) return fmt::format("has no {}", key);
  }
  return "";
}

// And adds to `lost` what the process says that it left out.
Result<Json, std::string> events_of(const TraceText& trace, std::uint64_t& lost) {
  const auto refused = [&](const std::string& why) {
    return Failure{
        fmt::format("'{}' is no trace of lock operations: {}; give files that processes "
                    "wrote by the option trace=FILE of their URI",
                    trace.path, why)};
  };
  Json whole;
  try {
    whole = Json::parse(trace.text);
  } catch (const Json::parse_error& error) {
    return refused(
        fmt::format("no JSON at byte {}{}", error.byte, trace.text.empty() ? ", it is empty" : ""));
  }
  if (!whole.is_object() || !whole.contains("traceEvents") || !whole["traceEvents"].is_array())
    return refused("it has no list \"traceEvents\"");
  if (whole.contains("otherData") && whole["otherData"].is_object() &&
      is_count(whole["otherData"], "lost"))
    lost += whole["otherData"]["lost"].get<std::uint64_t>();
  Json events = std::move(whole["traceEvents"]);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::string fault = fault_of(events[i]);
    if (!fault.empty()) return refused(fmt::format("event {} {}", i + 1, fault));
  }
  return events;
}

// Processes of different machines may have the same number: the later one gets another.
void renumber(Json& events, std::set<std::uint64_t>& taken) {
  std::map<std::uint64_t, std::uint64_t> numbers;
  for (Json& event : events) {
    const auto pid = event["pid"].get<std::uint64_t>();
    if (!numbers.contains(pid)) {
      std::uint64_t number = pid;
      if (taken.contains(pid)) number = *taken.rbegin() + 1;
      taken.insert(number);
      numbers[pid] = number;
    }
    event["pid"] = numbers[pid];
  }
}

void tell(const Json& event, Stories& stories) {
  if (event["ph"] != "X" || event.value("cat", Json{}) != "lock") return;
  const Json& args = event["args"];
  const double from_us = event["ts"].get<double>();
  const Step step{from_us, from_us + event["dur"].get<double>(), args["ticket"].get<std::uint64_t>(),
                  args["sequence"].get<std::uint64_t>(), &event};
  LockStory& story = stories[{args["lock"].get<std::string>(), args["epoch"].get<std::uint64_t>()}];
  if (event["name"] == "wait") story.waits.push_back(step);
  if (event["name"] == "release") {
    story.releases.push_back(step);
    story.released.insert(step.ticket);
  }
}

// The release that ended this wait. None: it did not wait, or the one who released was not traced.
const Step* ended_by(const Step& wait, const LockStory& story) {
  // The ticket before it was in the queue: if that one's process left no trace, another's release would look like it.
  if (wait.sequence == 0 && (wait.ticket == 0 || !story.released.contains(wait.ticket - 1)))
    return nullptr;
  const std::vector<Step>& releases = story.releases;
  auto after = std::upper_bound(releases.begin(), releases.end(), wait.to_us,
                                [](double us, const Step& r) { return us < r.from_us; });
  // Backwards from its end, no further than its beginning.
  while (after != releases.begin() && std::prev(after)->from_us >= wait.from_us) {
    --after;
    const bool local = after->ticket == wait.ticket && after->sequence + 1 == wait.sequence;
    const bool remote = wait.sequence == 0 && after->ticket < wait.ticket;
    if (local || remote) return &*after;
  }
  return nullptr;
}

Json arrow_end(const char* phase, std::uint64_t id, bool local, const Step& at, double us) {
  Json end{{"name", local ? "local hand-over" : "remote hand-over"},
           {"cat", "hand-over"},
           {"ph", phase},
           {"id", id},
           {"ts", us},
           {"pid", (*at.event)["pid"]},
           {"tid", at.event->value("tid", Json{0})}};
  if (*phase == 'f') end["bp"] = "e";  // to the slice around it, not to the next one
  return end;
}

std::vector<Json> arrows_of(Stories& stories, MergedTrace& merged) {
  std::vector<Json> arrows;
  std::uint64_t id = 0;
  for (auto& [lock, story] : stories) {
    std::stable_sort(story.releases.begin(), story.releases.end(),
                     [](const Step& a, const Step& b) { return a.from_us < b.from_us; });
    for (const Step& wait : story.waits) {
      const Step* release = ended_by(wait, story);
      if (release == nullptr) continue;
      const bool local = wait.sequence > 0;
      (local ? merged.local : merged.remote) += 1;
      id += 1;
      // Inside of the release: where it begins, the hold ends, and a viewer takes either.
      const double start_us = std::min(release->from_us + 0.001, release->to_us);
      arrows.push_back(arrow_end("s", id, local, *release, start_us));
      // Just before the wait's end, since there the hold begins; never before the arrow does.
      const double end_us = std::max(start_us, wait.to_us - 0.001);
      arrows.push_back(arrow_end("f", id, local, wait, end_us));
    }
  }
  return arrows;
}

std::string written(const std::vector<Json>& events) {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  for (std::size_t i = 0; i < events.size(); ++i) {
    text += events[i].dump(-1, ' ', false, Json::error_handler_t::replace);
    text += i + 1 < events.size() ? ",\n" : "\n";
  }
  return text + "]}\n";
}

}  // namespace

Result<MergedTrace, std::string> merge_traces(const std::vector<TraceText>& traces) {
  MergedTrace merged;
  std::vector<Json> all;
  std::set<std::uint64_t> pids;
  for (const TraceText& trace : traces) {
    Result<Json, std::string> events = events_of(trace, merged.lost);
    if (!events) return Failure{events.error()};
    renumber(*events, pids);
    for (Json& event : *events) all.push_back(std::move(event));
  }
  merged.events = all.size();
  merged.processes = pids.size();
  Stories stories;
  for (const Json& event : all) tell(event, stories);
  for (Json& arrow : arrows_of(stories, merged)) all.push_back(std::move(arrow));
  // Names first, then by time.
  std::stable_sort(all.begin(), all.end(), [](const Json& a, const Json& b) {
    const auto key = [](const Json& e) {
      return std::tuple{e["ph"] != "M", e["ph"] == "M" ? 0.0 : e["ts"].get<double>()};
    };
    return key(a) < key(b);
  });
  merged.text = written(all);
  return merged;
}

}  // namespace declock::looks
