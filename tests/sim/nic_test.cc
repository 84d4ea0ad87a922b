#include "sim/nic.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace declock::sim {
namespace {

TEST(NicFile, HasEveryFieldAndComesBackAsItWas) {
  NicModel model;
  model.name = "other";
  model.one_way_ns = 1234;
  model.think_max_ns = 1;
  const auto read = nic_from_json(to_json(model));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, model);
}

TEST(NicFile, AMissingFieldIsNamedWhicheverItIs) {
  const auto whole = nlohmann::json::parse(to_json(NicModel{}));
  for (const auto& [key, value] : whole.items()) {
    auto part = whole;
    part.erase(key);
    const auto read = nic_from_json(part.dump());
    ASSERT_FALSE(read) << key;
    EXPECT_NE(read.error().find("'" + key + "' is missing"), std::string::npos) << read.error();
  }
}

TEST(NicFile, RefusesWhatItDoesNotKnowOrCannotBe) {
  const auto whole = nlohmann::json::parse(to_json(NicModel{}));
  const auto with = [&](const char* key, const nlohmann::json& value) {
    auto changed = whole;
    changed[key] = value;
    return nic_from_json(changed.dump());
  };
  EXPECT_FALSE(with("one_way_us", 1));
  EXPECT_FALSE(with("one_way_ns", -1));
  EXPECT_FALSE(with("one_way_ns", 1.5));
  EXPECT_FALSE(with("one_way_ns", "750"));
  EXPECT_FALSE(with("one_way_ns", 18446744073709551615ull));
  EXPECT_FALSE(with("processing_units", 0));
  EXPECT_FALSE(with("atomic_slots", 0));
  EXPECT_FALSE(with("name", 7));
  EXPECT_FALSE(with("one_way_ns", 0));  // time must go on
  EXPECT_FALSE(with("think_max_ns", 0));
  EXPECT_TRUE(with("atomic_ns", 0));
  EXPECT_FALSE(nic_from_json("{\"name\":\"x\",\"one_way_ns\":" + std::string(50'000, '[') +
                             std::string(50'000, ']') + "}"));
  EXPECT_FALSE(nic_from_json("[]"));
  EXPECT_FALSE(nic_from_json("{"));
  EXPECT_FALSE(nic_from_json(""));
}

TEST(NicFile, IsABuiltInNameOrAFile) {
  EXPECT_TRUE(load_nic("cx4-100g"));
  const auto missing = load_nic("no-such-nic");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().find("cx4-100g"), std::string::npos) << missing.error();
}

}  // namespace
}  // namespace declock::sim
