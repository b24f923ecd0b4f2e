// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/dialect.h"

#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

TEST(Dialect, NamesAndParsesEach) {
  for (int i = 0; i <= static_cast<int>(Dialect::kByteCheckpoint); ++i) {
    const auto dialect = static_cast<Dialect>(i);
    EXPECT_FALSE(DialectName(dialect).empty());
    EXPECT_THAT(ParseDialect(DialectName(dialect)), IsOkAndHolds(dialect));
  }
}

TEST(Dialect, AnErrorListsTheNames) {
  EXPECT_THAT(
      ParseDialect("fsdp3"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("'fsdp3' is not dcp, safetensors, pt, ranks, "
                         "deepspeed, accelerate, transformers, megatron, "
                         "torchsnapshot or bytecheckpoint")));
}

}  // namespace
}  // namespace dcp
