// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/safetensors/sharding_info.h"

#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ShardingInfo, HasOffsetsByName) {
  ASSERT_OK_AND_ASSIGN(
      const SavedOffsets offsets,
      ParseShardingInfo(R"({"a": {"saved_offsets": [7], "new": [1, {}]},)"
                        R"( "b": {"saved_offsets": []}})"));
  ASSERT_EQ(offsets.size(), 2u);
  EXPECT_EQ(offsets.at("a"), Dims({7}));
  EXPECT_EQ(offsets.at("b"), Dims({}));
}

TEST(ShardingInfo, RefusesCorruption) {
  const std::pair<const char*, const char*> corruptions[] = {
      {"{", "DCP_SHARDING_INFO: not valid JSON"},
      {"[]", "unexpected type"},
      {R"({"a":1})", "unexpected type"},
      {R"({"a":{}})", "lacks saved_offsets"},
      {R"({"a":{"saved_offsets":[-1]}})", "unexpected type"},
      {R"({"a":{"saved_offsets":[],"saved_offsets":[]}})",
       "its saved_offsets twice"},
      {R"({"a":{"saved_offsets":[]},"a":{"saved_offsets":[]}})",
       "a occurs twice"},
  };
  for (const auto& [json, message] : corruptions) {
    EXPECT_THAT(ParseShardingInfo(json),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(message)))
        << json;
  }
}

}  // namespace
}  // namespace dcp
