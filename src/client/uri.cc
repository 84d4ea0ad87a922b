#include "client/uri.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

#include "base/units.h"
#include "layout/entry.h"

namespace declock::client {
namespace {

using Setting = Result<void, std::string>;

constexpr std::uint32_t kGateMax = 65'535;

template <class T>
Setting set_number(std::string_view value, T& into, T low, T high) {
  T number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || number < low || number > high) {
    return Failure{fmt::format("'{}' is not a whole number from {} to {}", value, low, high)};
  }
  into = number;
  return {};
}

Setting set_yes_or_no(std::string_view value, bool& into) {
  if (value != "yes" && value != "no") return Failure{fmt::format("'{}' is not yes or no", value)};
  into = value == "yes";
  return {};
}

Setting set_text(std::string_view value, std::string& into) {
  if (value.empty()) return Failure{std::string{"nothing is said"}};
  into = value;
  return {};
}

// Of whole units of so many nanoseconds.
Setting set_duration(std::string_view value, std::uint32_t& into, std::int64_t unit_ns) {
  const Result<Duration, std::string> parsed = parse_duration(value);
  if (!parsed) return Failure{parsed.error()};
  if (parsed->ns < unit_ns || parsed->ns > seconds(3600).ns) {
    return Failure{fmt::format("'{}' is not between {} and 1h", value, format_duration({unit_ns}))};
  }
  into = static_cast<std::uint32_t>(parsed->ns / unit_ns);
  return {};
}

Setting set_fairness(std::string_view value, Fairness& into) {
  static const std::map<std::string_view, Fairness> kNames{{"task-fair", Fairness::task_fair},
                                                           {"phase-fair", Fairness::phase_fair},
                                                           {"slack", Fairness::slack},
                                                           {"token", Fairness::token}};
  const auto named = kNames.find(value);
  if (named == kNames.end()) {
    return Failure{fmt::format("'{}' is not task-fair, phase-fair, slack or token", value)};
  }
  into = named->second;
  return {};
}

Setting set_bytes(std::string_view value, std::uint64_t& into) {
  const Result<std::uint64_t, std::string> parsed = parse_bytes(value);
  if (!parsed) return Failure{parsed.error()};
  if (*parsed < 4096) return Failure{fmt::format("'{}' is less than 4KiB", value)};
  into = *parsed / 8 * 8;
  return {};
}

enum class For : std::uint8_t { any, shm, network, verbs };

struct Known {
  std::string_view name;
  For fabric;
  Setting (*set)(std::string_view value, Options& options);
};

constexpr Known kKnown[] = {
    {"fairness", For::any, [](std::string_view v, Options& o) { return set_fairness(v, o.fairness); }},
    {"slack", For::any,
     [](std::string_view v, Options& o) { return set_duration(v, o.slack_us, 1000); }},
    {"gate", For::any,
     [](std::string_view v, Options& o) { return set_number(v, o.gate, 1U, kGateMax); }},
    {"workers", For::any,
     [](std::string_view v, Options& o) { return set_number<std::uint32_t>(v, o.workers, 1, 256); }},
    {"patience", For::any,
     [](std::string_view v, Options& o) { return set_duration(v, o.patience_ms, 1'000'000); }},
    {"metrics", For::any, [](std::string_view v, Options& o) { return set_text(v, o.metrics); }},
    {"trace", For::any, [](std::string_view v, Options& o) { return set_text(v, o.trace); }},
    {"publish", For::any, [](std::string_view v, Options& o) { return set_yes_or_no(v, o.publish); }},
    {"members", For::shm,
     [](std::string_view v, Options& o) { return set_number<std::uint32_t>(v, o.members, 1, 1024); }},
    {"size", For::shm, [](std::string_view v, Options& o) { return set_bytes(v, o.size); }},
    {"dir", For::shm, [](std::string_view v, Options& o) { return set_text(v, o.directory); }},
    {"create", For::shm, [](std::string_view v, Options& o) { return set_yes_or_no(v, o.create); }},
    {"remove", For::shm,
     [](std::string_view v, Options& o) { return set_yes_or_no(v, o.remove_when_last); }},
    {"secret", For::network, [](std::string_view v, Options& o) { return set_text(v, o.secret); }},
    {"zookeeper", For::network,
     [](std::string_view v, Options& o) { return set_text(v, o.zookeeper); }},
    {"host", For::network, [](std::string_view v, Options& o) { return set_text(v, o.host); }},
    {"device", For::verbs, [](std::string_view v, Options& o) { return set_text(v, o.device); }},
    {"port", For::verbs, [](std::string_view v, Options& o) { return set_number(v, o.port, 1, 255); }},
    {"gid-index", For::verbs,
     [](std::string_view v, Options& o) { return set_number(v, o.gid_index, 0, 255); }},
    {"mtu", For::verbs, [](std::string_view v, Options& o) { return set_number(v, o.mtu, 256, 4096); }},
};

bool is_for(For whom, Fabric fabric) {
  switch (whom) {
    case For::any:
      return true;
    case For::shm:
      return fabric == Fabric::shm;
    case For::network:
      return fabric != Fabric::shm;
    case For::verbs:
      return fabric == Fabric::verbs;
  }
  return false;
}

std::string accepted(Fabric fabric) {
  std::string names;
  for (const Known& known : kKnown) {
    if (is_for(known.fabric, fabric))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  return names;
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Setting set_options(std::string_view text, Target& target) {
  for (const std::string& setting : split(text, '&')) {
    const std::size_t equals = setting.find('=');
    const std::string name = setting.substr(0, equals);
    const Known* known = nullptr;
    for (const Known& k : kKnown) {
      if (k.name == name && is_for(k.fabric, target.fabric)) known = &k;
    }
    if (known == nullptr) {
      return Failure{
          fmt::format("'{}' is no option here; accepted: {}", name, accepted(target.fabric))};
    }
    if (equals == std::string::npos)
      return Failure{fmt::format("'{}' has no value: {}=..", name, name)};
    const Setting set = known->set(std::string_view{setting}.substr(equals + 1), target.options);
    if (!set) return Failure{fmt::format("{}: {}", name, set.error())};
  }
  return {};
}

}  // namespace

Result<Target, std::string> parse_uri(std::string_view uri, const Options& options) {
  Target target;
  target.options = options;
  const std::size_t question = uri.find('?');
  const std::string_view what = uri.substr(0, question);
  const auto fail = [&](const std::string& why) { return Failure{fmt::format("{}: {}", uri, why)}; };
  std::string_view hosts;
  if (what.starts_with("shm:")) {
    target.name = what.substr(4);
  } else if (what.starts_with("tcp://")) {
    target.fabric = Fabric::tcp;
    hosts = what.substr(6);
  } else if (what.starts_with("verbs://")) {
    target.fabric = Fabric::verbs;
    hosts = what.substr(8);
  } else {
    return fail(
        "is no cluster; accepted: shm:NAME, tcp://HOST:PORT[,HOST:PORT], "
        "verbs://HOST:PORT[,HOST:PORT]");
  }
  if (target.fabric != Fabric::shm) {
    target.hosts = split(hosts, ',');
    for (const std::string& host : target.hosts) {
      if (host.empty()) return fail("a HOST:PORT is missing");
    }
  }
  if (question != std::string_view::npos) {
    const Setting set = set_options(uri.substr(question + 1), target);
    if (!set) return fail(set.error());
  }
  if (target.options.workers > kWorkersMax)
    return fail(fmt::format("workers: at most {}", kWorkersMax));
  if (target.options.gate < 1 || target.options.gate > kGateMax)
    return fail(
        fmt::format("gate: '{}' is not a whole number from 1 to {}", target.options.gate, kGateMax));
  if (target.fabric != Fabric::shm && target.options.secret.empty()) {
    return fail("the cluster's secret is missing; say where it is: ?secret=FILE");
  }
  return target;
}

}  // namespace declock::client
