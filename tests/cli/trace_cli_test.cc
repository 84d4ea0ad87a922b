// declock trace, with files as processes write them.
#include <nlohmann/json.hpp>

#include "cli/runner.h"

namespace declock {
namespace {

using nlohmann::json;

json process_name(int pid) {
  return {{"name", "process_name"},
          {"ph", "M"},
          {"pid", pid},
          {"tid", 0},
          {"args", {{"name", fmt::format("declock {}", pid)}}}};
}

struct Held {
  int pid;
  int tid;
  double called_us;
  double got_us;
  double released_us;
  int ticket;
  int sequence = 0;
  int epoch = 1;
  std::string lock = "orders/42";
};

void add(json& events, const Held& h) {
  const auto slice = [&](const char* name, double from, double to) {
    events.push_back({{"name", name},
                      {"cat", "lock"},
                      {"ph", "X"},
                      {"ts", from},
                      {"dur", to - from},
                      {"pid", h.pid},
                      {"tid", h.tid},
                      {"args",
                       {{"lock", h.lock},
                        {"mode", "exclusive"},
                        {"ticket", h.ticket},
                        {"sequence", h.sequence},
                        {"epoch", h.epoch}}}});
  };
  slice("wait", h.called_us, h.got_us);
  slice("hold", h.got_us, h.released_us);
  slice("release", h.released_us, h.released_us + 2);
}

class TraceCli : public CliTest {
 protected:
  std::string file(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    std::ofstream{path} << text;
    return path;
  }
  std::string trace(const std::string& name, const json& events) {
    return file(name, json{{"displayTimeUnit", "ns"}, {"traceEvents", events}}.dump());
  }
  json merged(const std::string& files) {
    const Outcome outcome = run("trace " + files + " --out -");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out)["traceEvents"];
  }
  // Their two ends.
  static std::vector<std::pair<json, json>> arrows(const json& events) {
    std::map<std::uint64_t, std::pair<json, json>> by_id;
    for (const json& e : events) {
      if (e["ph"] == "s") by_id[e["id"]].first = e;
      if (e["ph"] == "f") by_id[e["id"]].second = e;
    }
    std::vector<std::pair<json, json>> all;
    for (const auto& [id, arrow] : by_id) all.push_back(arrow);
    return all;
  }
};

TEST_F(TraceCli, AnArrowLeadsFromTheReleaseToTheWaitThatItEnded) {
  json a{process_name(10)}, b{process_name(20)};
  add(a, {10, 1, 100, 101, 200.5, 5});
  add(b, {20, 1, 150, 203.25, 300, 6});
  const json events = merged(trace("a", a) + " " + trace("b", b));
  EXPECT_EQ(events.size(), 2u + 6u + 2u);
  const auto all = arrows(events);
  ASSERT_EQ(all.size(), 1u);
  const auto& [from, to] = all[0];
  EXPECT_EQ(from["pid"], 10);
  EXPECT_NEAR(from["ts"].get<double>(), 200.501, 1e-6)
      << "inside the release, not at the end of the hold";
  EXPECT_EQ(to["pid"], 20);
  EXPECT_EQ(to["bp"], "e");
  EXPECT_EQ(from["cat"], to["cat"]);
  EXPECT_EQ(from["name"], "remote hand-over");
  EXPECT_GT(to["ts"], 203.2);
  EXPECT_LT(to["ts"], 203.25) << "inside the wait, not at the beginning of the hold";
}

TEST_F(TraceCli, ALocalHandOverHasTheSameTicketAndTheNextSequence) {
  json a{process_name(10)};
  add(a, {10, 1, 100, 101, 200, 5, 0});
  add(a, {10, 2, 150, 201, 300, 5, 1});
  const auto all = arrows(merged(trace("a", a)));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].first["name"], "local hand-over");
  EXPECT_EQ(all[0].first["tid"], 1);
  EXPECT_EQ(all[0].second["tid"], 2);
}

TEST_F(TraceCli, WhoDidNotWaitGotItFromNobody) {
  json a{process_name(10)};
  add(a, {10, 1, 100, 101, 200, 5});
  add(a, {10, 1, 250, 251, 300, 6});                     // came later
  add(a, {10, 2, 150, 201, 220, 6, 0, 2});               // another epoch
  add(a, {10, 3, 150, 201, 220, 6, 0, 1, "orders/43"});  // another lock
  add(a, {10, 4, 150, 201, 220, 4});                     // was before it
  EXPECT_EQ(arrows(merged(trace("a", a))).size(), 0u);
}

TEST_F(TraceCli, AWriterGetsItFromTheLastReader) {
  json a{process_name(10)};
  add(a, {10, 1, 100, 101, 220, 5});
  add(a, {10, 2, 100, 101, 200, 6});
  add(a, {10, 3, 150, 222, 300, 7});
  const auto all = arrows(merged(trace("a", a)));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].first["tid"], 1);
}

TEST_F(TraceCli, WhatAnUntracedProcessHandedOverHasNoArrow) {
  json a{process_name(10)};
  add(a, {10, 1, 100, 101, 200, 5});
  add(a, {10, 2, 150, 301, 400, 7});  // from ticket 6, of another process
  EXPECT_EQ(arrows(merged(trace("a", a))).size(), 0u);
}

TEST_F(TraceCli, ProcessesWithTheSameNumberStayApart) {
  json a{process_name(10)}, b{process_name(10)};
  add(a, {10, 1, 100, 101, 200, 5});
  add(b, {10, 1, 150, 203, 300, 6});
  const json events = merged(trace("a", a) + " " + trace("b", b));
  std::set<int> pids;
  for (const json& e : events) pids.insert(e["pid"].get<int>());
  EXPECT_EQ(pids, (std::set<int>{10, 11}));
  EXPECT_EQ(arrows(events).size(), 1u);
}

TEST_F(TraceCli, SaysWhatIsInTheFile) {
  json a{process_name(10)};
  add(a, {10, 1, 100, 101, 200, 5, 0});
  add(a, {10, 2, 150, 201, 300, 5, 1});
  const std::string out = folder_ / "merged.json";
  const Outcome outcome = run("trace " + trace("a", a) + " --out " + out);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("7 events of 1 processes, 1 local and 0 remote"), std::string::npos)
      << outcome.out;
  EXPECT_TRUE(json::parse(slurp(out)).contains("traceEvents"));
}

TEST_F(TraceCli, ABadFileGetsOneLineThatNamesIt) {
  const std::string out = " --out " + (folder_ / "merged.json").string();
  json good{process_name(10)};
  add(good, {10, 1, 100, 101, 200, 5});
  const std::string fine = trace("fine", good);
  expect_refused("trace", "FILE");
  expect_refused("trace " + fine, "--out");
  expect_refused("trace /no/such/file" + out, "'/no/such/file' cannot be read: No such file");
  expect_refused("trace " + folder_.string() + out, "is a directory");
  expect_refused("trace " + fine + " " + fine + out, "twice");
  expect_refused("trace " + file("empty", "") + out, "it is empty");
  expect_refused("trace " + file("cut", "{\"traceEvents\":[{\"name\"") + out, "no JSON at byte");
  expect_refused("trace " + file("list", "[1,2]") + out, "traceEvents");
  json bad = good;
  bad[2]["args"].erase("ticket");
  expect_refused("trace " + fine + " " + trace("bad", bad) + out, "event 3 has no ticket");
  bad = good;
  bad[1]["ts"] = "yesterday";
  expect_refused("trace " + trace("bad", bad) + out, "event 2 has no time");
  expect_refused("trace " + fine + " --out /no/such/directory/x", "--out: '/no/such/directory/x'");
  EXPECT_FALSE(fs::exists(folder_ / "merged.json")) << "a failure leaves no file";
}

}  // namespace
}  // namespace declock
