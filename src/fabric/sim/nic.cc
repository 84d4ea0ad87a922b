#include "sim/nic.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace declock::sim {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr std::array<NicField, 18> kFields{{
    {"one_way_ns", &NicModel::one_way_ns, 1, kSecondNs},
    {"verb_cpu_ns", &NicModel::verb_cpu_ns, 0, kSecondNs},
    {"processing_units", &NicModel::processing_units, 1, 1024},
    {"read_write_ns", &NicModel::read_write_ns, 0, kSecondNs},
    {"atomic_ns", &NicModel::atomic_ns, 0, kSecondNs},
    {"atomic_slots", &NicModel::atomic_slots, 1, 1 << 20},
    {"atomic_slot_held_ns", &NicModel::atomic_slot_held_ns, 0, kSecondNs},
    {"payload_ps_per_byte", &NicModel::payload_ps_per_byte, 0, 1'000'000},
    {"message_one_way_ns", &NicModel::message_one_way_ns, 0, kSecondNs},
    {"message_cpu_ns", &NicModel::message_cpu_ns, 0, kSecondNs},
    {"jitter_mean_ns", &NicModel::jitter_mean_ns, 0, kSecondNs},
    {"hiccup_ns", &NicModel::hiccup_ns, 0, kSecondNs},
    {"hiccup_one_in", &NicModel::hiccup_one_in, 0, kSecondNs},
    {"torn_read_one_in", &NicModel::torn_read_one_in, 0, kSecondNs},
    {"torn_read_gap_ns", &NicModel::torn_read_gap_ns, 0, kSecondNs},
    {"clock_offset_max_ns", &NicModel::clock_offset_max_ns, 0, kSecondNs},
    {"clock_drift_max_ppb", &NicModel::clock_drift_max_ppb, 0, 1'000'000},
    {"think_max_ns", &NicModel::think_max_ns, 1, kSecondNs},
}};

bool known(const std::string& key) {
  if (key == "name") return true;
  for (const NicField& field : kFields) {
    if (key == field.name) return true;
  }
  return false;
}

}  // namespace

std::span<const NicField> nic_fields() {
  return kFields;
}

std::string to_json(const NicModel& model) {
  Json json{{"name", model.name}};
  for (const NicField& field : kFields) json[field.name] = model.*field.member;
  return json.dump(2) + "\n";
}

Result<NicModel, std::string> nic_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return Failure<std::string>{"it is not a JSON object; 'declock nic' prints one to start from"};
  }
  for (const auto& [key, value] : json.items()) {
    if (!known(key)) {
      return Failure{fmt::format("field '{}' is unknown; 'declock nic' prints all fields", key)};
    }
  }
  NicModel model;
  if (!json.contains("name") || !json["name"].is_string()) {
    return Failure<std::string>{"field 'name' is missing or not a string"};
  }
  model.name = json["name"].get<std::string>();
  for (const NicField& field : kFields) {
    if (!json.contains(field.name)) {
      return Failure{fmt::format("field '{}' is missing; it takes a whole number from {} to {}",
                                 field.name, field.low, field.high)};
    }
    const Json& value = json[field.name];
    if (!value.is_number_integer() || value < field.low || value > field.high) {
      return Failure{fmt::format("field '{}' is {}; it takes a whole number from {} to {}", field.name,
                                 value.is_primitive() ? value.dump() : value.type_name(), field.low,
                                 field.high)};
    }
    model.*field.member = value.get<std::int64_t>();
  }
  return model;
}

Result<NicModel, std::string> load_nic(const std::string& name_or_path) {
  if (name_or_path == NicModel{}.name) return NicModel{};
  std::ifstream file(name_or_path);
  if (!file) {
    return Failure{fmt::format("'{}' is neither the built-in model {} nor a file that can be read ({})",
                               name_or_path, NicModel{}.name, std::strerror(errno))};
  }
  std::ostringstream text;
  text << file.rdbuf();
  Result<NicModel, std::string> model = nic_from_json(text.str());
  if (!model) return Failure{fmt::format("{}: {}", name_or_path, model.error())};
  return model;
}

}  // namespace declock::sim
