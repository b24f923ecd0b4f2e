// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/map_messages.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/mapping/language/mapping_limits.h"
#include "dcp/maps/builtin_mappings.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "proto/error_detail.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::StatusIs;
using ::google::protobuf::util::MessageDifferencer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

using ::dcp::testing::kInvalid;

v1::MapSpec Llama() {
  v1::MapSpec map;
  map.set_builtin("llama");
  map.set_from_side("hf");
  map.set_to_side("torchtitan");
  return map;
}

TEST(MapMessages, FamilyIsEnough) {
  ASSERT_OK(CheckMap(Llama(), "source.map"));
  ASSERT_OK_AND_ASSIGN(const MapSpec spec, MapFromProto(Llama(), "source.map"));
  EXPECT_EQ(spec.mapping.name(), "llama");
  EXPECT_EQ(spec.options.from, "hf");
  EXPECT_EQ(spec.options.to, "torchtitan");
  EXPECT_EQ(spec.options.config, "");
  EXPECT_EQ(spec.options.parts, MapOptions::Parts::kAll);
  EXPECT_EQ(spec.options.unmatched, MapOptions::Unmatched::kError);
}

TEST(MapMessages, MappingArrivesUnchanged) {
  ASSERT_OK_AND_ASSIGN(Mapping mapping, BuiltinMapping("llama"));
  for (const auto& [parts, unmatched] : {
           std::pair(MapOptions::Parts::kModel, MapOptions::Unmatched::kKeep),
           std::pair(MapOptions::Parts::kStates, MapOptions::Unmatched::kDrop),
       }) {
    MapSpec spec{.mapping = mapping, .options = {}};
    spec.options.from = "hf";
    spec.options.to = "torchtitan";
    spec.options.config = "{\"num_hidden_layers\": 2}";
    spec.options.settings = {{"tp", 2}, {"layers", -1}};
    spec.options.parts = parts;
    spec.options.unmatched = unmatched;
    spec.options.allow_missing = {"*.q_norm.weight", "a"};
    spec.options.force_family = true;
    spec.model_from = "module.";
    spec.model_to = "app.model.";
    spec.states_from = "optim.";
    spec.states_to = "app.optim.";
    v1::MapSpec sent;
    MapToProto(spec, sent);
    ASSERT_OK(CheckMap(sent, "map"));
    ASSERT_OK_AND_ASSIGN(const MapSpec arrived, MapFromProto(sent, "map"));
    EXPECT_EQ(arrived.mapping.text(), mapping.text());
    EXPECT_EQ(arrived.mapping.file_name(), "llama.yaml");
    EXPECT_THAT(arrived.options.settings,
                ElementsAre(Pair("layers", -1), Pair("tp", 2)));
    EXPECT_THAT(arrived.options.allow_missing,
                ElementsAre("*.q_norm.weight", "a"));
    EXPECT_TRUE(arrived.options.force_family);
    v1::MapSpec again;
    MapToProto(arrived, again);
    EXPECT_TRUE(MessageDifferencer::Equals(again, sent));
  }
}

// Mistakes that are found before the rules are read.
TEST(MapMessages, NamesBadFields) {
  const struct {
    std::function<void(v1::MapSpec&)> change;
    std::string field;
    std::string says;
  } cases[] = {
      {[](v1::MapSpec& map) { map.clear_builtin(); }, "m",
       "m has neither builtin nor yaml"},
      {[](v1::MapSpec& map) { map.set_yaml("tessera-mapping: 1"); }, "m",
       "m has both builtin and yaml"},
      {[](v1::MapSpec& map) {
         map.clear_builtin();
         map.set_yaml(std::string(kMaxMappingBytes + 1, '#'));
       },
       "m.yaml", "has 1048577 bytes: at most 1048576"},
      {[](v1::MapSpec& map) {
         map.set_config_json(std::string(kMaxModelConfigBytes + 1, ' '));
       },
       "m.config_json", "has 1048577 bytes: at most 1048576"},
      {[](v1::MapSpec& map) { map.clear_from_side(); }, "m.from_side",
       "is empty"},
      {[](v1::MapSpec& map) { map.clear_to_side(); }, "m.to_side", "is empty"},
      {[](v1::MapSpec& map) { map.set_part("extra"); }, "m.part",
       "is 'extra': model and optimizer"},
      {[](v1::MapSpec& map) { map.set_unmatched("ignore"); }, "m.unmatched",
       "is 'ignore': error, keep and drop"},
      {[](v1::MapSpec& map) {
         for (int i = 0; i <= 1000; ++i) map.add_allow_missing("a");
       },
       "m.allow_missing", "has 1001 entries"},
      {[](v1::MapSpec& map) { map.set_to_prefix(std::string(2000, 'a')); },
       "m.to_prefix", "has 2000 bytes"},
      {[](v1::MapSpec& map) { map.set_from_prefix(std::string(1, '\0')); },
       "m.from_prefix", "contains a NUL"},
      {[](v1::MapSpec& map) {
         for (int i = 0; i <= 1000; ++i) {
           (*map.mutable_settings())[absl::StrCat(i)] = i;
         }
       },
       "m.settings", "has 1001 entries"},
      {[](v1::MapSpec& map) {
         (*map.mutable_settings())[std::string(600, 'a')] = 1;
       },
       "m.settings", "has 600 bytes"},
  };
  for (const auto& [change, field, says] : cases) {
    v1::MapSpec map = Llama();
    change(map);
    const absl::Status status = CheckMap(map, "m");
    EXPECT_THAT(status,
                StatusIs(kInvalid, AllOf(StartsWith(field), HasSubstr(says))));
    EXPECT_EQ(BlamedField(status), field);
  }
}

TEST(MapMessages, NamesBadRulesWithLineAndColumn) {
  v1::MapSpec map = Llama();
  map.clear_builtin();
  map.set_yaml("tessera-mapping: 1\nrulez: 1\n");
  absl::Status status = MapFromProto(map, "m").status();
  EXPECT_THAT(status, StatusIs(kInvalid, StartsWith("rules.yaml:2:1: ")));
  EXPECT_EQ(BlamedField(status), "m.yaml");
  map.set_yaml_name("mine.yaml");
  EXPECT_THAT(MapFromProto(map, "m"),
              StatusIs(kInvalid, StartsWith("mine.yaml:2:1: ")));
}

TEST(MapMessages, NamesUnknownFamiliesAndSides) {
  const struct {
    std::function<void(v1::MapSpec&)> change;
    std::string field;
    std::string says;
  } cases[] = {
      {[](v1::MapSpec& map) { map.set_builtin("lama"); }, "m.builtin",
       "m.builtin: there is no mapping for \"lama\"; there are deepseek-v3"},
      {[](v1::MapSpec& map) { map.set_from_side("mars"); }, "m.from_side",
       "has no side 'mars'; it has hf"},
      {[](v1::MapSpec& map) { map.set_to_side("mars"); }, "m.to_side",
       "has no side 'mars'; it has hf"},
  };
  for (const auto& [change, field, says] : cases) {
    v1::MapSpec map = Llama();
    change(map);
    ASSERT_OK(CheckMap(map, "m"));
    const absl::Status status = MapFromProto(map, "m").status();
    EXPECT_THAT(status, StatusIs(kInvalid, HasSubstr(says)));
    EXPECT_EQ(BlamedField(status), field);
  }
}

}  // namespace
}  // namespace dcp
