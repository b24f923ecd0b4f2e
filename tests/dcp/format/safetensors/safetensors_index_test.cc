// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/safetensors/safetensors_index.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "dcp/base/bytes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

absl::StatusOr<absl::flat_hash_map<std::string, std::string>> ReadIndex(
    absl::string_view json) {
  return ParseSafetensorsIndex(AsBytes(json));
}

TEST(SafetensorsIndex, IsReadBack) {
  const std::string json = WriteSafetensorsIndex(
      12, {{"b", "model-2.safetensors"}, {"a \"", "model-1.safetensors"}});
  EXPECT_EQ(json,
            "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n"
            "  \"weight_map\": {\n    \"b\": \"model-2.safetensors\",\n"
            "    \"a \\\"\": \"model-1.safetensors\"\n  }\n}\n");
  ASSERT_OK_AND_ASSIGN(const auto files, ReadIndex(json));
  EXPECT_THAT(files,
              UnorderedElementsAre(std::pair<const std::string, std::string>(
                                       "b", "model-2.safetensors"),
                                   std::pair<const std::string, std::string>(
                                       "a \"", "model-1.safetensors")));
  EXPECT_OK(ReadIndex(WriteSafetensorsIndex(0, {})));
}

TEST(SafetensorsIndex, IgnoresUnknownKeys) {
  EXPECT_OK(ReadIndex(
      R"({"metadata":[{"weight_map":1}],"weight_map":{"a":"f"},"x":null})"));
}

// Readers of such folders apply them to weights that they have already.
TEST(SafetensorsIndex, RefusesWeightDifferences) {
  EXPECT_THAT(
      ReadIndex(R"({"metadata": {"version": "000002", "delta_encoding": "xor",
                    "base_version": "000001"}, "weight_map": {}})"),
      StatusIs(absl::StatusCode::kUnimplemented,
               HasSubstr("the index has delta_encoding")));
  EXPECT_OK(ReadIndex(
      R"({"weight_map":{"delta_encoding":"f"}, "delta_encoding": "xor"})"));
}

TEST(SafetensorsIndex, RefusesCorruption) {
  const std::pair<const char*, const char*> corruptions[] = {
      {"{", "not valid JSON"},
      {"", "not valid JSON"},
      {"[]", "unexpected type"},
      {"{}", "lacks weight_map"},
      {R"({"weight_map":[]})", "unexpected type"},
      {R"({"weight_map":"a"})", "unexpected type"},
      {R"({"weight_map":{"a":5}})", "unexpected type"},
      {R"({"weight_map":{"a":{"b":"c"}}})", "unexpected type"},
      {R"({"weight_map":{"a":"../f"}})", "'..' component"},
      {R"({"weight_map":{"a":"/etc/hostname"}})", "absolute"},
      {R"({"weight_map":{"a":""}})", "empty"},
      {R"({"weight_map":{"a":"f\u0000"}})", "NUL"},
      {R"({"weight_map":{"a":"f","a":"f"}})", "a twice"},
      {R"({"weight_map":{},"weight_map":{}})", "weight_map occurs twice"},
  };
  for (const auto& [json, message] : corruptions) {
    EXPECT_THAT(ReadIndex(json),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(message)))
        << json;
  }
}

}  // namespace
}  // namespace dcp
