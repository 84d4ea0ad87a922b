// What Prometheus gets, with its own tools; and the dashboard and the alerts that are made of it.
#include <nlohmann/json.hpp>
#include <set>

#include "cli/runner.h"
#include "memnode/snapshot.h"
#include "metrics/families.h"
#include "process/programs.h"
#include "support/soon.h"

namespace declock {
namespace {

using process::Program;

// The number behind `text` in what a program said.
std::string number_behind(Program& program, const std::string& text) {
  const std::string& said = program.output();
  const std::size_t at = said.find(text) + text.size();
  return said.substr(at, said.find_first_not_of("0123456789", at) - at);
}

class MetricsCli : public CliTest {
 protected:
  std::string secret() {
    const std::string path = folder_ / "secret";
    if (!fs::exists(path)) {
      EXPECT_EQ(run("secret " + path).status, 0);
    }
    return path;
  }
  Outcome shell(const std::string& command) {
    const std::string out = folder_ / "out", err = folder_ / "err";
    const int status = std::system(fmt::format("({}) >{} 2>{} </dev/null", command, out, err).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(out), slurp(err)};
  }
  // Asks as Prometheus does, and has its own tool complain.
  std::string scraped(const std::string& port) {
    const std::string file = folder_ / "metrics";
    const Outcome got = shell(fmt::format("curl -sSf http://127.0.0.1:{}/metrics -o {}", port, file));
    EXPECT_EQ(got.status, 0) << got.err;
    const Outcome checked = shell("promtool check metrics <" + file);
    EXPECT_EQ(checked.status, 0) << checked.err;
    EXPECT_EQ(checked.out + checked.err, "");
    return slurp(file);
  }
};

TEST_F(MetricsCli, AMemoryNodeTellsPrometheusWhatItHas) {
  Program mn{{DECLOCK_PROGRAM, "mn", "--listen", "127.0.0.1:0", "--size", "1MiB", "--secret", secret(),
              "--metrics", "127.0.0.1:0", "--members", "4"}};
  ASSERT_TRUE(mn.says("serves")) << mn.output();
  const std::string port = number_behind(mn, "metrics are at port ");
  const std::string text = scraped(port);
  for (const char* line :
       {"declock_memory_node_memory_bytes{mn=\"0\"} 1048576",
        "declock_memory_node_allocated_bytes{mn=\"0\"} 0",
        "declock_memory_node_incarnation{mn=\"0\"} 1", "declock_cluster_members_limit{mn=\"0\"} 4",
        "declock_cluster_memory_nodes{mn=\"0\"} 1"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  const std::string node = number_behind(mn, "listens at 127.0.0.1:");
  const Outcome locked =
      run(fmt::format("lock jobs --coordinator 127.0.0.1:{} --secret {}", node, secret()));
  EXPECT_EQ(locked.status, 0) << locked.err;
  EXPECT_TRUE(soon([&] {
    return scraped(port).find("declock_memory_node_names{mn=\"0\"} 0") == std::string::npos;
  }));
  // Somebody with another secret.
  const std::string other = folder_ / "other";
  EXPECT_EQ(run("secret " + other).status, 0);
  EXPECT_NE(run(fmt::format("lock jobs --coordinator 127.0.0.1:{} --secret {}", node, other)).status,
            0);
  EXPECT_TRUE(soon([&] {  // it counts now and then
    return scraped(port).find("connections_refused_total{mn=\"0\"} 0") == std::string::npos;
  }));

  const Outcome taken = run(fmt::format(
      "mn --listen 127.0.0.1:0 --size 1MiB --metrics 127.0.0.1:{} --secret {}", port, secret()));
  EXPECT_EQ(taken.status, 2);
  EXPECT_NE(taken.err.find("is taken"), std::string::npos) << taken.err;
  mn.send(SIGTERM);
  EXPECT_EQ(mn.wait(), 0) << "it ends, whoever asked before";
}

TEST_F(MetricsCli, ABadAddressGetsOneLine) {
  expect_refused("mn --metrics here --secret " + secret(), "HOST:PORT");
  expect_refused("mn --metrics 127.0.0.1:123456 --secret " + secret(), "65535");
  const Outcome foreign = run("mn --listen 127.0.0.1:0 --metrics 192.0.2.1:0 --secret " + secret());
  EXPECT_EQ(foreign.status, 2);
  EXPECT_NE(foreign.err.find("not an address of this machine"), std::string::npos) << foreign.err;
}

// ---------------------------------------------------------------- the dashboard and the alerts

std::set<std::string> names_that_exist() {
  Stats stats;
  stats.tables.emplace_back();
  stats.operations.push_back({"read", "acquire", 1});
  std::vector<metrics::Family> families = metrics::families_of(stats);
  for (metrics::Family& family : memnode::families_of(memnode::Snapshot{}))
    families.push_back(std::move(family));
  std::set<std::string> names;
  for (const metrics::Family& family : families) {
    if (family.type != metrics::Type::histogram) {
      names.insert(family.name);
      continue;
    }
    for (const char* part : {"_bucket", "_sum", "_count"}) names.insert(family.name + part);
  }
  return names;
}

std::set<std::string> names_in(const std::string& text) {
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz_";
  std::set<std::string> names;
  for (std::size_t at = text.find("declock_"); at != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_not_of(kLetters, at), text.size());
    names.insert(text.substr(at, end - at));
    at = text.find("declock_", end);
  }
  return names;
}

// A query with values in place of the dashboard's variables: $__rate_interval, and others in label matches.
std::string filled_in(std::string query) {
  for (std::size_t at = query.find('$'); at != std::string::npos; at = query.find('$', at)) {
    const std::size_t end =
        std::min(query.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at + 1), query.size());
    const std::string name = query.substr(at + 1, end - at - 1);
    query.replace(at, end - at, name == "__rate_interval" ? "5m" : ".*");
  }
  return query;
}

class Dashboard : public MetricsCli {
 protected:
  const fs::path grafana_ = fs::path{DECLOCK_SOURCE} / "docs" / "grafana";
};

TEST_F(Dashboard, ShowsEveryMetricAndNoOther) {
  const auto dashboard = nlohmann::json::parse(slurp(grafana_ / "declock.json"));
  EXPECT_EQ(dashboard["templating"]["list"][0]["type"], "datasource");
  std::string queries;
  std::set<std::uint64_t> ids;
  for (const auto& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<std::uint64_t>()).second);
    if (panel["type"] == "row") continue;
    EXPECT_EQ(panel["datasource"]["uid"], "${datasource}") << panel["title"];
    for (const auto& target : panel["targets"]) queries += target["expr"].get<std::string>() + "\n";
  }
  EXPECT_EQ(names_in(queries), names_that_exist());
}

TEST_F(Dashboard, PrometheusUnderstandsItsQueries) {
  const auto dashboard = nlohmann::json::parse(slurp(grafana_ / "declock.json"));
  const std::string rules = folder_ / "rules.yml";
  std::ofstream file{rules};
  file << "groups:\n- name: dashboard\n  rules:\n";
  int n = 0;
  for (const auto& panel : dashboard["panels"]) {
    for (const auto& target : panel.value("targets", nlohmann::json::array())) {
      file << fmt::format("  - record: panel:query:{}\n    expr: '{}'\n", n++,
                          filled_in(target["expr"].get<std::string>()));
    }
  }
  file.close();
  EXPECT_GT(n, 20);
  const Outcome checked = shell("promtool check rules " + rules);
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
}

TEST_F(Dashboard, AlertsAreValidAndUseMetricsThatExist) {
  const std::string alerts = grafana_ / "alerts.yml";
  const Outcome checked = shell("promtool check rules " + alerts);
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  const std::set<std::string> exist = names_that_exist();
  for (const std::string& name : names_in(slurp(alerts))) EXPECT_TRUE(exist.contains(name)) << name;
}

}  // namespace
}  // namespace declock
